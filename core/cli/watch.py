"""`devexplorer watch`: live readings of every device, as a table or as JSON lines; recorded and served to Prometheus at the same time.

Main thread. Cards are read on threads of the sampler, the recorder and the server have threads of their own; all of them end with it.
"""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pathlib import Path

import msgspec
from rich.console import Console, Group
from rich.live import Live

from devexplorer.core.benchmark.spec import parse_count, parse_seconds
from devexplorer.core.cli.findings import Findings
from devexplorer.core.cli.output import console, print_document
from devexplorer.core.cli.prometheus import LastReadings, PrometheusServer, parse_port
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.cli.watch_devices import WatchedDevices
from devexplorer.core.cli.watch_table import Reading, WatchTable
from devexplorer.core.devices.drm import Drm
from devexplorer.core.devices.nvml import Nvml
from devexplorer.core.errors import BadInput
from devexplorer.core.formats import bytes_text
from devexplorer.core.records.devices import DeviceSample, ProcessUse
from devexplorer.core.telemetry.recorder import Recorder

LOOPBACK = "127.0.0.1"
CLOSE_S = 2.0
"""For the disk to take the end of a recording."""

Show = Callable[[Sequence[Reading]], None]


def watch(arguments: argparse.Namespace, nvml: Nvml | None = None, drm: Drm | None = None) -> int:
    """Read every device again and again; returns the exit code. `nvml` and `drm` stand in for the real ones."""
    findings = Findings()
    interval = findings.checked(partial(parse_seconds, arguments.interval, "--interval"), 1.0)
    count = None if arguments.count is None else findings.checked(partial(parse_count, arguments.count, "--count"), None)
    port = None if arguments.prometheus is None else findings.checked(partial(parse_port, arguments.prometheus), None)
    path = None if arguments.record is None else findings.checked(partial(_parse_file, arguments.record), None)
    if arguments.address is not None and arguments.prometheus is None:
        findings.add("--address says where --prometheus listens; give a port with --prometheus as well")
    findings.check_virtual(arguments.virtual)
    findings.demand_none()
    with ExitStack() as ending:
        served = LastReadings()
        if port is not None:
            server = PrometheusServer(port, arguments.address or LOOPBACK, served)
            ending.callback(server.close)
            _say(f"serving {server.url}")
        devices = ending.enter_context(WatchedDevices(arguments.virtual, interval, nvml or Nvml(), drm))
        recorder = None
        if path is not None:
            recorder = Recorder(path, devices.infos, on_problem=_say, problems=devices.problems)
            ending.callback(_end_recording, recorder)
        show = _json if arguments.json else ending.enter_context(_Table(console())).show
        stopping = ending.enter_context(Stopping())
        ticks = 0
        due = time.monotonic() + min(interval, 0.1)  # the first reading only starts what is a difference between two
        while (count is None or ticks < count) and not stopping.wait(due - time.monotonic()):
            before = devices.infos, devices.problems
            readings, events = devices.read()
            if recorder is not None:
                if (devices.infos, devices.problems) != before:
                    recorder.put_devices(devices.infos, devices.problems)
                for event in events:
                    recorder.put(event)
            served.figures = [(reading.info, reading.sample) for reading in readings]
            show(readings)
            ticks += 1
            due = max(due + interval, time.monotonic())  # without drift: due when the last was due, and the interval
    if stopping.asked:
        return stopping.exit_code
    return int(recorder is not None and recorder.problem is not None)


# --- what is shown


class _Table:
    """A table that renews itself on a terminal; elsewhere one after the other."""

    def __init__(self, out: Console) -> None:
        self._out = out
        self._table = WatchTable(ascii_only=not out.encoding.lower().startswith("utf"))
        self._size = out.size
        renews = out.is_terminal and not out.is_dumb_terminal
        self._live = Live(console=out, auto_refresh=False, vertical_overflow="visible") if renews else None

    def __enter__(self) -> _Table:
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self._live.stop()

    def show(self, readings: Sequence[Reading]) -> None:
        """Show one tick."""
        if self._live is None:
            for line in self._table.lines(readings, self._out.width):
                self._out.print(line)
            self._out.file.flush()
            return
        if self._out.size != self._size:  # what stood there was folded by the terminal: begin anew at its top
            self._size = self._out.size
            self._out.clear()
        self._live.update(Group(*self._table.lines(readings, self._size.width, self._size.height - 1)), refresh=True)


def _json(readings: Sequence[Reading]) -> None:
    for reading in readings:
        print_document(**document(reading))
    if sys.stdout is not None:
        sys.stdout.flush()


_CONTRACT = (
    "time_unix_s",
    "device",
    "memory_used_bytes",
    "memory_total_bytes",
    "utilization_percent",
    "temperature_c",
    "power_w",
    "sm_clock_mhz",
    "processes",
)
_FURTHER = tuple(name for name in DeviceSample.__struct_fields__ if name not in _CONTRACT)


def document(reading: Reading) -> dict[str, object]:
    """One line of `--json` without its schema: every field of the sample by its name, null where it is not known."""
    sample = reading.sample
    content: dict[str, object] = {name: getattr(sample, name) for name in _CONTRACT}
    # Records leave out what is not known when they are encoded; a document keeps it.
    content["processes"] = None if sample.processes is None else [_plain(use) for use in sample.processes]
    return content | {name: getattr(sample, name) for name in _FURTHER} | {"problem": reading.problem or None}


def _plain(use: ProcessUse) -> dict[str, object]:
    return msgspec.structs.asdict(use)


# --- recording


def _parse_file(text: str) -> Path:
    path = Path(text)
    if not text.strip() or path.is_dir():
        raise BadInput(f"--record '{text}' is not a file; name a file that is not there yet")
    if not path.parent.is_dir():
        raise BadInput(f"--record '{text}': there is no folder '{path.parent}'; make it first")
    return path


def _end_recording(recorder: Recorder) -> None:
    complete = recorder.close(CLOSE_S)
    if complete:
        _say(f"recorded {bytes_text(recorder.bytes_written)}; show it with: devexplorer --replay {recorder.path}")
    elif recorder.problem is None:
        _say(f"the disk did not take the end of {recorder.path} in time; what it has can be replayed")


def _say(text: str) -> None:
    """A line beside the readings, whoever says it."""
    if sys.stderr is not None:
        print(f"devexplorer: {' '.join(text.split())}", file=sys.stderr, flush=True)
