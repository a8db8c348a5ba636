"""How often the window beats: quickly while something happens, seldom while there are only readings."""

from __future__ import annotations

import math
from collections.abc import Iterator

import pytest
from PySide6.QtCore import QPoint, QPointF, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Event, JobEnded, JobStarted
from devexplorer.core.session.session import PollResult
from devexplorer.core.session.state import Change, State
from devexplorer.gui.shell.heartbeat import BEAT_MS, CALM_AFTER_S, CALM_MS, HIDDEN_MS, STILL_MS, Heartbeat


class Beaten:
    """A heart beaten by hand, with a clock of its own."""

    def __init__(self) -> None:
        self.now, self.events, self.step_s = 100.0, list[Event](), 0.1
        self.more, self.texts = False, 0
        self.state = State()
        self.heart = Heartbeat(self, self.state, self, monotonic=lambda: self.now, step_s=lambda: self.step_s)

    def drain(self) -> PollResult:
        events, self.events = self.events, []
        return PollResult(events, None, more=self.more)

    def refresh(self, changes: Change, now_unix_s: float) -> None:
        pass

    def refresh_texts(self) -> None:
        self.texts += 1

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
    return DeviceSample(device="cpu", time_unix_s=time_unix_s, utilization_percent=time_unix_s)


CPU = DeviceInfo(id="cpu", kind="cpu", name="CPU", usable=True)
DETAILS = DeviceDetails(device="cpu", time_unix_s=4.0)


def test_readings_alone_are_shown_several_at_a_time(beaten: Beaten) -> None:
    assert beaten.after(0.1, JobStarted(request=1, title="move", time_unix_s=1.0)) == BEAT_MS
    assert beaten.after(CALM_AFTER_S + 1, reading(1.0)) == BEAT_MS, "it is under way"
    assert beaten.after(0.1, JobEnded(request=1, ok=True, time_unix_s=2.0)) == BEAT_MS
    assert beaten.after(CALM_AFTER_S / 2, reading(2.0)) == BEAT_MS
    assert beaten.after(CALM_AFTER_S, reading(3.0)) == CALM_MS
    assert beaten.heart._timer.interval() == CALM_MS
    assert beaten.after(CALM_MS / 1000, reading(4.0), DETAILS) == CALM_MS, "what is read seldom is a reading too"
    beaten.step_s = 0.3
    assert beaten.after(CALM_MS / 1000, reading(5.0)) == 300, "as often as the plots move"
    beaten.step_s = math.inf
    assert beaten.after(0.3, reading(6.0)) == STILL_MS
    assert beaten.heart._timer.interval() == STILL_MS
    beaten.heart.stir()
    assert beaten.heart._timer.interval() == BEAT_MS


def test_numbers_change_twice_a_second_and_once_while_there_are_only_readings(beaten: Beaten) -> None:
    beaten.step_s = 0.5

    def texts_of(beats: int, *events: Event) -> int:
        before = beaten.texts
        for _ in range(beats):
            beaten.after(0.5, *events)
        return beaten.texts - before

    beaten.after(CALM_AFTER_S + 1, JobStarted(request=1, title="move", time_unix_s=1.0))
    assert texts_of(6, reading(1.0)) == 6
    beaten.after(0.1, JobEnded(request=1, ok=True, time_unix_s=2.0))
    beaten.after(CALM_AFTER_S + 1, reading(2.0))
    assert texts_of(6, reading(3.0)) == 3
    beaten.heart.stir()
    assert texts_of(1, reading(4.0)) == 1, "at once when somebody is there"


def test_what_has_piled_up_is_caught_up_with_at_full_pace(beaten: Beaten) -> None:
    """With seventeen devices on a busy machine the curves were half a minute behind, and two beats a second kept them
    there."""
    assert beaten.after(CALM_AFTER_S + 1, reading(1.0)) == CALM_MS
    beaten.more = True
    assert beaten.after(0.2, reading(2.0)) == BEAT_MS
    beaten.more = False
    assert beaten.after(0.1, reading(3.0)) == CALM_MS, "it is done, and nothing has happened"


def test_every_reading_is_kept_however_seldom_they_are_shown(beaten: Beaten) -> None:
    beaten.state.set_catalog(Catalog((CPU,)))
    times = [round(100 + tick / 10, 1) for tick in range(60)]
    for first, second in zip(times[::2], times[1::2], strict=True):
        beaten.after(CALM_MS / 1000, reading(first), reading(second))
    assert beaten.heart.pause_ms == CALM_MS
    kept, values = beaten.state.devices["cpu"].history.readings("utilization_percent")
    assert (kept.tolist(), values.tolist()) == (times, times)


@pytest.mark.parametrize("touch", ["key", "click", "wheel", "move"])
def test_a_touch_of_the_window_brings_all_beats_back_at_once(beaten: Beaten, qtbot: QtBot, touch: str) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.show()
    beaten.heart.watch(window)
    assert beaten.after(CALM_AFTER_S + 1, reading(1.0)) == CALM_MS
    handle, here = window.windowHandle(), QPoint(5, 5)
    if touch == "key":
        QTest.keyClick(handle, Qt.Key.Key_Shift)
    elif touch == "click":
        QTest.mouseClick(handle, Qt.MouseButton.LeftButton, pos=here)
    elif touch == "wheel":
        QTest.wheelEvent(handle, QPointF(here), QPoint(0, 120))
    else:
        QTest.mouseMove(handle, here)
    assert beaten.heart._timer.interval() == BEAT_MS


def test_a_hidden_window_beats_once_a_second_and_at_once_when_it_is_shown(beaten: Beaten) -> None:
    beaten.heart.set_hidden(True)
    assert beaten.after(0.1, JobStarted(request=1, title="move", time_unix_s=1.0)) == HIDDEN_MS
    assert beaten.heart._timer.interval() == HIDDEN_MS
    beaten.heart.set_hidden(False)
    assert beaten.heart._timer.interval() == BEAT_MS
