"""`devexplorer watch`: live readings of every device, as a table or as JSON lines; recorded and served to Prometheus at
the same time.

Main thread. Cards are read on threads of the sampler, the recorder and the server have threads of their own; all of
them end with it. What only some of that needs (rich, prometheus_client, the recorder) is imported where it is asked
for: a reading is wanted in the time that other monitors take for one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

from devexplorer.core.base import BadInput, bytes_text, parse_seconds
from devexplorer.core.base.plain import plain
from devexplorer.core.cli.terminal.findings import Findings
from devexplorer.core.cli.terminal.lines import PLAIN, is_styled
from devexplorer.core.cli.terminal.output import PIPE_COLUMNS, console, print_document
from devexplorer.core.cli.terminal.refusal import say
from devexplorer.core.cli.terminal.stopping import Stopping
from devexplorer.core.cli.watch.devices import WatchedDevices
from devexplorer.core.cli.watch.table import Reading, WatchTable
from devexplorer.core.devices.nvml.library import START_LIMIT_S, Nvml
from devexplorer.core.records import DeviceSample

if TYPE_CHECKING:
    from pathlib import Path

    from rich.console import Console

    from devexplorer.core.devices.drm import Drm
    from devexplorer.core.recording.recorder import Recorder

LEAST_INTERVAL_S = 0.001
CLOSE_S = 2.0
"""For the disk to take the end of a recording."""

Show = Callable[[Sequence[Reading]], None]


def watch(arguments: argparse.Namespace, nvml: Nvml | None = None, drm: Drm | None = None) -> int:
    """Read every device again and again; returns the exit code. `nvml` and `drm` replace the real ones in tests."""
    findings = Findings()
    interval = findings.checked(partial(parse_seconds, arguments.interval, "--interval"), 1.0)
    if interval < LEAST_INTERVAL_S:
        findings.add(f"--interval {arguments.interval} is too short; enter {LEAST_INTERVAL_S:g} s or more")
    count = findings.count(arguments.count, "--count")
    port = findings.parsed(arguments.prometheus, parse_port, None)
    path = findings.parsed(arguments.record, _parse_file, None)
    if arguments.address is not None and arguments.prometheus is None:
        findings.add("--address says where --prometheus listens; give a port with --prometheus as well")
    findings.check_virtual(arguments.virtual)
    findings.demand_none()
    once = count == 1
    if nvml is None:
        nvml = Nvml(open_limit_s=START_LIMIT_S if once else None)
    with ExitStack() as ending:
        served = None if port is None else _serve(port, arguments.address, ending)
        recording = path is not None
        devices = ending.enter_context(
            WatchedDevices(
                arguments.virtual, interval, nvml, drm, once=once, datasheets=_datasheets() if recording else None
            )
        )
        recorder = None if path is None else _record(path, devices, ending)
        show = _show(arguments, once, ending)
        stopping = ending.enter_context(Stopping())
        ticks = 0
        due = time.monotonic()
        while (count is None or ticks < count) and not stopping.wait(due - time.monotonic()):
            before = devices.infos, devices.problems
            readings, events = devices.read()
            if recorder is not None:
                if (devices.infos, devices.problems) != before:
                    recorder.put_devices(devices.infos, devices.problems)
                for event in events:
                    recorder.put(event)
            if served is not None:
                served(readings)
            show(readings)
            ticks += 1
            due = max(due + interval, time.monotonic())  # without drift: due when the last was due, and the interval
    if stopping.asked:
        return stopping.exit_code
    return int(recorder is not None and recorder.problem is not None)


def _serve(port: int, address: str | None, ending: ExitStack) -> Show:
    from devexplorer.core.cli.watch.prometheus import serving, this_machine

    served = serving(port, address, ending)

    def put(readings: Sequence[Reading]) -> None:
        served.machines = [this_machine([(reading.info, reading.sample) for reading in readings])]

    return put


def _record(path: Path, devices: WatchedDevices, ending: ExitStack) -> Recorder:
    from devexplorer.core.recording.recorder import Recorder

    recorder = Recorder(path, devices.infos, on_problem=say, problems=devices.problems)
    ending.callback(_end_recording, recorder)
    return recorder


def _datasheets() -> dict[str, Any]:
    from devexplorer.core.devices.profiles import load_profiles

    return load_profiles()


def parse_port(text: str) -> int:
    """Of `--prometheus`."""
    from devexplorer.core.cli.watch import prometheus

    return prometheus.parse_port(text)


# --- what is shown


class _Table:
    """A table that renews itself on a terminal."""

    def __init__(self, out: Console, ending: ExitStack) -> None:
        from devexplorer.core.cli.terminal.renewing import Renewing

        self._table = WatchTable(ascii_only=not out.encoding.lower().startswith("utf"))
        self._terminal = ending.enter_context(Renewing(out))

    def show(self, readings: Sequence[Reading]) -> None:
        """Show one tick."""
        self._terminal.show(line.rich() for line in self._table.lines(readings, *self._terminal.room()))


class _Tables:
    """One table after the other, where nothing can be renewed, or there is only one."""

    def __init__(self) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._table = WatchTable(ascii_only=not encoding.lower().startswith("utf"))
        self._styled = is_styled()
        self._width = _columns() if _on_terminal() else PIPE_COLUMNS

    def show(self, readings: Sequence[Reading]) -> None:
        """Show one tick."""
        if sys.stdout is None:  # the shell closed it
            return
        lines = self._table.lines(readings, self._width)
        sys.stdout.write("".join(f"{line.ansi() if self._styled else line.plain}\n" for line in lines))
        sys.stdout.flush()


def _on_terminal() -> bool:
    return sys.stdout is not None and sys.stdout.isatty()


def renews() -> bool:
    """Whether a table can be shown in place of the one before."""
    return _on_terminal() and os.environ.get("TERM") not in PLAIN


def _show(arguments: argparse.Namespace, once: bool, ending: ExitStack) -> Show:
    if arguments.json:
        return _json
    if once or not renews():
        return _Tables().show
    return _Table(console(), ending).show


def _columns() -> int:
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


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
    """One line of `--json` without its schema: every field of the sample by its name, null where it is not known, and
    then `"unavailable"` has the reason. The line of the CPU has what concerns the whole machine as `"problems"`.
    """
    sample = reading.sample
    content: dict[str, object] = {name: getattr(sample, name) for name in _CONTRACT}
    # Records leave out what is not known when they are encoded; a document keeps it.
    content["processes"] = plain(sample.processes)
    content |= {name: getattr(sample, name) for name in _FURTHER}
    content |= {"problem": reading.problem or None, "age_s": reading.age_s, "unavailable": dict(reading.reasons)}
    if reading.info.kind == "cpu":
        content["problems"] = [{"field": problem.field, "reason": problem.reason} for problem in reading.machine]
    return content


# --- recording


def _parse_file(text: str) -> Path:
    from pathlib import Path

    path = Path(text)
    if not text.strip() or os.path.isdir(path):
        raise BadInput(f"--record '{text}' is not a file; name a file that is not there yet")
    if not os.path.isdir(path.parent):
        raise BadInput(f"--record '{text}': there is no folder '{path.parent}'; make it first")
    return path


def _end_recording(recorder: Recorder) -> None:
    complete = recorder.close(CLOSE_S)
    if complete:
        say(f"recorded {bytes_text(recorder.bytes_written)}; show it with: devexplorer --replay {recorder.path}")
    elif recorder.problem is None:
        say(f"the disk did not take the end of {recorder.path} in time; what it has can be replayed")
