"""Checks during the monkey test: errors, Qt warnings, windows, processes, memory. Main thread."""

from __future__ import annotations

import ctypes
import gc
import re
import time
from collections import Counter
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np
import psutil
from monkey_sandbox import TOKEN
from monkey_tree import everything
from PySide6.QtCore import QMetaMethod
from PySide6.QtWidgets import QApplication

from devexplorer.core.devices.profiles import MAX_DEVICES, parse_virtual
from devexplorer.core.records import AddVirtual, Command, Event, Log
from devexplorer.core.session.session import Session
from devexplorer.core.session.state import Change, State
from devexplorer.core.telemetry.history import BinRing, RowRing
from devexplorer.gui.shell.app import App

EXPECTED = (
    r"Qt: This plugin does not support",  # messages of the offscreen plugin
    r"The engine ended by signal SIGKILL",  # the monkey restarts it and changes the visible devices
    r"Restarted",
    r"That is \d+ times within a minute",
)
PROCESSES = 40
"""More children than this at once is a fork bomb; each check and each trial has one."""


class Sample(NamedTuple):
    """A measurement of everything that can grow."""

    number: int
    seconds: float
    window_mib: float
    engine_mib: float
    objects: int
    """Of Python."""
    qobjects: int
    tops: int
    """Windows, hidden ones included."""
    threads: int
    processes: int


class Guards:
    """`problems` describes what went wrong; empty is good."""

    def __init__(self, app: App) -> None:
        self._app = app
        self._started = time.monotonic()
        self.problems: list[str] = []
        self.errors_seen = 0
        """Expected ones included."""
        self.samples: list[Sample] = []
        self._listen()

    def _listen(self) -> None:
        """Every event applied to the state, whichever state is shown."""
        apply = State.apply

        def listening(state: State, event: Event) -> Change:
            if isinstance(event, Log):
                self._log(event)
            return apply(state, event)

        State.apply = listening  # type: ignore[method-assign]

    def _log(self, event: Log) -> None:
        if event.level != "error" and not event.text.startswith("Qt: "):
            return
        self.errors_seen += 1
        if not any(re.match(pattern, event.text) for pattern in EXPECTED):
            self.problems.append(f"{event.level}: {event.text}")

    def sample(self, number: int) -> Sample:
        """Measure now."""
        children = psutil.Process().children(recursive=True)
        engine = self._app.state.engine
        found = Sample(
            number,
            time.monotonic() - self._started,
            resident_mib(psutil.Process().pid),
            resident_mib(engine.pid) if engine is not None else 0.0,
            len(gc.get_objects()),
            sum(1 for _ in everything(self._app.window)),
            len(QApplication.topLevelWidgets()),
            psutil.Process().num_threads(),
            len(children),
        )
        if len(children) > PROCESSES:
            self.problems.append(f"{len(children)} child processes")
        self.samples.append(found)
        return found

    def strays(self) -> list[str]:
        """Windows that a user cannot have opened: without a parent, and not the main window."""
        return [
            type(top).__name__
            for top in QApplication.topLevelWidgets()
            if top.isVisible()
            and top.parent() is None
            and top is not self._app.window
            and type(top).__name__ not in HARMLESS
        ]


HARMLESS = {"QMenu", "QTipLabel", "QComboBoxPrivateContainer", "QWidget", "QFrame"}
"""What Qt itself opens and closes: menus, tooltips, lists."""


def limit_devices(app: App, most: int) -> None:
    """From now on, a request for more devices than `most` in total is refused."""
    send, asked = Session.send, 0

    def limited(session: Session, command: Command) -> int:
        nonlocal asked
        if isinstance(command, AddVirtual):
            asked = max(asked, len(app.state.devices))  # more while some are pending
            more = len(parse_virtual(command.spec))
            if asked + more > most:
                command = msgspec.structs.replace(command, spec=f"{MAX_DEVICES + 1}x Tesla T4")
            else:
                asked += more
        return send(session, command)

    Session.send = limited  # type: ignore[method-assign]


def census() -> Counter[str]:
    """Counts of objects: Python's by type, and Qt's by class in all windows."""
    counted: Counter[str] = Counter(f"{type(one).__module__}.{type(one).__qualname__}" for one in gc.get_objects())
    for top in QApplication.topLevelWidgets():
        counted[f"window {type(top).__name__}"] += 1
        if top.parent() is None:  # otherwise its parent's children include it: every menu is a window too
            counted.update(f"Qt {one.metaObject().className()}" for one in everything(top))
    return counted


def connections() -> Counter[str]:
    """Receivers of each signal in every window, to find connections that accumulate."""
    counted: Counter[str] = Counter()
    roots = [top for top in QApplication.topLevelWidgets() if top.parent() is None]
    every = [one for root in roots for one in (root, *everything(root))]
    for one in (*every, QApplication.instance()):
        meta = one.metaObject()
        for number in range(meta.methodCount()):
            method = meta.method(number)
            if method.methodType() == QMetaMethod.MethodType.Signal:
                signature = bytes(method.methodSignature().data()).decode()
                counted[f"{meta.className()}.{signature}"] += one.receivers(f"2{signature}")
    return counted


def resident_mib(pid: int) -> float:
    """Resident memory of a process; 0 if it has ended."""
    try:
        return psutil.Process(pid).memory_info().rss / 2**20
    except psutil.Error:
        return 0.0


class _MallInfo(ctypes.Structure):
    """`struct mallinfo2` of the C library."""

    _fields_ = tuple(
        (name, ctypes.c_size_t)
        for name in ("arena ordblks smblks hblks hblkhd usmblks fsmblks uordblks fordblks keepcost".split())  # noqa: SIM905
    )


def heap() -> str:
    """Describes the memory in use: the C library's main heap, large blocks, and tables of readings."""
    libc = ctypes.CDLL("libc.so.6")
    libc.mallinfo2.restype = _MallInfo
    info = libc.mallinfo2()
    rings = [one for one in gc.get_objects() if isinstance(one, RowRing | BinRing)]
    tables = sum(table.nbytes for ring in rings for table in vars(ring).values() if isinstance(table, np.ndarray))
    return (
        f"{info.uordblks / 2**20:.1f} of {info.arena / 2**20:.1f} MiB of the main heap in use,"
        f" {info.hblkhd / 2**20:.1f} MiB in large blocks; tables of readings {tables / 2**20:.1f} MiB"
    )


def give_back() -> None:
    """Collect garbage and return free memory to the system, so that only memory in use is measured."""
    gc.collect()
    try:
        ctypes.CDLL("libc.so.6").malloc_trim(0)
    except (OSError, AttributeError):
        pass  # another C library


def left_behind(folder: Path) -> list[str]:
    """Processes with the token of this sandbox, except this one."""
    found = []
    for process in psutil.process_iter():
        try:
            if (
                process.pid != psutil.Process().pid
                and process.environ().get(TOKEN) == folder.name
                and process.status() != "zombie"
            ):
                found.append(f"{process.pid} {' '.join(process.cmdline())[:80]}")
        except psutil.Error:
            continue
    return found
