"""Monkey test of the real window with the real engine: random clicks, keys, texts, drags, drops and files, confined to
a folder.

It exits with 1 at the first exception, error line or Qt warning, and prints the actions before it; at the end no
process or window may be left. Memory is sampled during the run.

    python tests/soak/monkey.py [--actions 1000] [--seed 0] [--pace 10] [--go-on] [--log FILE] [--replay FILE]
    [--most-mib 300] [--most-devices 16] [--settle 3]

`--log` writes one action per line; `--replay` repeats the actions of such a file. The folder's name differs in each
run, so a log contains `{folder}` instead."""

from __future__ import annotations

import argparse
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import tempfile
import time
import tracemalloc
from collections import Counter, deque
from pathlib import Path

os.environ.setdefault("QT_QPA_PLATFORM", "offscreen")

from monkey_guards import Guards, census, connections, give_back, heap, left_behind, limit_devices, resident_mib
from monkey_hands import Action, Hands
from monkey_sandbox import enter, fill
from PySide6.QtCore import QEvent, QObject, QTimer, QUrl, Slot
from PySide6.QtGui import QDesktopServices
from PySide6.QtWidgets import QApplication, QDialog

import devexplorer.gui.shell.app as application
from devexplorer.core.records import Remove
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.shell.app import App

ACTIONS = "actions.jsonl"
FOLDER = "{folder}"
"""In a log: the folder of the run, whatever its name."""
SAMPLE_EVERY = 250
TIDY_EVERY = 2500
"""Everything is closed and removed before the final check."""
MOST_ALLOCATIONS = 30
LAST = 25
"""Actions printed after a failure."""
SETTLE_S = 45.0
READY_S = 120.0
"""Of an engine whose machine is busy with others: at a load of 15 a core it took more than 60 s."""
MOST_OBJECTS = 12
"""Limits the objects in the workspace, which use memory; the monkey never removes them systematically."""
MOST_DEVICES = 16
"""Each has a row, curves and 24 hours of readings; the memory limit is for this number."""
DEEPEST = 12
"""Maximum nesting of event loops (a menu in a menu): beyond it, only actions that close them."""


class KeepOpen(QObject):
    """Refuses to close the window or to open files in other programs."""

    def __init__(self) -> None:
        super().__init__()
        self.over = False

    def eventFilter(self, _watched: QObject, event: QEvent) -> bool:
        if event.type() == QEvent.Type.Close and not self.over:
            event.ignore()
            return True
        return False

    @Slot(QUrl)
    def opened(self, _url: QUrl) -> None:
        """Would open something outside."""


