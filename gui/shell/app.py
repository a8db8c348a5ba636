"""The composition root. Read it top to bottom to see how the window comes up and goes down.

`open_window` makes the Qt application, then the parts that know nothing of each other: `State` (what the window knows),
`Session` (the engine process, the sampler, their one mailbox), `Controller` (what the user can do), `MainWindow` (what
the user sees). The window is shown first; only then is the session loaded and started, so that the window is there in a
fraction of a second. From then on the `Heartbeat` carries events from the session into the state and lets the window
redraw. Everything here runs on the main thread.

Going down belongs to `aboutToQuit`, because `app.exit()` reaches no `closeEvent`: the heartbeat stops, settings are
saved, the session ends engine and threads with a deadline. Nothing waits for a benchmark, a move or a driver. `Leaving`
sees that no work is lost: the user is asked, the system is not, and a crash leaves a copy.
"""

from __future__ import annotations

import gc
import os
import signal
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from pathlib import Path
from pkgutil import resolve_name
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import QMessageLogContext, QTimer, QtMsgType, qInstallMessageHandler
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.core.feature import named
from devexplorer.core.records import Command, Event, EventSink, Log
from devexplorer.core.session import Change, Machine, Settings, SettingsFile, State
from devexplorer.core.session.background import Background, install_hooks
from devexplorer.core.session.poll import PollResult
from devexplorer.gui.actions import Controller, WindowContext
from devexplorer.gui.shell.heartbeat import BEAT_MS, EventSource, Heartbeat
from devexplorer.gui.shell.main_window import MainWindow
from devexplorer.gui.widgets import after_paint, app_icon
from devexplorer.gui.widgets import theme as themes

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session
    from devexplorer.gui.shell.tour import Tour
    from devexplorer.gui.timelines.export import PlotExport
    from devexplorer.gui.timelines.slot import PlotSlot


LEAVE_SECONDS = 4.0
"""Deadline for the copy of unsaved work when the system ends the window."""


class Leaving:
    """`may_close` for the window, `leave` and `session_ends` for the system, `beat` after each beat."""

    def __init__(self, app: App) -> None:
        self._app = app
        self.unasked = False
        """Whether the window closes without a question: the system ends it, or the tour runs."""
        self._leave_by: float | None = None
        app.window.context.settings_changed.connect(self._save_settings)

    def _save_settings(self, settings: Settings) -> None:
        """At once: a window that crashes must not forget what was chosen in it."""
        app = self._app

        def written(problem: str | None) -> None:
            if problem is not None:
                app.window.say(problem)

        app.settings_file.keep(settings)
        app.background.ask("settings", app.settings_file.write, written)

    def beat(self) -> None:
        """End the window once the copy is made that it waits for."""
        if self._leave_by is None:
            return
        if time.monotonic() > self._leave_by or not self._app.window.context.work.copy():
            self._exit()

    def may_close(self) -> bool:
        """Whether nothing would be lost; else the user is asked."""
        context = self._app.window.context
        return self.unasked or (not context.others.keeps_open() and context.work.may_close())

    def leave(self) -> None:
        """The system ends the process: unsaved work gets a copy first, which the next start offers. A second time: at
        once."""
        again, self.unasked = self.unasked, True
        if not again and self._app.window.context.work.copy():
            self._leave_by = time.monotonic() + LEAVE_SECONDS
        else:
            self._exit()

    def _exit(self) -> None:
        """End in a turn of the event loop of its own: before the loop runs `exit` would do nothing, and a signal can
        come in the middle of anything, of a session that is being started, say."""
        QTimer.singleShot(0, self._app.qt, self._app.qt.exit)  # `App.stop` runs inside

    def session_ends(self) -> None:
        """The desktop's session ends, and closes the window soon."""
        self.unasked = True
        self._app.window.context.work.copy()

    def end(self) -> None:
        """The window ends; a copy stays where nobody could be asked."""
        self._app.window.context.work.end(unasked=self.unasked)


