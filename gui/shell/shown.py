"""What is shown: one of the machines, or something in its place that is not live, as a recording. Main thread only.

There is one window and one `State` that it shows. When another machine is shown, or something in place of it, the
state's contents are put aside and that session goes on behind it, unseen; they are put back when it is shown again.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from devexplorer.core.session import Change, Machine, Settings, State
from devexplorer.core.session.poll import PollResult
from devexplorer.gui.shell.heartbeat import Heartbeat, Source
from devexplorer.gui.shell.main_window import MainWindow

if TYPE_CHECKING:
    from devexplorer.core.session.session import Session


class _Nothing:
    """In a window whose first machine is still being connected to."""

    def drain(self) -> PollResult:
        """Nothing happens."""
        return PollResult([], None, away="No machine is shown yet: nothing was started on this one.")


NOTHING = _Nothing()


class Shown:
    """`show` another machine; `show_instead`, then `back`. `session` is the one that commands go to."""

    def __init__(self, window: MainWindow, state: State, heart: Callable[[Source], Heartbeat]) -> None:
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
        session: Source = self.session or NOTHING
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
