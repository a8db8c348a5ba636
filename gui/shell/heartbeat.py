"""The one timer of the window: empties the mailbox, applies events to the state, lets the window redraw, collects
garbage. Main thread.

30 beats a second while something happens or somebody touches the window; while there are only readings 1, as
nvidia-smi and its kin have, or up to 5 where plots move so fast; 1 while the window is hidden. Texts change twice a
second, or once while there are only readings. Cyclic garbage is collected here and nowhere else: a collection on a
worker thread may destroy a Qt object there, which crashes Qt.
"""

from __future__ import annotations

import gc
import math
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Protocol

from PySide6.QtCore import QEvent, QObject, Qt, QTimer, Signal
from PySide6.QtGui import QInputEvent
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import Clock
from devexplorer.core.session import Change, State
from devexplorer.core.session.poll import PollResult, fill

if TYPE_CHECKING:
    from devexplorer.gui.shell.main_window import MainWindow

BEAT_MS, CALM_MS, STILL_MS, HIDDEN_MS = 33, 200, 1000, 1000
CALM_AFTER_S = 2.0
"""When nothing but readings came for so long, and nobody touched the window, a beat shows several of each device. It
costs as much as the painting that it leads to: what it runs has left the processor's caches since the last."""
READINGS = Change.SAMPLES | Change.DETAILS | Change.ALERTS
"""What watching changes by itself: nothing quick follows from it."""
NEWS = ~READINGS
"""The rest. Made once: arithmetic of flags is slow."""
TEXT_SECONDS = 0.45
"""A little less than half a second: a beat comes a little early now and then."""
CALM_TEXT_SECONDS = 0.95
"""While there are only readings. Drivers average them over as long, and nvidia-smi and its kin show them as often."""
YOUNG_GC_SECONDS = 1.0
MIDDLE_GC_SECONDS = 10.0
FULL_GC_SECONDS = 60.0
EVERYTHING = ~Change.NOTHING


class EventSource(Protocol):
    """Where events come from: the session, or a recording."""

    def drain(self) -> PollResult:
        """What happened since the last call."""


class Heartbeat(QObject):
    """`start()` in the application; tests call `tick()` by hand."""

    beaten = Signal()
    """After everything else of a beat."""

    def __init__(
        self,
        session: EventSource,
        state: State,
        view: MainWindow,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
        step_s: Callable[[], float] = lambda: math.inf,
    ) -> None:
        """`step_s`: how long it takes until something has moved so far that it is seen."""
        super().__init__()
        self._session, self._state, self._view = session, state, view
        self._behind: tuple[tuple[EventSource, State], ...] = ()
        self._clock, self._monotonic, self._step_s = clock, monotonic, step_s
        self._timer = QTimer(self, timerType=Qt.TimerType.PreciseTimer)
        self._timer.timeout.connect(self.tick)
        self._young_due = self._middle_due = self._full_due = self._stirred_s = 0.0
        self._texts_s = -math.inf
        self._hidden = False
        self._more = False
        """Whether the last beat left something for the next."""

    def start(self) -> None:
        """Begin to beat."""
        self._full_due = self._monotonic() + FULL_GC_SECONDS
        self._timer.start(BEAT_MS)

    def stop(self) -> None:
        """Beat no more."""
        self._timer.stop()

    def set_hidden(self, hidden: bool) -> None:
        """Beat slowly while the window is hidden."""
        self._hidden = hidden
        self.stir()

    def watch(self, window: QWidget) -> None:
        """Every key, click and movement in this window stirs."""
        window.winId()  # it has a handle then, where all of them arrive, and little else does
        window.windowHandle().installEventFilter(self)

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        if isinstance(event, QInputEvent):
            self.stir()
        return False

    def stir(self) -> None:
        """Something was asked for: beat quickly, so that the answer is seen at once."""
        self._stirred_s = self._monotonic()
        self._set_pace()

    @property
    def pause_ms(self) -> int:
        """What is left between two beats now."""
        if self._hidden:
            return HIDDEN_MS
        if self._more or self._monotonic() - self._stirred_s <= CALM_AFTER_S:
            return BEAT_MS
        return round(min(max(1000 * self._step_s(), CALM_MS), STILL_MS))

    def _set_pace(self) -> None:
        if self._timer.isActive() and self._timer.interval() != (pause_ms := self.pause_ms):
            self._timer.start(pause_ms)

    def show(self, session: EventSource, clock: Clock, behind: tuple[tuple[EventSource, State], ...] = ()) -> None:
        """From now on the window follows this one, by its clock. Those `behind` go on unseen, each in its own state."""
        self._session, self._clock, self._behind = session, clock, behind

    def tick(self) -> None:
        """One beat."""
        for session, unseen in self._behind:
            _take(session.drain(), unseen)
        state = self._state
        drained = self._session.drain()
        changes = _take(drained, state)
        now = self._monotonic()
        self._more = drained.more
        if changes & NEWS or state.jobs or state.active_runs or state.recording is not None:
            self.stir()
        else:
            self._set_pace()
        try:
            self._view.refresh(changes, self._clock())
            pause_s = TEXT_SECONDS if self.pause_ms == BEAT_MS else CALM_TEXT_SECONDS
            if now - self._texts_s >= pause_s or changes & EVERYTHING == EVERYTHING:
                self._texts_s = now
                self._view.refresh_texts()
        finally:
            self._collect(now)
        self.beaten.emit()

    def _collect(self, now: float) -> None:
        if now >= self._full_due and not self._state.active_runs and not self._state.jobs:
            self._full_due = now + FULL_GC_SECONDS
            gc.collect()
        elif now >= self._middle_due:
            self._middle_due = now + MIDDLE_GC_SECONDS
            gc.collect(1)
        elif now >= self._young_due:
            self._young_due = now + YOUNG_GC_SECONDS
            gc.collect(0)


def _take(drained: PollResult, state: State) -> Change:
    """Take what is new into the state."""
    changes = Change.NOTHING
    if drained.state is not None:
        if drained.continues:
            drained.state.go_on_from(state)
        changes |= state.exchange(drained.state)
    if drained.away != state.away:
        state.away = drained.away
        changes |= Change.ENGINE
    if drained.catalog is not None:
        changes |= state.set_catalog(drained.catalog)
    for past in drained.past:
        changes |= fill(state, past)
    last = Change.NOTHING
    for event in drained.events:
        try:
            if (change := state.apply(event)) is not last:  # most are readings, and to add them up takes longer
                changes |= change
                last = change
        except Exception:  # one bad event must not cost the others: say it as for any slot, and go on
            sys.excepthook(*sys.exc_info())
    return changes