SIGNALS = [getattr(signal, name) for name in ("SIGINT", "SIGTERM", "SIGHUP") if hasattr(signal, name)]
"""By which the system, or a terminal that is closed, ends the window."""
CLOSE_SECONDS = 2.5
"""Deadline for ending engine and threads; what has not ended by then is left behind and dies with the process."""


class App:
    """All parts, wired. `show`, then `connect` a session; tests call `heartbeat.tick()` by hand."""

    def __init__(
        self, qt: QApplication, settings_file: SettingsFile, theme: str | None = None, data_folder: Path | None = None
    ) -> None:
        """`data_folder`: where features keep what they have; None: where the user's data are."""
        os.environ.setdefault("QT_NO_GUI_THREADPOOL", "1")  # waking threads takes longer than painting a curve
        self.qt, self.settings_file = qt, settings_file
        self.session: Session | None = None
        self.heartbeat: Heartbeat | None = None
        settings = settings_file.load()
        if settings_file.damage is not None and sys.stderr is not None:
            print(f"devexplorer: {settings_file.damage}", file=sys.stderr)  # and in the window, once that is shown
        chosen = themes.THEMES.get(theme or settings.theme) or themes.preferred()
        self.state = State()
        self.controller = Controller(
            self.state,
            self._send,
            selection=lambda: self.window.objects.selected_targets(),
            say=lambda text: self.window.hint(text),
        )
        themes.prepare(qt)
        themes.set_theme(chosen)
        self.window = MainWindow(self.state, self.controller, settings)
        # after all widgets have their parents: each would be styled again whenever it gets one
        themes.apply(qt, chosen)
        self.saving_failed: str | None = None
        self.stopped = False
        self.files: tuple[Path, ...] = ()
        """What the window was started with, until the engine can take it."""
        self.shown = Shown(self.window, self.state, self._heart)
        context = self.window.context
        context.shown, context.machine = self.shown, self.shown.here
        context.restart_requested.connect(self._restart_engine)
        context.tour_requested.connect(self.take_tour)
        self.window.hidden_changed.connect(self._set_hidden)
        self._data_folder = data_folder
        self.background = Background(self.put)
        context.in_background = self.background.ask
        context.settings_folder = settings_file.path.parent
        context.stirred.connect(self._stir)
        self.leaving = Leaving(self)
        self.window.may_close = self.leaving.may_close
        self._plot_export: PlotExport | None = None
        self.window.export_requested.connect(self._export)

    def _send(self, command: Command) -> int:
        session = self.shown.session
        assert session is not None, "nothing can be sent before the session's engine is ready"
        if self.window.context.others.takes(command):
            return 0
        self.window.context.work.make_way()
        self._stir()
        return session.send(command)

    def _stir(self) -> None:
        if self.heartbeat is not None:
            self.heartbeat.stir()

    def put(self, event: Event) -> None:
        """Let an event of the window's own arrive in what is shown. Any thread."""
        session = self.shown.session
        if session is not None:
            session.put(event)

    def remembered_python(self) -> str | None:
        """What was chosen for the engine of a window in this folder; None: nothing, or it is no longer there."""
        from devexplorer.core.base.chosen_python import current_folder, for_folder, is_there

        python = for_folder(self.window.context.settings.pythons, current_folder())
        if python is None or not named("pythons"):
            return None
        if not is_there(python):
            self.window.say(f"The Python that was chosen for this folder, {python}, is no longer there.", error=True)
            return None
        return python

    def show(self) -> None:
        """Show the window, as it is before anything is known."""
        self.window.show()
        warnings = [item for item in (self.settings_file.damage, self.settings_file.writable()) if item is not None]
        if warnings:
            self.window.say(" ".join(warnings))

    def connect(self, session: Session) -> Heartbeat:
        """Start the session and let the heart beat; returns it."""
        here = self.shown.here
        self.session = here.session = session
        session.data_folder = self._data_folder
        session.start()
        if self.shown.machine is here:
            self.window.context.set_session(session)
        self.shown.follow_all()
        return self._heart(session)

    def _heart(self, source: EventSource) -> Heartbeat:
        """The heartbeat; the first time it is made, and beats."""
        if self.heartbeat is None:
            self.heartbeat = Heartbeat(
                source,
                self.state,
                self.window,
                step_s=lambda: min(slot.plot.step_s for slot in self._slots()),
            )
            self.heartbeat.beaten.connect(self._beaten)
            self.heartbeat.watch(self.window)
            self.heartbeat.start()
        return self.heartbeat

    def _beaten(self) -> None:
        if self.files and (self.state.engine is not None or self.state.engine_words == "engine stopped"):
            self.window.context.files_chosen.emit(self.files)
            self.files = ()
        self.background.deliver()
        # also behind a recording that is shown; while nothing happens there is nothing to give way to
        if self.session is not None and self.heartbeat is not None and self.heartbeat.pause_ms == BEAT_MS:
            self.session.beat()
        self.leaving.beat()

    def _set_hidden(self, hidden: bool) -> None:
        if self.heartbeat is not None:
            self.heartbeat.set_hidden(hidden)
        if self.session is not None:  # also behind a recording that is shown
            self.session.set_hidden(hidden)

    def _restart_engine(self) -> None:
        if (session := self.shown.session) is not None:
            session.restart_engine()

    def _slots(self) -> Sequence[PlotSlot]:
        """All plots over time, also those that the layout does not show."""
        return (*self.window.slots, *self.window.workbench.stack_slots)

    def _export(self, picture: QWidget | None, kind: str) -> None:
        if self._plot_export is None:
            from devexplorer.gui.timelines.export import PlotExport  # loads QtSvg

            window = self.window
            self._plot_export = PlotExport(window.context, window.axis, self._slots, self.background.start)
        self._plot_export.ask(kind, picture)

    def take_tour(self) -> None:
        """Show the tour in this window."""
        from devexplorer.gui.shell.tour import Tour  # QtTest is for the tour alone

        self.leaving.unasked = True

        def ended(failed: str | None) -> None:
            self.leaving.unasked = False
            self.window.say(
                "The tour is over: the model was built, moved, measured and moved back." if failed is None else failed
            )
            tour.deleteLater()

        tour = Tour(self, None, ended)
        tour.start()

    def stop(self) -> None:
        """End everything; bounded by `CLOSE_SECONDS`."""
        self.stopped = True
        self.saving_failed = self.settings_file.save(self.window.settings())
        self.window.may_close = lambda: True  # nothing can be saved any more
        self.leaving.end()
        self.window.context.closed.emit()
        if self.heartbeat is not None:
            self.heartbeat.stop()
        until = time.monotonic() + CLOSE_SECONDS
        if self.session is not None:
            self.session.close(CLOSE_SECONDS)
        self.window.context.others.close(max(until - time.monotonic(), 0.1))
        self.background.join(max(until - time.monotonic(), 0.1))
        self.window.context.notifications.close()


