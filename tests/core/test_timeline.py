"""The mirrored ring against a plain deque, its views, its gaps, and a clock that was set back."""

from __future__ import annotations

import math
from collections import deque

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.telemetry.timeline import MAX_STEP_BACK_S, Timeline

readings = st.lists(
    st.tuples(st.floats(0, 3), st.one_of(st.floats(-1e12, 1e12), st.just(math.nan))), max_size=60
)  # steps forward in time, values


@given(st.integers(1, 9), readings, st.floats(-1, 200))
def test_it_holds_what_a_bounded_deque_holds(capacity: int, steps: list[tuple[float, float]], asked: float) -> None:
    timeline, plain = Timeline(capacity), deque[tuple[float, float]](maxlen=capacity)
    now = 0.0
    for step, value in steps:
        now += step
        timeline.append(now, value)
        plain.append((now, value))
        times, values = timeline.window()
        np.testing.assert_array_equal(times, [time for time, _ in plain])
        np.testing.assert_array_equal(values, [value for _, value in plain])
    assert len(timeline) == len(plain)
    np.testing.assert_equal(timeline.latest, plain[-1][1] if plain else math.nan)
    earlier = [value for time, value in plain if time <= asked]
    np.testing.assert_equal(timeline.value_at(asked), earlier[-1] if earlier else math.nan)


def test_a_window_is_a_view_that_nobody_can_write_to() -> None:
    timeline = Timeline(4)
    for second in range(7):
        timeline.append(second, second * 10)
    times, values = timeline.window()
    assert times.base is not None
    assert values.base is not None
    assert times.flags.c_contiguous
    assert np.shares_memory(times, timeline.window()[0])
    with pytest.raises(ValueError, match="read-only"):
        values[0] = 1.0


def test_an_empty_one_answers_nan() -> None:
    timeline = Timeline(3)
    assert len(timeline) == 0
    assert math.isnan(timeline.latest)
    assert math.isnan(timeline.value_at(0.0))
    times, values = timeline.window()
    assert times.shape == values.shape == (0,)


def test_slightly_out_of_order_is_taken_as_simultaneous() -> None:
    timeline = Timeline(8)
    timeline.append(100.0, 1.0)
    timeline.append(99.9, 2.0)
    assert timeline.window()[0].tolist() == [100.0, 100.0]
    assert timeline.value_at(100.0) == 2.0


def test_a_clock_that_was_set_back_starts_anew() -> None:
    timeline = Timeline(8)
    timeline.append(5000.0, 1.0)
    timeline.append(5000.0 - MAX_STEP_BACK_S - 1, 2.0)
    assert len(timeline) == 1
    assert timeline.latest == 2.0


def test_its_memory_is_fixed_from_the_start() -> None:
    timeline = Timeline(100)
    base = timeline.window()[0].base
    for second in range(1000):
        timeline.append(second, 0.0)
    assert timeline.window()[0].base is base
    assert len(timeline) == timeline.capacity == 100


@pytest.mark.parametrize("capacity", [0, -1])
def test_it_holds_at_least_one(capacity: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        Timeline(capacity)
