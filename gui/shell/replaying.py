"""What is shown: one of the machines, or a recording of some machine. Main thread only.

There is one window and one `State` that it shows. When a recording is opened, or another machine is shown, the state's
contents are put aside and that session goes on behind it, unseen; they are put back when it is shown again. A recording
that cannot be opened never takes the place of anything for long.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from devexplorer.core.base import BadInput
from devexplorer.core.session import Change, Machine, Settings, State
from devexplorer.core.session.poll import PollResult
from devexplorer.gui.plots.time_axis import SPANS_S
from devexplorer.gui.shell.heartbeat import Heartbeat, Source
from devexplorer.gui.shell.main_window import MainWindow

if TYPE_CHECKING:
    from devexplorer.core.machines.window.remote_session import RemoteSession
    from devexplorer.core.replay.session import ReplaySession
    from devexplorer.core.session.session import Session
    from devexplorer.gui.actions.context import RecentFile
    from devexplorer.gui.forms.far_side import CopiedFile
    from devexplorer.gui.recording.replay_bar import ReplayBar


class _Nothing:
    """In a window whose first machine is still being connected to."""

    def drain(self) -> PollResult:
        """Nothing happens."""
        return PollResult([], None, away="No machine is shown yet: nothing was started on this one.")


NOTHING = _Nothing()
RECORDED = "recorded"
"""What the line in the status bar is about that offers a recording."""


class Replaying:
    """`open` a recording, `back` to live, `show` another machine. `session` is the one that commands go to."""

    def __init__(self, window: MainWindow, state: State, heart: Callable[[Source], Heartbeat]) -> None:
        """`heart` gives the heartbeat, made with that source where there is none yet."""
        self._window, self._state, self._heart = window, state, heart
        self.go_live: Callable[[], None] = lambda: None
        """Starts the session of this machine, for a window that was opened on a recording."""
        self.here = Machine()
        """This machine; without a session in a window that was opened on something else."""
        self.machines: tuple[Machine, ...] = (self.here,)
        """Every machine that goes on, shown or not."""
        self.machine = self.here
        """The one shown, or that a recording hides."""
        self.replay: ReplaySession | None = None
        self._ended: list[ReplaySession] = []
        self._copy: CopiedFile | None = None
        """What is replayed, when it is a copy of another machine's file."""
        self._offered: RecentFile | None = None
        """The recording that was offered last."""
        self._fits = False
        """Whether the plots show as much time as the recording shown has."""
        window.context.settings_changed.connect(self._follow_settings)
        window.context.recording_stopped.connect(self._offer)
        window.banner.action_chosen.connect(self._open_offered)

    @cached_property
    def _bar(self) -> ReplayBar:
        """Made when the first recording is opened."""
        bar = self._window.replay_bar
        bar.back.clicked.connect(self.back)
        return bar

    @property
    def live_state(self) -> State:
        """What is known about this machine, whether or not it is shown."""
        return self.state_of(self.here)

    def state_of(self, machine: Machine) -> State:
        """What is known about a machine."""
        return self._state if machine is self.machine and self.replay is None else machine.aside

    @property
    def session(self) -> Session | RemoteSession | ReplaySession | None:
        """What is shown."""
        return self.replay if self.replay is not None else self.machine.session

    def set_machines(self, machines: tuple[Machine, ...]) -> None:
        """These go on from now on; the one shown is among them."""
        for machine in machines:
            if machine not in self.machines:
                machine.aside.follow(self._state.settings)
        self.machines = machines
        self.follow_all()

    def open(self, file: Path | CopiedFile) -> None:
        """Show a recording in place of what is shown; the bar says how far it is, and a line in the status bar why it
        cannot be. A copy is removed when it is closed."""
        from devexplorer.core.replay.session import ReplaySession  # when the first one is opened

        if isinstance(file, Path):
            path, copy, known_as = file, None, ""
            self._window.context.remember_file(file.absolute(), here=True)
        else:
            path, copy, known_as = file.path, file, file.name
        self._fits = False
        if self.replay is None:
            self._put_aside()
        else:
            self._end()
        self._state.exchange(State())
        self.replay = ReplaySession(path, self._state.settings, known_as=known_as)
        self._copy = copy
        self._state.recording = f"opening {known_as or path.name}"
        self.follow_all()
        self.replay.start()
        self._show_everything()
        self._bar.replay = self.replay
        self._bar.show_view(self.replay.view)
        self._bar.show()
        self._bar.slider.setFocus()

    def follow(self) -> None:
        """After every beat: let the bar show where the replay is."""
        if self.replay is None:
            return
        view = self.replay.view
        if view.failed is not None:
            self.back()
            self._window.say(f"{view.failed[:1].upper()}{view.failed[1:]}.", error=True)
            return
        if view.opened and not self._fits:
            self._fits = True
            self._window.axis.set_span(next((span for span in SPANS_S if span * 1000 >= view.length_ms), SPANS_S[-1]))
        self._bar.show_view(view)

    def back(self) -> None:
        """Close the recording and show the machine again."""
        if self.replay is None:
            return
        self._end()
        self._bar.hide()
        self._bring_back()

    def show(self, machine: Machine) -> None:
        """Show this machine, in place of another or of a recording."""
        if machine is self.machine:
            self.back()
            if machine.session is None:
                self.go_live()
            return
        if self.replay is None:
            self._put_aside()
        else:
            self._end()
            self._bar.hide()
        self.machine = machine
        self._bring_back()

    def _put_aside(self) -> None:
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
        self._show_everything()

    def follow_all(self) -> None:
        """Let the heart beat for what is shown, and behind it for the others."""
        session: Source = self.session or NOTHING
        self._window.context.unseen = tuple(machine for machine in self.machines if machine is not self.machine)
        behind = tuple(
            (machine.session, machine.aside)
            for machine in self.machines
            if machine.session is not None and machine.session is not session
        )
        clock = self.replay.now if self.replay is not None else self.machine.now
        self._heart(session).show(session, clock, behind)

    def record(self, path: Path, *, overwrite: bool = False) -> None:
        """Record the machine shown from now on; a line in the status bar says why that cannot be."""
        if self.machine.session is None:
            self._window.say("This machine is not watched yet: go back to live first, then record.", error=True)
            return
        try:
            self.machine.session.start_recording(path, overwrite=overwrite)
        except BadInput as error:
            self._window.say(f"{str(error)[:1].upper()}{str(error)[1:]}.", error=True)

    def close(self, deadline_s: float) -> None:
        """End the threads of every recording that was opened."""
        if self.replay is not None:
            self._end()
        until = time.monotonic() + deadline_s
        for replay in self._ended:
            replay.close(max(until - time.monotonic(), 0.0))

    def _end(self) -> None:
        """Does not wait for its thread; recordings whose thread has ended are released, with the hundreds of megabytes
        that they may hold."""
        assert self.replay is not None
        self._bar.replay = None
        self._ended = [replay for replay in (*self._ended, self.replay) if not replay.close(0.0)]
        self.replay = None
        if self._copy is not None:
            self._copy.remove()
            self._copy = None

    def _offer(self, path: Path) -> None:
        """Say where the recording is, and offer to open it."""
        where = "" if self.machine.is_here else f" on {self.machine.name}"
        path = path if where else path.absolute()
        self._window.context.remember_file(path)
        self._offered = self._window.context.recent_files[0]
        self._window.banner.say(f"Recorded to {path.name}{where}.", passing=True, about=RECORDED, action="Open")

    def _open_offered(self, about: str) -> None:
        if about == RECORDED and self._offered is not None:
            self._window.banner.clear()
            if self._offered.machine:
                self._window.recent.open(self._offered)
            else:
                self.open(self._offered.path)

    def _follow_settings(self, settings: Settings) -> None:
        """What the user has chosen is neither the recording's nor the machine's: it holds everywhere."""
        if self.replay is not None:
            self.replay.settings = settings
        for machine in self.machines:
            self.state_of(machine).follow(settings)

    def _show_everything(self) -> None:
        self._window.axis.set_paused(False)
        self._window.axis.set_still(self.replay is not None)
        now = self.replay.now() if self.replay is not None else self.machine.now()
        self._window.refresh(~Change.NOTHING, now)
        self._window.refresh_texts()
