"""The line at the bottom: the engine and versions, or a message in their place; what is being done (with cancel), what
Undo would do, the way to the session. What is being done is shown at the object or the device too. And what the window
says by itself (`News`): long work that has ended, the latest error. Main thread only."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Protocol

from PySide6.QtCore import QObject
from PySide6.QtWidgets import QApplication, QFrame, QProgressBar, QWidget

from devexplorer.core.base import Clock, bytes_text, count_text, left_text
from devexplorer.core.records import Command, Log
from devexplorer.core.session import (
    NOTHING_UNDER_WAY,
    Change,
    Job,
    Machine,
    Progress,
    Run,
    State,
    UnderWay,
    device_of,
    objects_of,
    verb_of,
)
from devexplorer.core.session.journal import LongJobs
from devexplorer.gui.actions import Controller, WindowContext, WindowWork
from devexplorer.gui.widgets import Banner, Role, ShrinkingLabel, hbox, holder, push_button, stack

SHOW_AFTER_S = 0.3
"""Work shorter than this comes and goes without progress."""


def under_way(state: State, now_unix_s: float) -> UnderWay:
    """Commands and benchmarks that have taken a moment already."""
    objects: dict[str, Progress] = {}
    devices: dict[str, Progress] = {}

    def put(command: Command, done: float | None, title: str, *where: str, part: str = "") -> None:
        progress = Progress(verb_of(command), done, title)
        objects.update((name, progress) for name in objects_of(command) if name in state.objects)
        owner, _, path = part.partition(":")
        if owner in objects:
            objects[owner] = progress._replace(part=path)
        devices.update((name, progress) for name in where if name in state.devices)

    for job in state.jobs.values():
        if job.command is None or now_unix_s - job.started_unix_s < SHOW_AFTER_S:
            continue
        run = state.runs.get(job.request)
        if run is None:
            put(job.command, job.done, job.title, device_of(job.command) or "", part=job.part)
        elif not run.ended:
            from devexplorer.core.benchmark.kind import devices_of  # loaded with the first run
            from devexplorer.core.session.running import done_share

            put(job.command, done_share(run, now_unix_s), job.title, *devices_of(run.spec))
    return UnderWay(objects, devices)


HEIGHT_PX, GAP_PX = 26, 20
LINK_PX, ENGINE_PX, JOB_PX, OTHER_PX = 260, 110, 200, 30
"""What the words keep where there is little room: those about versions and Undo give way first."""

KEPT_FOR_UNDO = (
    "So that Undo can restore them, removed objects are kept in host memory; values that a cast or an edit replaced are"
    " kept where they were. Beyond the limit the oldest changes can no longer be undone."
)


class ShowsProgress(Protocol):
    """A panel that shows long work at what it concerns."""

    def show_progress(self, work: UnderWay) -> None: ...


class StatusBar(QFrame):
    """Reads the state on `refresh`."""

    def __init__(
        self,
        controller: Controller,
        also: Sequence[ShowsProgress] = (),
        *,
        clock: Clock = time.time,
    ) -> None:
        """`also`: who else shows what is being worked on, told at each `refresh`."""
        super().__init__()
        self._also = also
        self.setObjectName("statusBar")
        self.setFixedHeight(HEIGHT_PX)
        self._state, self._controller, self._clock = controller.state, controller, clock
        self._then: Clock | None = None
        """Of a machine of which there is nothing newer: the moment up to which it is known."""
        self._as_of = ""
        self.engine = ShrinkingLabel(Role.LABEL, "dim", ENGINE_PX)
        self.start = push_button("Start engine", look="quiet")
        self.python = push_button("Python environment…", look="quiet", tip="Choose the Python that the engine runs in")
        for button in (self.start, self.python):
            button.setFont(self.engine.font())
            button.hide()
        self.versions = ShrinkingLabel(Role.LABEL, "dim", OTHER_PX)
        self.job = ShrinkingLabel(Role.LABEL, "soft", JOB_PX)
        self.progress = QProgressBar(textVisible=False)
        self.progress.setFixedWidth(120)
        self.progress.setRange(0, 1000)
        self.cancel = push_button("Cancel", self._cancel, look="quiet")
        self.cancel.setFont(self.engine.font())
        self.undo = ShrinkingLabel(Role.LABEL, "dim", OTHER_PX)
        self.undo.about = KEPT_FOR_UNDO
        self._shown_job: int | None = None
        self._under_way = NOTHING_UNDER_WAY
        """What the panels show."""
        self._old = False
        """What is shown is not of now."""
        self._work: WindowWork | None = None
        """What the window works on itself."""
        self._instead = ""
        self.machine = ShrinkingLabel(Role.LABEL, "soft", LINK_PX)
        self.machine.hide()
        left = (self.machine, self.engine, self.start, self.python, self.versions)
        right = (self.undo, self.job, self.progress, self.cancel)  # what has a button is never pushed aside
        self.session = push_button("Session", look="quiet", tip="What was done, as Python, and the log")
        self.session.setFont(self.engine.font())
        self.banner = Banner()
        self._left = stack(holder(hbox(*left, None, spacing=GAP_PX)), self.banner)
        self.banner.shown.connect(self._left.setCurrentIndex)
        self._row = hbox((self._left, 1), *right, self.session, spacing=GAP_PX, margins=(12, 0, 4, 0), parent=self)
        self.refresh()

    def add(self, widget: QWidget) -> None:
        """Put `widget` at the right, before what is always there."""
        self._row.insertWidget(self._row.indexOf(self.session), widget)

    def show_machine(
        self, machine: Machine | None, words: str = "", about: str = "", instead: str = "", age: str = ""
    ) -> None:
        """Which machine is shown, in words, with more `about` the link to it; None: this one. `instead`: what is said
        in place of how its engine is. `age`: how old what is shown is, where it is not of this moment."""
        if instead != self._instead:
            self._instead = instead
            self.refresh()
        self._old = machine is not None and machine.is_late
        self._then = machine.now if machine is not None and self._old else None
        self._as_of = f" as of {age}" if age and self._old else ""
        self.machine.say(words)
        if words:
            self.machine.set_full_text(words, about)

    def _now(self) -> float:
        return self._clock() if self._then is None else self._then()

    def show_work(self, work: WindowWork | None) -> None:
        """What the window works on itself; None: nothing any more."""
        self._work = work
        self.refresh()

    def refresh(self) -> None:
        """Show the state as it is now."""
        state = self._state
        work = under_way(state, self._now()) if state.jobs else NOTHING_UNDER_WAY
        if work != self._under_way:
            self._under_way = work
            for panel in self._also:
                panel.show_progress(work)
        ready = state.engine
        live = state.recording is None and not self._old
        self.engine.say(
            f"{'●' if live and ready is not None else '○'} {state.recording or self._instead or state.engine_words}"
        )
        for button in (self.start, self.python):
            button.setVisible(live and state.engine_words == "engine stopped")
        if ready is not None:
            cuda = f"CUDA {ready.cuda_version}" if ready.cuda_version else "no CUDA in this build"
            visible = "unset" if ready.cuda_visible_devices is None else f"“{ready.cuda_visible_devices}”"
            self.versions.about = f"CUDA_VISIBLE_DEVICES {visible}"
            self.versions.say(f"torch {ready.torch_version}, {cuda}", f"torch {ready.torch_version}")
        undo = state.undo
        limit = f" (limit {bytes_text(undo.budget_bytes)})" if undo.budget_bytes else ""
        kept = f" · {bytes_text(undo.kept_bytes)} kept for Undo{limit}" if undo.kept_bytes else ""
        self.undo.say(f"undo: {undo.title}{kept}" if undo.title else "")
        runs = state.active_runs
        job = next((job for job in state.jobs.values() if job.request not in state.runs), None)
        if job is not None and self._now() - job.started_unix_s < SHOW_AFTER_S:
            job = None
        self._shown_job = None if job is None else job.request
        busy = bool(runs) or self._work is not None
        ours = self._work is not None and job is None and not runs
        self.job.setVisible(job is not None or busy)
        self.cancel.setVisible(ours or ((job is not None or busy) and state.recording is None))  # what was, has ended
        self.progress.setVisible(job is not None or ours)
        if job is not None:
            self._show_job(job)
        elif runs:
            self._show_runs(runs)
        elif self._work is not None:
            self.job.say(self._work.title)
            self.cancel.setText("Cancel")
            self.progress.setRange(0, 1000)
            self.progress.setValue(int(self._work.done * 1000))

    def _cancel(self) -> None:
        if self._shown_job is not None:
            self._controller.cancel(self._shown_job)
        elif self._work is not None and not self._state.active_runs:
            self._work.cancel()
        else:
            self._controller.stop_benchmark()

    def _show_job(self, job: Job) -> None:
        elapsed = self._now() - job.started_unix_s
        left = ""
        if job.done is not None and job.done > 0.05 and elapsed > 1:
            left = f", {left_text(elapsed * (1 - job.done) / job.done)}{self._as_of}"
        self.job.say(f"{job.title}{left}")
        self.cancel.setText("Cancel")
        self.progress.setRange(0, 0 if job.done is None else 1000)
        if job.done is not None:
            self.progress.setValue(int(job.done * 1000))

    def _show_runs(self, runs: list[Run]) -> None:
        """Benchmarks have their curve and their tab for progress: here only where they run and how long they still
        take."""
        # Loaded with the first run: start-up does not wait for the kinds of benchmarks.
        from devexplorer.core.benchmark.kind import devices_of, kind_name, kind_of
        from devexplorer.core.session.running import time_left

        devices = {name for run in runs for name in devices_of(run.spec)}
        where = ", ".join(devices) if len(devices) == 1 else count_text(len(devices), "device")
        titles = {kind_of(run.spec).running or kind_name(run.spec) for run in runs}
        title = titles.pop() if len(titles) == 1 else "benchmarks"
        now = self._now()
        known = [left for left in (time_left(run, now) for run in runs) if left is not None]
        if len(known) == len(runs):
            left = f", {left_text(max(known))}{self._as_of}"
        else:
            left = ", warming up" if all(run.started_unix_s is None for run in runs) else ""
        self.job.say(f"{title} on {where}{left}")
        self.cancel.setText("Stop")


RECENT_S = 60.0
"""While a recording is shown, an older error is one of the recording: it is in the log, and is not announced
now."""


class News(QObject):
    """Follows the state, and says what is new in it."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context, self._state, self._banner = context, context.state, context.banner
        self.long_jobs = LongJobs(context.state)
        self._mentioned: Log | None = None
        """The error that the line in the status bar spoke of last."""
        context.follow(Change.JOBS | Change.ENGINE, self.jobs)
        context.follow(Change.LOG, self.log)
        context.machine_shown.connect(self._machine_shown)

    def jobs(self) -> None:
        """Commands began or ended."""
        if self._state.recording is None:
            ended = self.long_jobs.ended()
            if QApplication.activeWindow() is None:
                self._context.notifications.show(ended)

    def log(self) -> None:
        """There are lines in the log that were not there."""
        latest: Log | None = self._state.log[-1] if self._state.log else None
        if latest is None or latest is self._mentioned:
            return
        self._mentioned = latest
        if latest.level == "error" and (self._state.recording is None or time.time() - latest.time_unix_s < RECENT_S):
            self._banner.say((latest.text.splitlines() or ["Unknown error."])[0], error=True)

    def _machine_shown(self) -> None:
        """What is over on the machine that is shown now is no news."""
        self._mentioned = self._state.log[-1] if self._state.log else None
        self.long_jobs.forget()
