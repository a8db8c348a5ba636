"""`devexplorer watch`: live readings of every device, as a table or as JSON lines, and what features do with them
meanwhile.

Main thread. Cards are read on threads of the sampler, which end with it. What only some of that needs (rich, what
features do) is imported where it is asked for: a reading is wanted in the time that other monitors take for one.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from functools import partial
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from devexplorer.core.base import parse_seconds
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.cli.terminal import PIPE_COLUMNS, PLAIN, console, is_styled, print_document
from devexplorer.core.devices.nvml.library import START_LIMIT_S, Nvml
from devexplorer.core.records import DeviceSample
from devexplorer.core.records.base import plain
from devexplorer.core.watch.devices import WatchedDevices
from devexplorer.core.watch.table import WatchReading, WatchTable

if TYPE_CHECKING:
    from rich.console import Console

    from devexplorer.core.devices.drm import Drm

LEAST_INTERVAL_S = 0.001

Show = Callable[[Sequence[WatchReading]], None]


def watch(arguments: argparse.Namespace, nvml: Nvml | None = None, drm: Drm | None = None) -> int:
    """Read every device again and again; returns the exit code. `nvml` and `drm` replace the real ones in tests."""
    findings = TerminalFindings()
    interval = findings.checked(partial(parse_seconds, arguments.interval, "--interval"), 1.0)
    if interval < LEAST_INTERVAL_S:
        findings.add(f"--interval {arguments.interval} is too short; enter {LEAST_INTERVAL_S:g} s or more")
    count = findings.count(arguments.count, "--count")
    besides: list[Any] = []
    for option in arguments.besides:
        if (word := getattr(arguments, option.name)) is not None:
            make = resolve_name(f"devexplorer.core.{option.run}")
            besides.append(findings.parsed(word, partial(make, arguments), None))
    besides = [one for one in besides if one is not None]
    findings.check_virtual(arguments.virtual)
    findings.demand_none()
    once = count == 1
    if nvml is None:
        nvml = Nvml(open_limit_s=START_LIMIT_S if once else None)
    with ExitStack() as ending:
        devices = ending.enter_context(
            WatchedDevices(
                arguments.virtual, interval, nvml, drm, once=once, datasheets=_datasheets() if besides else None
            )
        )
        for one in besides:
            one.begin(devices, ending)
        show = _show(arguments, once, ending)
        stopping = ending.enter_context(Stopping())
        ticks = 0
        due = time.monotonic()
        while (count is None or ticks < count) and not stopping.wait(due - time.monotonic()):
            readings, events = devices.read()
            for one in besides:
                one.take(readings, events)
            show(readings)
            ticks += 1
            due = max(due + interval, time.monotonic())  # without drift: due when the last was due, and the interval
    if stopping.asked:
        return stopping.exit_code
    return int(any(one.failed for one in besides))


def _datasheets() -> dict[str, Any]:
    from devexplorer.core.devices.profiles import load_profiles

    return load_profiles()


# --- what is shown


class _LiveTable:
    """A table that renews itself on a terminal."""

    def __init__(self, out: Console, ending: ExitStack) -> None:
        from devexplorer.core.cli.renewing import Renewing

        self._table = WatchTable(ascii_only=not out.encoding.lower().startswith("utf"))
        self._terminal = ending.enter_context(Renewing(out))

    def show(self, readings: Sequence[WatchReading]) -> None:
        """Show one tick."""
        self._terminal.show(line.rich() for line in self._table.lines(readings, *self._terminal.room()))


class _Tables:
    """One table after the other, where nothing can be renewed, or there is only one."""

    def __init__(self) -> None:
        encoding = getattr(sys.stdout, "encoding", None) or "utf-8"
        self._table = WatchTable(ascii_only=not encoding.lower().startswith("utf"))
        self._styled = is_styled()
        self._width = _columns() if _on_terminal() else PIPE_COLUMNS

    def show(self, readings: Sequence[WatchReading]) -> None:
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
    return _LiveTable(console(), ending).show


def _columns() -> int:
    try:
        return os.get_terminal_size(1).columns or 80
    except OSError:
        return 80


def _json(readings: Sequence[WatchReading]) -> None:
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


def document(reading: WatchReading) -> dict[str, object]:
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
