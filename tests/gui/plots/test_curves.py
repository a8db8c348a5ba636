"""The data of a curve, its decimation, and the scale of the y axis."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.gui.plots.curves import (
    MEMORY_UNITS,
    THROUGHPUT_UNITS,
    YScale,
    corners,
    highest,
    pooled,
    thin,
    to_edges,
)

GIB = 1024.0**3


def test_thinning_keeps_peaks_gaps_and_the_newest_reading() -> None:
    times = np.arange(0.0, 10.0, 0.01)
    values = np.ones_like(times)
    values[333] = 50.0
    values[500:600] = np.nan
    values[-1] = 7.0

    thin_times, thin_values = thin(times, values, 0.5)

    assert len(thin_times) < 60
    assert np.nanmax(thin_values) == 50.0
    assert np.isnan(thin_values[(thin_times > 5.0) & (thin_times < 5.9)]).all()
    assert not np.isnan(thin_values[(thin_times < 4.9) | (thin_times > 6.0)]).any()
    assert (thin_times[-1], thin_values[-1]) == (times[-1], 7.0)


def test_one_missing_reading_does_not_blank_its_neighbours() -> None:
    times = np.array([0.0, 0.1, 0.2, 0.3])

    _, values = thin(times, np.array([1.0, np.nan, 3.0, 2.0]), bin_s=10)

    assert np.isnan(values).sum() == 2
    assert sorted(values[~np.isnan(values)]) == [1, 1, 2, 3]


@given(st.lists(st.floats(0, 1e12) | st.just(float("nan")), max_size=60), st.floats(0.05, 5))
def test_thinning_never_invents_a_value_and_stays_in_order(readings: list[float], bin_s: float) -> None:
    times, values = np.arange(len(readings)) * 0.1, np.array(readings, dtype=float)

    thin_times, thin_values = thin(times, values, bin_s)

    assert (np.diff(thin_times) >= 0).all()
    assert set(thin_values[~np.isnan(thin_values)]) <= set(readings)
    assert highest(thin_values) == highest(values)


def test_thinned_bins_do_not_depend_on_where_the_curve_starts() -> None:
    times = 1_800_000_000 + np.arange(0.0, 60.0, 0.05)
    values = np.random.default_rng(1).normal(10, 1, len(times))

    whole = thin(times, values, 0.7)
    later = thin(times[137:], values[137:], 0.7)

    tail = len(later[0]) - 2  # the first bin is cut
    np.testing.assert_array_equal(whole[0][-tail:], later[0][-tail:])
    np.testing.assert_array_equal(whole[1][-tail:], later[1][-tail:])


@pytest.mark.parametrize(
    ("needed", "unit", "last"),
    [(9.3 * GIB, "GiB", "12.5"), (0.4 * GIB, "MiB", "500"), (31.0 * 1024, "KiB", "40"), (79.0 * GIB, "GiB", "100")],
)
def test_memory_axes_have_one_unit_and_round_ticks(needed: float, unit: str, last: str) -> None:
    scale = YScale(MEMORY_UNITS)

    assert scale.fit(needed)

    assert scale.unit.name == unit
    assert scale.ticks[0] == (0.0, "0")
    assert scale.ticks[-1][1] == last
    assert scale.top >= needed


def test_an_axis_has_a_larger_unit_before_it_has_four_digits() -> None:
    scale = YScale(MEMORY_UNITS)
    for mib in range(100, 4000, 7):
        scale.set_top(mib * 1024.0**2)
        assert len(scale.ticks[-1][1].replace(".", "")) <= 3, f"{mib} MiB: {scale.ticks[-1][1]} {scale.unit.name}"


@given(st.floats(1e-7, 1e6))
def test_every_value_finds_a_scale_with_three_to_five_steps(value: float) -> None:
    scale = YScale(THROUGHPUT_UNITS)
    scale.set_top(value)

    assert scale.top >= value * 0.999
    assert 4 <= len(scale.ticks) <= 6
    assert scale.ticks[-1][0] == pytest.approx(scale.top)
    assert scale.ticks[-1][0] <= scale.top, "pyqtgraph leaves out the text of a tick beyond the end"


def test_a_scale_does_not_flicker_when_the_data_waver() -> None:
    scale = YScale(THROUGHPUT_UNITS)
    scale.fit(100.0)
    top = scale.top

    assert not scale.fit(90.0)
    assert not scale.fit(top / 1.12)
    assert scale.top == top
    assert scale.fit(20.0)
    assert scale.top < top / 3


def test_bins_reach_their_edges_and_a_lone_one_is_seen() -> None:
    times = np.array([5.0, 15.0, 25.0, 35.0, 45.0])
    nan = np.nan
    rows = np.array([[1.0, 2.0, nan, 4.0, nan], [3.0, 4.0, nan, 6.0, nan]])

    out_times, out_rows = to_edges(times, rows, half_s=5.0, last_s=38.0)

    assert out_times.tolist() == [0, 5, 15, 20, 25, 30, 35, 38, 45]
    np.testing.assert_array_equal(out_rows[0], [1, 1, 2, 2, nan, 4, 4, 4, nan])
    np.testing.assert_array_equal(out_rows[1], [3, 3, 4, 4, nan, 6, 6, 6, nan])


@pytest.mark.parametrize(
    ("values", "kept"),
    [
        ([], []),
        ([1], [0]),
        ([1, 1], [0, 1]),
        ([1, 1, 1, 1], [0, 3]),
        ([1, 1, 1, 2, 2, 2, 1], [0, 2, 3, 5, 6]),
        ([math.nan, math.nan, math.nan, 1, 1, 1], [0, 1, 2, 3, 5]),
    ],
)
def test_a_line_that_stays_level_is_drawn_in_one_piece(values: list[float], kept: list[int]) -> None:
    times, left = corners(np.arange(len(values), dtype=float), np.array(values, dtype=float))
    assert times.tolist() == kept
    assert np.array_equal(left, np.array(values, dtype=float)[kept], equal_nan=True)


def test_curves_that_are_stacked_stay_in_step() -> None:
    nan = np.nan
    times = np.array([0.1, 0.4, 1.1, 1.4, 1.6])
    values = np.array([[2.0, 4.0, nan, nan, 8.0], [1.0, nan, nan, nan, 3.0]])

    pooled_times, means = pooled(times, values, bin_s=1.0)

    np.testing.assert_allclose(pooled_times, [0.25, 1.25, 1.6])
    np.testing.assert_array_equal(means, [[3.0, nan, 8.0], [0.5, nan, 3.0]])