def open_window(
    *,
    virtual_spec: str | None = None,
    python: str | None = None,
    theme: str | None = None,
    tour: bool = False,
    screenshots: Path | None = None,
    instead: tuple[str, str] | None = None,
    files: tuple[Path, ...] = (),
    away: bool = False,
    opens_on: tuple[Callable[[WindowContext], object], ...] = (),
    settings_file: SettingsFile | None = None,
) -> int:
    """Run the application until its window closes; returns the exit code. `python`: of the engine; `files`: opened
    in it; `away`: nothing is started on this machine; `instead`: what is shown in place of this machine, `opens_on`:
    what other options of features ask for (`WindowOption`)."""
    gc.disable()  # the heartbeat collects: a collection on a worker thread may destroy Qt objects there
    qt = QApplication.instance() or QApplication(sys.argv[:1])
    assert isinstance(qt, QApplication)
    qt.setApplicationName("devexplorer")
    qt.setDesktopFileName("devexplorer")  # the entry of `install-desktop`, by which a desktop knows the window
    qt.setWindowIcon(app_icon())
    app: App | None = None
    asked = False

    def leave(*_: object) -> None:
        nonlocal asked
        asked = True
        if app is not None:
            app.leaving.leave()

    for number in SIGNALS:
        if signal.getsignal(number) is not signal.SIG_IGN:  # as `nohup` starts a program
            signal.signal(number, leave)  # runs between two beats
    # The tour starts from the defaults and leaves the user's layout alone.
    with tempfile.TemporaryDirectory(prefix="devexplorer-") if tour else nullcontext() as scratch:
        settings = settings_file or SettingsFile(None if scratch is None else Path(scratch))
        app = App(qt, settings, theme, None if scratch is None else Path(scratch))
        app.files, app.window.context.virtual_spec = files, virtual_spec
        app.leaving.unasked = tour
        if asked:  # while it was being made
            app.leaving.leave()
        qt.commitDataRequest.connect(lambda _manager: app.leaving.session_ends())
        guide = _guide(app, screenshots) if tour else None
        code = _run(app, virtual_spec, python, guide, instead, opens_on, away=away)
    return code if guide is None else guide.report()


