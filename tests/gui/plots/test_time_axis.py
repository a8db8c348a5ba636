"""Live and paused time: spans, pan, zoom, ticks."""

from __future__ import annotations

from datetime import datetime

import pytest
from pytestqt.qtbot import QtBot

from devexplorer.gui.plots.time_axis import TimeAxis, clock_text, clock_ticks, live_ticks, span_text

NOW = datetime(2026, 11, 20, 10, 5, 3).timestamp()


def live_axis() -> TimeAxis:
    axis = TimeAxis()
    axis.advance(NOW)
    return axis


def test_a_live_axis_follows_the_clock_and_a_paused_one_stands_still(qtbot: QtBot) -> None:
    axis = live_axis()
    assert (axis.left_unix_s, axis.right_unix_s) == (NOW - 120, NOW)

    with qtbot.waitSignal(axis.changed):
        axis.set_paused(True)
    axis.advance(NOW + 30)
    assert axis.right_unix_s == NOW

    axis.set_paused(False)
    assert axis.right_unix_s == NOW + 30


def test_only_a_paused_axis_pans_and_zooms() -> None:
    axis = live_axis()
    axis.pan(-10)
    axis.zoom(0.5, -60)
    assert (axis.left_s, axis.right_s) == (-120, 0)

    axis.set_paused(True)
    axis.pan(-10)
    assert (axis.left_s, axis.right_s) == (-130, -10)
    axis.zoom(0.5, -70)
    assert (axis.left_s, axis.right_s) == (-100, -40)


def test_there_is_nothing_to_see_in_the_future() -> None:
    axis = live_axis()
    axis.set_paused(True)
    axis.pan(1000)
    assert axis.right_unix_s == NOW

    axis.advance(NOW + 5)
    axis.pan(1000)
    assert axis.right_unix_s == NOW + 5
    axis.zoom(2, axis.right_s)
    assert axis.right_unix_s <= NOW + 5


def test_the_cursor_stays_under_the_pointer_and_never_leaves_the_axis() -> None:
    axis = live_axis()
    axis.set_cursor(-110)
    axis.set_span(30)
    assert axis.cursor_s == -27.5, "where the pointer is there is another time now"
    axis.set_span(120)
    axis.set_paused(True)
    for factor, about in ((0.1, -110.0), (8.0, -110.0), (0.01, -1.0), (1e6, -60.0)):
        axis.zoom(factor, about)
        assert axis.cursor_s is not None
        assert axis.left_s <= axis.cursor_s <= axis.right_s
        assert (axis.cursor_s - axis.left_s) / axis.width_s == pytest.approx(10 / 120)
    axis.select(NOW - 50, NOW - 40)
    axis.show_selection()
    axis.pan(-500)
    axis.set_paused(False)
    assert axis.cursor_s == pytest.approx(-110)


def test_going_live_again_shows_the_chosen_span() -> None:
    axis = live_axis()
    axis.set_paused(True)
    axis.zoom(0.1, -50)
    axis.set_paused(False)
    assert (axis.left_s, axis.right_s) == (-120, 0)


def test_the_wheel_steps_through_the_spans() -> None:
    axis = live_axis()
    seen = []
    for step in (1, 1, 1, 1, 1, -1, -1, -1, -1, -1, -1):
        axis.step_span(step)
        seen.append(span_text(axis.width_s))
    assert seen == ["10 min", "1 h", "6 h", "24 h", "24 h", "6 h", "1 h", "10 min", "2 min", "30 s", "30 s"]


def test_live_ticks_count_back_from_now() -> None:
    assert [text for _, text in live_ticks(120.0)] == ["−120 s", "−90", "−60", "−30", "now"]
    assert [text for _, text in live_ticks(30.0)] == ["−30 s", "−20", "−10", "now"]
    assert [text for _, text in live_ticks(600.0)] == ["−10 min", "−8", "−6", "−4", "−2", "now"]
    assert [text for _, text in live_ticks(3600.0)] == ["−60 min", "−50", "−40", "−30", "−20", "−10", "now"]
    assert [text for _, text in live_ticks(86_400.0)] == ["−24 h", "−20", "−16", "−12", "−8", "−4", "now"]
    assert live_ticks(120.0)[0][0] == -120


def test_paused_ticks_are_round_clock_times_that_have_room() -> None:
    ticks = clock_ticks(-120, 0, NOW, most=7)

    assert [text for _, text in ticks] == ["10:03:30", "10:04:00", "10:04:30", "10:05:00"]
    assert ticks[-1][0] == -3
    assert len(clock_ticks(-3600, 0, NOW, most=7)) <= 7
    assert clock_ticks(-1, 0, NOW, most=7)[0][1] == "10:05:02.0"
    assert clock_text(NOW) == "10:05:03"


def test_the_cursor_stays_inside_what_is_shown(qtbot: QtBot) -> None:
    axis = live_axis()
    with qtbot.waitSignal(axis.cursor_moved):
        axis.set_cursor(-500)
    assert axis.cursor_s == -120
    with qtbot.assertNotEmitted(axis.cursor_moved):
        axis.set_cursor(-500)
    axis.set_cursor(None)
    assert axis.cursor_s is None