class Monkey:
    """Acts once per `pace` milliseconds while the application's event loop runs, including nested loops of menus and
    messages."""

    def __init__(self, app: App, arguments: argparse.Namespace, folder: Path) -> None:
        self._app, self._arguments, self._folder = app, arguments, folder
        self.guards = Guards(app)
        limit_devices(app, arguments.most_devices)
        self.keep_open = KeepOpen()
        app.window.installEventFilter(self.keep_open)
        QDesktopServices.setUrlHandler("file", self.keep_open, "opened")
        self.hands = Hands(app, folder, fill(folder))
        self.done = 0
        self.counts: Counter[str] = Counter()
        self._last: deque[tuple[int, Action]] = deque(maxlen=LAST)
        self._log = open(folder / ACTIONS, "w", encoding="utf-8")  # noqa: SIM115 - closed at the end
        self._again = None if arguments.replay is None else read(arguments.replay, folder)
        self._total = arguments.actions if self._again is None else len(self._again)
        self._depth = 0
        self._timer = (
            QTimer()
        )  # one timer: each `singleShot` with a method of an object that is not a QObject leaks a reference
        self._timer.setSingleShot(True)
        self._timer.timeout.connect(self._beat)
        self._began = time.monotonic()
        self._told = 0
        self._settling: float | None = None
        self._allocations: tracemalloc.Snapshot | None = None
        self.census_first: Counter[str] | None = None
        self._connections: Counter[str] = Counter()
        self.settled: list[tuple[int, float, float]] = []
        self._waiting_for_engine = True

    def start(self) -> None:
        """Begin once the engine is ready."""
        self._next(100)

    def _next(self, ms: int) -> None:
        self._timer.start(ms)

    def _beat(self) -> None:
        """One action; the next timer is started first, because the action may run a nested loop."""
        if self.keep_open.over:
            return
        if self._waiting_for_engine:
            self._wait_for_engine()
            return
        if self._settling is not None:
            self._settle()
            return
        if self.done >= self._total:
            if self._depth == 0:
                self._settling = time.monotonic()
            else:
                close_top()  # its loop is inside an action, which has to return
            self._next(100)
            return
        action = self._choose()
        wait = int(str(action.how["ms"])) if action is not None and action.do == "wait" else self._arguments.pace
        self._next(wait)
        if action is None:
            return
        self.done += 1
        number = self.done
        self.counts[action.do] += 1
        self._last.append((number, action))
        self._log.write(action.line().replace(str(self._folder), FOLDER) + "\n")
        self._log.flush()
        self._depth += 1
        try:
            self.hands.do(action)
        finally:
            self._depth -= 1
        self._look(number)

    def _wait_for_engine(self) -> None:
        if self._app.state.engine is not None and self._app.state.usable_devices:
            self._waiting_for_engine = False
            self.census_first = census() if self._arguments.census else None
        elif time.monotonic() - self._began > READY_S:
            self.guards.problems.append("the engine was not ready in time")
            self._end()
            return
        self._next(50)

    def _choose(self) -> Action | None:
        if self._again is not None:
            return self._again[self.done]
        rng = random.Random(f"{self._arguments.seed}:{self.done}:{self._depth}")
        if self._depth > DEEPEST:
            close_top()
            return None
        for _ in range(20):
            action = self.hands.choose(rng)
            if action is not None:
                return action
        return None

    def _look(self, number: int) -> None:
        guards = self.guards
        if number % SAMPLE_EVERY == 0:
            fill(self._folder)
            found = guards.sample(number)
            print(
                f"{number}: {found.seconds:.0f} s, window {found.window_mib:.0f} MiB, engine {found.engine_mib:.0f}"
                f" MiB, {found.objects} Python objects, {found.qobjects} QObjects, {found.tops} windows,"
                f" {found.threads} threads, {found.processes} processes, {len(self._app.state.objects)} objects",
                flush=True,
            )
            self._limit_objects()
        if strays := guards.strays():
            guards.problems.append(f"windows without a parent: {strays}")
        if len(guards.problems) > self._told:
            self._tell()
            if not self._arguments.go_on:
                self._end()
                return
        if number % self._arguments.tidy_every == 0 and self._depth == 0:
            self._settling = time.monotonic()

    def _limit_objects(self) -> None:
        state = self._app.state
        if len(state.objects) > MOST_OBJECTS and state.recording is None and state.engine is not None:
            self._app.controller.send(Remove(names=tuple(state.objects)))
        if state.engine is None and self._app.window.status.start.isVisible():
            self._app.window.status.start.click()  # it was ended too often within a minute
        if len(state.jobs) > 5:
            for job in list(state.jobs):
                self._app.controller.cancel(job)

    def _settle(self) -> None:
        """Close and remove everything, wait for running jobs, then check what is left."""
        assert self._settling is not None
        app, state = self._app, self._app.state
        for top in QApplication.topLevelWidgets():
            if isinstance(top, QDialog) and top.isVisible():
                top.close()
        if app.shown.session is not app.session:
            app.shown.back()
        elif state.engine is None:
            if app.window.status.start.isVisible():
                app.window.status.start.click()
        elif state.active_runs or state.jobs:
            app.controller.stop_benchmark()
            for job in list(state.jobs):
                app.controller.cancel(job)
        elif state.objects:
            app.controller.send(Remove(names=tuple(state.objects)))
        elif time.monotonic() - self._settling > self._arguments.settle and not (app.session and app.session._sent):
            self._settled()
            return
        waited = time.monotonic() - self._settling
        if waited > SETTLE_S:
            words = (
                f"after {waited:.0f} s: jobs {[job.title for job in state.jobs.values()]}, {len(state.objects)} objects"
            )
            print(f"{self.done}: not settled {words}", flush=True)
            self._settled()
            return
        self._next(200)

    def _settled(self) -> None:
        self._settling = None
        give_back()
        engine = self._app.state.engine
        window_mib, engine_mib = resident_mib(os.getpid()), resident_mib(engine.pid) if engine is not None else 0.0
        self.settled.append((self.done, window_mib, engine_mib))
        devices = len(self._app.state.devices)
        print(
            f"{self.done}: settled, window {window_mib:.0f} MiB, engine {engine_mib:.0f} MiB, {devices} devices",
            flush=True,
        )
        if self.census_first is not None:
            print(f"  {heap()}", flush=True)
            last = census()
            more = Counter({kind: last[kind] - self.census_first[kind] for kind in last})
            print("  more: " + ", ".join(f"{kind} +{number}" for kind, number in more.most_common(40)), flush=True)
            now = connections()
            more = Counter({signal: now[signal] - self._connections[signal] for signal in now})
            print(
                f"  {now.total()} connections, more: "
                + ", ".join(f"{signal} +{n}" for signal, n in more.most_common(25)),
                flush=True,
            )
            self._connections = now
        if tracemalloc.is_tracing():
            self._tell_allocations()
        if self.done >= self._total:
            self._end()
        else:
            self._next(50)

    def _tell_allocations(self) -> None:
        now = tracemalloc.take_snapshot().filter_traces([tracemalloc.Filter(False, tracemalloc.__file__)])
        if self._allocations is None:
            self._allocations = now
            return
        for one in now.compare_to(self._allocations, "traceback")[:MOST_ALLOCATIONS]:
            where = " < ".join(f"{Path(frame.filename).name}:{frame.lineno}" for frame in reversed(one.traceback))
            print(f"  {one.size_diff / 2**20:+.2f} MiB, {one.count_diff:+} blocks: {where}", flush=True)

    def _tell(self) -> None:
        for problem in self.guards.problems[self._told :]:
            print(
                f"\nPROBLEM at action {self.done} of seed {self._arguments.seed}: {problem}\nThe last actions:",
                flush=True,
            )
        for number, action in self._last:
            print(f"  {number} {action.line()}")
        sys.stdout.flush()
        self._told = len(self.guards.problems)

    def _end(self) -> None:
        self.keep_open.over = True
        if len(self.guards.problems) > self._told:
            self._tell()
        self._log.close()
        for top in QApplication.topLevelWidgets():
            if top is not self._app.window and top.isVisible():
                top.close()
        self._app.leaving.unasked = True
        self._app.qt.quit()
        QTimer.singleShot(200, self._app.qt.quit)  # a menu's loop takes the first