def _guide(app: App, screenshots: Path | None) -> Tour:
    from devexplorer.gui.shell.tour import Tour  # QtTest is for the tour alone

    app.window.resize(*Tour.SIZE_PX)
    return Tour(app, screenshots, lambda _failed: app.qt.quit())


def _run(
    app: App,
    virtual_spec: str | None,
    python: str | None,
    guide: Tour | None,
    instead: tuple[str, str] | None,
    opens_on: tuple[Callable[[WindowContext], object], ...] = (),
    *,
    away: bool = False,
) -> int:
    """From the first paint to the last join."""
    restore: list[Callable[[], None]] = []
    early: list[Event] = []
    failed: list[Exception] = []
    qInstallMessageHandler(_message_handler(early.append))

    def live() -> None:
        from devexplorer.core.session.session import Session  # psutil, NVML, process handling: loaded behind the window

        session = Session(virtual_spec=virtual_spec, python=python or app.remembered_python())
        app.connect(session)
        if guide is None:
            app.window.context.work.keep_copies(session)

    def begin() -> None:
        try:
            begin_or_fail()
        except Exception as error:  # Qt would print it, and leave a window that hears no signal
            failed.append(error)
            app.qt.exit(1)

    def begin_or_fail() -> None:
        if app.stopped:  # the window was closed in the round of the event loop that this timer fires in
            return
        app.shown.go_live = live
        if away:
            app.shown.follow_all()  # the heart beats, also for nothing
        elif instead is None:
            live()
        else:
            name, word = instead  # the session waits until the user asks for this machine
            resolve_name(f"devexplorer.gui.{name}")(app.window.context, word)
        for open_on in opens_on:
            open_on(app.window.context)
        restore.append(install_hooks(app.put))
        qInstallMessageHandler(_message_handler(app.put))
        for message in early:
            app.put(message)
        if guide is not None:
            guide.start()
        gc.freeze()  # what start-up made stays: no later collection has to look at it

    app.qt.aboutToQuit.connect(app.stop)
    app.show()
    after_paint(app.window, begin)
    code = app.qt.exec()
    qInstallMessageHandler(None)
    for undo in restore:
        undo()
    if failed:
        raise failed[0]
    if app.saving_failed is not None:
        print(f"devexplorer: {app.saving_failed}", file=sys.stderr)
    return code


def _message_handler(put: EventSink) -> Callable[[QtMsgType, QMessageLogContext, str], None]:
    """Qt's own warnings go to the log of the window."""

    def handle(kind: QtMsgType, _context: QMessageLogContext, text: str) -> None:
        level = "info" if kind in (QtMsgType.QtDebugMsg, QtMsgType.QtInfoMsg) else "warning"
        event: Event = Log(level=level, text=f"Qt: {text}", time_unix_s=time.time())
        put(event)

    return handle


# What is shown: one of the machines, or something in its place that is not live, as a recording. Main thread only.
#
# There is one window and one `State` that it shows. When another machine is shown, or something in place of it, the
# state's contents are put aside and that session goes on behind it, unseen; they are put back when it is shown again.


