"""How often the window beats: quickly while something happens, seldom while there are only readings."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from PySide6.QtWidgets import QApplication

from devexplorer.core.records import DeviceSample, Event, JobEnded, JobStarted
from devexplorer.core.session.session import PollResult
from devexplorer.core.session.state import Change, State
from devexplorer.gui.shell.heartbeat import BEAT_MS, CALM_AFTER_S, CALM_MS, HIDDEN_MS, Heartbeat


class Beaten:
    """A heart beaten by hand, with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.events = 100.0, list[Event]()
        self.heart = Heartbeat(self, State(), self, monotonic=lambda: self.now)

    def drain(self) -> PollResult:
        events, self.events = self.events, []
        return PollResult(events, None)

    def refresh(self, changes: Change, now_unix_s: float) -> None:
        pass

    def refresh_texts(self) -> None:
        pass

    def after(self, seconds: float, *events: Event) -> int:
        """The pause after a beat that finds these events."""
        self.now += seconds
        self.events += events
        self.heart.tick()
        return self.heart.pause_ms


@pytest.fixture
def beaten(qapp: QApplication) -> Iterator[Beaten]:
    beaten = Beaten()
    beaten.heart.start()
    yield beaten
    beaten.heart.stop()


def reading(time_unix_s: float) -> DeviceSample:
    return DeviceSample(device="cpu", time_unix_s=time_unix_s)


def test_readings_alone_need_no_more_beats_than_there_are_readings(beaten: Beaten) -> None:
    assert beaten.after(0.1, JobStarted(request=1, title="move", time_unix_s=1.0)) == BEAT_MS
    assert beaten.after(CALM_AFTER_S + 1, reading(1.0)) == BEAT_MS, "it is under way"
    assert beaten.after(0.1, JobEnded(request=1, ok=True, time_unix_s=2.0)) == BEAT_MS
    assert beaten.after(CALM_AFTER_S / 2, reading(2.0)) == BEAT_MS
    assert beaten.after(CALM_AFTER_S, reading(3.0)) == CALM_MS
    assert beaten.heart._timer.interval() == CALM_MS
    beaten.heart.stir()
    assert beaten.heart._timer.interval() == BEAT_MS


def test_a_hidden_window_beats_once_a_second_and_at_once_when_it_is_shown(beaten: Beaten) -> None:
    beaten.heart.set_hidden(True)
    assert beaten.after(0.1, JobStarted(request=1, title="move", time_unix_s=1.0)) == HIDDEN_MS
    assert beaten.heart._timer.interval() == HIDDEN_MS
    beaten.heart.set_hidden(False)
    assert beaten.heart._timer.interval() == BEAT_MS