def read(log: Path, folder: Path) -> list[Action]:
    """The actions of a log, for a run in this folder."""
    lines = (
        log.read_text(encoding="utf-8").replace(FOLDER, str(folder)).split("\n")
    )  # a text in it may have other line endings
    return [Action(*json.loads(line)) for line in lines if line]


def close_top() -> None:
    """Close the topmost menu or dialog, if there is one."""
    top = QApplication.activePopupWidget() or QApplication.activeModalWidget()
    if top is not None:
        top.close()


def main() -> int:
    """Run; returns 0 if nothing went wrong."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--actions", type=int, default=1000)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--pace", type=int, default=10, help="milliseconds between two actions")
    parser.add_argument("--go-on", action="store_true", help="count problems instead of ending at the first")
    parser.add_argument("--log", type=Path, help="write every action down")
    parser.add_argument("--replay", type=Path, help="do the actions of such a file again")
    parser.add_argument(
        "--most-mib", type=float, default=300.0, help="what the window may have in memory when everything is closed"
    )
    parser.add_argument(
        "--most-devices", type=int, default=MOST_DEVICES, help="the CPU among them; what the limit of memory is for"
    )
    parser.add_argument("--census", action="store_true", help="say what there is more of than at the start")
    parser.add_argument("--trace", action="store_true", help="say where Python's memory of that was allocated (slow)")
    parser.add_argument(
        "--tidy-every",
        type=int,
        default=TIDY_EVERY,
        help="actions between two looks at what is left when all is closed",
    )
    parser.add_argument("--settle", type=float, default=3.0, help="seconds in which more may come at the end")
    parser.add_argument("--inside", type=Path, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.inside is not None:
        return play(arguments, arguments.inside)
    return outside(arguments)


def outside(arguments: argparse.Namespace) -> int:
    """Start the monkey in a subprocess, which confines itself to a folder; return its result and remove the folder."""
    with tempfile.TemporaryDirectory(prefix="devexplorer-monkey-") as name:
        folder = Path(name)
        again = ["--replay", str(arguments.replay.absolute())] if arguments.replay is not None else []
        rest = [word for number, word in enumerate(sys.argv[1:]) if "--replay" not in sys.argv[number : number + 2]]
        code = subprocess.run(
            [sys.executable, "-X", "faulthandler", __file__, *rest, *again, "--inside", name], check=False
        ).returncode
        end = time.monotonic() + 5
        while (left := left_behind(folder)) and time.monotonic() < end:
            time.sleep(0.1)
        written = folder / ACTIONS
        if arguments.log is not None and written.exists():
            shutil.copy(written, arguments.log)
        if code < 0:
            print(f"problem: the window's process ended by {signal.Signals(-code).name}; the last actions:")
            print("\n".join(written.read_text().splitlines()[-LAST:]))
        if left:
            print(f"problem: processes left: {left}")
        return int(code != 0 or bool(left))


def play(arguments: argparse.Namespace, folder: Path) -> int:
    """Open the window, run the monkey, check what is left."""
    what = (
        f"seed {arguments.seed}, {arguments.actions} actions"
        if arguments.replay is None
        else f"{arguments.replay.name} again"
    )
    print(f"{what}, in {folder}: {enter(folder)}", flush=True)
    if arguments.trace:
        tracemalloc.start(8)
    gc.disable()  # as `open_window` does
    qt = QApplication(sys.argv[:1])
    qt.setApplicationName("devexplorer")
    app = App(qt, SettingsFile(folder / "config"), data_folder=folder)
    monkey = Monkey(app, arguments, folder)
    QTimer.singleShot(50, monkey.start)
    began = time.monotonic()
    code = application._run(app, "2x Tesla T4", python=None, guide=None, instead=None)
    seconds = time.monotonic() - began
    problems = [*monkey.guards.problems]
    if code:
        problems.append(f"exit code {code}")
    if monkey.done < monkey._total and not problems:
        problems.append(f"ended after {monkey.done} actions")
    if monkey.settled and monkey.settled[-1][1] > arguments.most_mib:
        problems.append(
            f"the window has {monkey.settled[-1][1]:.0f} MiB with everything closed, more than {arguments.most_mib:.0f}"
        )
    print(f"actions: {dict(monkey.counts.most_common())}")
    highest = max((sample.window_mib for sample in monkey.guards.samples), default=0.0)
    closed = f"{monkey.settled[-1][1]:.0f}" if monkey.settled else "?"
    print(
        f"seed {arguments.seed}: {monkey.done} actions in {seconds:.0f} s, {len(problems)} problems,"
        f" {monkey.guards.errors_seen} error lines (expected ones included), window {highest:.0f} MiB at most,"
        f" {closed} MiB with everything closed"
    )
    for problem in problems:
        print(f"problem: {problem.splitlines()[0]} … {problem.splitlines()[-1]}")
    return int(bool(problems))


if __name__ == "__main__":
    sys.exit(main())