class _Nothing:
    """In a window whose first machine is still being connected to."""

    def drain(self) -> PollResult:
        """Nothing happens."""
        return PollResult([], None, away="No machine is shown yet: nothing was started on this one.")


NOTHING = _Nothing()


class Shown:
    """`show` another machine; `show_instead`, then `back`. `session` is the one that commands go to."""

    def __init__(self, window: MainWindow, state: State, heart: Callable[[EventSource], Heartbeat]) -> None:
        """`heart` gives the heartbeat, made with that source where there is none yet."""
        self._window, self._state, self._heart = window, state, heart
        self.go_live: Callable[[], None] = lambda: None
        """Starts the session of this machine, for a window that was opened on something else."""
        self.here = Machine()
        """This machine; without a session in a window that was opened on something else."""
        self.machines: tuple[Machine, ...] = (self.here,)
        """Every machine that goes on, shown or not."""
        self.machine = self.here
        """The one shown, or that something else hides."""
        self.instead: Any = None
        """What is shown in its place, which answers as a session does."""
        self._ended: Callable[[], None] = lambda: None
        window.context.settings_changed.connect(self._follow_settings)

    @property
    def live_state(self) -> State:
        """What is known about this machine, whether or not it is shown."""
        return self._state if self.machine is self.here and self.instead is None else self.here.aside

    @property
    def session(self) -> Session | None:
        """Of what is shown."""
        session: Session | None = self.machine.session if self.instead is None else self.instead
        return session

    def set_machines(self, machines: tuple[Machine, ...]) -> None:
        """These go on from now on; the one shown is among them."""
        for machine in machines:
            if machine not in self.machines:
                machine.aside.follow(self._state.settings)
        self.machines = machines
        self.follow_all()

    def show_instead(self, session: Any, words: str, ended: Callable[[], None]) -> None:
        """Show this in a state of its own, `words` until it says what it is; `ended` is called when it no longer is."""
        self._leave()
        self._state.exchange(State())
        self.instead, self._ended = session, ended
        self._state.recording = words
        self.follow_all()
        self.show_everything()

    def back(self) -> None:
        """Show the machine again."""
        if self.instead is not None:
            self._leave()
            self._bring_back()

    def show(self, machine: Machine) -> None:
        """Show this machine, in place of another or of something else."""
        if machine is self.machine:
            self.back()
            if machine.session is None:
                self.go_live()
            return
        self._leave()
        self.machine = machine
        self._bring_back()

    def _leave(self) -> None:
        """Put the machine aside, or end what is shown in its place."""
        if self.instead is not None:
            self.instead = None
            self._ended()
        else:
            self.machine.span_s = self._window.axis.span_s
            self._state.exchange(self.machine.aside)

    def _bring_back(self) -> None:
        machine = self.machine
        self._state.exchange(machine.aside)
        machine.aside = State()
        if machine.span_s is not None:
            self._window.axis.set_span(machine.span_s)
        if machine.session is None:
            self.go_live()
        self.follow_all()
        self._window.context.set_machine(machine)
        self.show_everything()

    def follow_all(self) -> None:
        """Let the heart beat for what is shown, and behind it for the others."""
        session: EventSource = self.session or NOTHING
        self._window.context.unseen = tuple(machine for machine in self.machines if machine is not self.machine)
        behind = tuple(
            (machine.session, machine.aside)
            for machine in self.machines
            if machine.session is not None and machine.session is not session
        )
        self._heart(session).show(session, self._now, behind)

    def _now(self) -> float:
        now: float = (self.instead or self.machine).now()
        return now

    def _follow_settings(self, settings: Settings) -> None:
        """What the user has chosen holds also for what is not shown."""
        for machine in self.machines:
            machine.aside.follow(settings)

    def show_everything(self) -> None:
        """Draw all anew."""
        self._window.axis.set_paused(False)
        self._window.axis.set_still(self.instead is not None)
        self._window.refresh(~Change.NOTHING, self._now())
        self._window.refresh_texts()
