"""Histories against plain lists of readings: tiers, gaps, spans, and a clock set back."""

from __future__ import annotations

import math
import tracemalloc

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from devexplorer.core.records import AllocatorSample, DeviceSample
from devexplorer.core.telemetry.history import (
    BY_ID,
    DEVICE_METRICS,
    GAP_S,
    MAX_STEP_BACK_S,
    READINGS,
    TIERS,
    BinRing,
    History,
    device_row,
)
from devexplorer.core.telemetry.memory_breakdown import MemoryParts
from devexplorer.core.telemetry.metrics import METRICS, Metric

START = 1_800_000_000.0
POWER, HEAT = BY_ID["power_w"], BY_ID["temperature_c"]
value = st.one_of(st.none(), st.floats(-1e12, 1e12))
steps = st.lists(st.tuples(st.floats(0, 9), value, value), min_size=1, max_size=120)


def fed(history: History, rows: list[tuple[float, float | None, float | None]]) -> list[tuple[float, float, float]]:
    """Append rows of (step, power, temperature); returns them with times, NaN for None."""
    now, plain = START, []
    for step, power, heat in rows:
        now += step
        history.append(now, (power, heat))
        plain.append((now, math.nan if power is None else power, math.nan if heat is None else heat))
    return plain


def small(readings: int) -> History:
    return History((POWER, HEAT), gap_s=math.inf, readings=readings)


@given(st.integers(1, 30), steps)
def test_the_newest_readings_are_kept_as_they_came(
    capacity: int, rows: list[tuple[float, float | None, float | None]]
) -> None:
    history = small(capacity)
    plain = fed(history, rows)[-capacity:]
    assert len(history) == len(plain)
    for metric, place in (("power_w", 1), ("temperature_c", 2)):
        times, values = history.readings(metric)
        np.testing.assert_array_equal(times, [row[0] for row in plain])
        np.testing.assert_array_equal(values, [row[place] for row in plain])
        np.testing.assert_equal(history.latest(metric), plain[-1][place])


@given(st.integers(1, 30), steps)
@example(1, [(0.0, None, 0.0), (0.0, None, None)])
def test_bins_say_of_all_readings_what_the_readings_say(
    capacity: int, rows: list[tuple[float, float | None, float | None]]
) -> None:
    """However few readings are kept one by one, lowest, mean, highest and number of all of them stay right."""
    history = small(capacity)
    plain = np.array(fed(history, rows))
    for metric, place in (("power_w", 1), ("temperature_c", 2)):
        known = plain[~np.isnan(plain[:, place]), place]
        span = history.span(metric, START, START + 2000)
        assert span.readings == len(known)
        if not len(known):
            assert np.isnan((span.low, span.mean, span.high)).all()
            continue
        assert (span.low, span.high) == (known.min(), known.max())
        assert span.low <= span.mean <= span.high
        assert span.mean == pytest.approx(known.mean(), rel=1e-6, abs=1e-6 * np.abs(known).max())


@settings(max_examples=60)
@given(steps, st.sampled_from([0.0, 10.0, 25.0]))
def test_every_bin_is_in_order_and_a_gap_stays_a_gap(
    rows: list[tuple[float, float | None, float | None]], point_s: float
) -> None:
    history = small(1)
    plain = np.array(fed(history, rows))
    for metric, place in (("power_w", 1), ("temperature_c", 2)):
        window = history.window(metric, START - 100, START + 2000, point_s)
        if len(plain) == 1 or not len(window.times):
            continue
        assert (np.diff(window.times) > 0).all()
        known = ~np.isnan(window.mean)
        assert (window.low[known] <= window.mean[known]).all()
        assert (window.mean[known] <= window.high[known]).all()
        assert (np.isnan(window.low) == ~known).all()
        seconds = TIERS[0][0]
        read_in = {int(time // seconds) for time in plain[~np.isnan(plain[:, place]), 0]}
        if point_s == 0:
            assert {int(time // seconds) for time in window.times[known]} == read_in
        empty = set(range(min(read_in, default=0), max(read_in, default=-1))) - read_in
        assert len(window.times[~known]) >= bool(empty), "bins without a reading between others are not bridged"


def test_ten_minutes_are_readings_an_hour_and_a_day_are_bins() -> None:
    history = History()
    row = dict.fromkeys((metric.id for metric in DEVICE_METRICS), None)
    for tick in range(
        90 * 60
    ):  # an hour and a half, once a second: more readings than are kept would be ten times as many
        history.append(START + tick, [float(tick) if name == "power_w" else None for name in row])
    end = START + 90 * 60
    assert history.window("power_w", end - 600, end).seconds == 0
    slow = len(history.window("power_w", end - 3600, end).times)
    assert slow == 3601, "a slow source is kept one by one for longer"

    for tick in range(READINGS):
        history.append(end + tick / 10, [1.0 if name == "power_w" else None for name in row])
    end += READINGS / 10
    assert history.window("power_w", end - 600, end).seconds == 0
    hour, day = history.window("power_w", end - 3600, end), history.window("power_w", end - 86_400, end)
    assert (hour.seconds, day.seconds) == (5.0, 30.0)
    assert day.times[0] < START + 60
    assert history.window("power_w", end - 86_400, end, point_s=120).seconds == 120
    assert history.value_at("power_w", START + 95) == pytest.approx(104.5, abs=15), "the mean of its bin"
    assert history.seconds_at(START + 95) == 30.0
    assert history.seconds_at(end - 5) == 0.0


def test_a_day_ago_is_kept_and_older_is_not() -> None:
    history = small(10)
    for minute in range(26 * 60):
        history.append(START + 60 * minute, (float(minute), None))
    end = START + 26 * 3600
    window = history.window("power_w", START, end)
    assert end - window.times[0] == pytest.approx(86_400 + 600, abs=90)
    assert history.span("power_w", START, end).low >= 105


def test_where_a_pixel_is_wider_than_a_bin_bins_are_drawn_unless_a_slow_source_leaves_them_empty() -> None:
    fast, slow = small(100), small(100)
    for tick in range(80):
        fast.append(START + tick, (float(tick), None))
        slow.append(START + 20 * tick, (float(tick), None))
    assert fast.window("power_w", START, START + 80, point_s=4.9).seconds == 0
    assert fast.window("power_w", START, START + 80, point_s=5.1).seconds == 5.0
    assert fast.window("power_w", START, START + 80, point_s=31.0).seconds == 30.0
    assert slow.window("power_w", START, START + 1600, point_s=31.0).seconds == 0


def test_silence_is_a_gap_unless_readings_are_that_far_apart() -> None:
    history = History((POWER,))
    for second in (0.0, 0.1, 0.2, 60.0, 60.1):
        history.append(START + second, (7.0,))
    times, values = history.readings("power_w")
    assert np.isnan(values).tolist() == [False, False, False, True, False, False]
    assert START + 0.2 < times[3] < START + 0.2 + GAP_S
    assert math.isnan(history.value_at("power_w", START + 30))

    slow = History((POWER,))
    for number in range(5):
        slow.append(START + 20 * number, (7.0,))
    assert np.isnan(slow.readings("power_w")[1]).sum() == 1, "only the first: nobody could know yet"
    assert slow.value_at("power_w", START + 75) == 7.0


def test_a_gap_is_seen_in_every_tier() -> None:
    history = History((POWER,), readings=20)
    for tick in range(600):
        history.append(START + tick / 10, (5.0,))
    for tick in range(600):
        history.append(START + 300 + tick / 10, (6.0,))
    window = history.window("power_w", START, START + 360)
    assert window.seconds > 0
    missing = np.isnan(window.mean)
    inside = (window.times > START + 70) & (window.times < START + 290)
    assert missing[inside].all()
    assert not missing[window.times < START + 55].any()
    assert not missing[window.times > START + 310].any()


def test_a_quantity_takes_a_column_when_it_first_has_a_value() -> None:
    history = History()
    names = [metric.id for metric in DEVICE_METRICS]
    history.append(START, [1.0 if name == "power_w" else None for name in names])
    assert history.metrics == ("power_w",)
    history.append(START + 1, [2.0 if name in ("power_w", "temperature_c") else None for name in names])
    assert history.metrics == ("temperature_c", "power_w")
    assert np.isnan(history.readings("temperature_c")[1]).tolist() == [True, False]
    assert not history.has("fan_percent")
    assert len(history.window("fan_percent", START, START + 1).times) == 0
    assert history.span("fan_percent", START, START + 1).readings == 0


def test_slightly_out_of_order_is_simultaneous_and_a_clock_set_back_restarts() -> None:
    history = small(8)
    history.append(START + 100.0, (1.0, None))
    history.append(START + 99.9, (2.0, None))
    assert history.readings("power_w")[0].tolist() == [START + 100.0, START + 100.0]
    assert history.value_at("power_w", START + 100) == 2.0
    before = history.version
    history.append(START + 100 - MAX_STEP_BACK_S - 1, (3.0, None))
    assert history.readings("power_w")[1].tolist() == [3.0]
    assert history.span("power_w", START, START + 200).readings == 1
    assert history.version[0] != before[0]


def test_a_clock_that_jumps_years_ahead_costs_no_more_than_a_reading() -> None:
    history = small(4)
    for time_s in (START, START + 1e9, START + 1e9 + 1):
        history.append(time_s, (1.0, None))
    assert history.span("power_w", START + 1e9, START + 1e9 + 9).readings == 2


def test_an_empty_one_answers_nan() -> None:
    history = small(3)
    assert len(history) == 0
    assert math.isnan(history.latest("power_w"))
    assert math.isnan(history.value_at("power_w", START))
    assert math.isnan(history.latest_unix_s)
    assert history.span("power_w", 0, START).readings == 0
    assert len(history.window("power_w", 0, START).times) == 0
    assert len(history.table(("power_w",), 0, START).times) == 0


def test_a_table_is_a_copy() -> None:
    history = small(4)
    for tick in range(4):
        history.append(START + tick, (float(tick), 50.0))
    table = history.table(("temperature_c", "power_w", "fan_percent"), START + 1, START + 2)
    for tick in range(4):
        history.append(START + 10 + tick, (99.0, 99.0))
    assert table.times.tolist() == [START + 1, START + 2]
    assert table.mean[:, :2].tolist() == [[50.0, 1.0], [50.0, 2.0]]
    assert np.isnan(table.mean[:, 2]).all()


@pytest.mark.parametrize("readings", [0, -1])
def test_it_holds_at_least_one(readings: int) -> None:
    with pytest.raises(ValueError, match="at least one"):
        History(readings=readings)


def test_a_row_has_the_sample_the_parts_and_the_allocator() -> None:
    sample = DeviceSample(device="cuda:0", time_unix_s=1.0, memory_used_bytes=600, power_w=80.5)
    allocator = AllocatorSample(
        device="cuda:0", time_unix_s=1.0, allocated_bytes=150, reserved_bytes=200, largest_free_block_bytes=30
    )
    row = dict(
        zip(
            (metric.id for metric in DEVICE_METRICS),
            device_row(sample, MemoryParts(120, 30, 50, 100, 300, 400), allocator),
            strict=True,
        )
    )
    assert (row["memory_used_bytes"], row["power_w"], row["temperature_c"]) == (600, 80.5, None)
    assert (row["workspace_bytes"], row["cached_bytes"], row["other_processes_bytes"]) == (120, 50, 300)
    assert (row["allocated_bytes"], row["largest_free_block_bytes"]) == (150, 30)
    alone = device_row(sample, MemoryParts(None, None, None, None, 600, 400), None)
    assert len(alone) == len(DEVICE_METRICS)
    assert set(alone[len(METRICS) :]) == {None}, "nobody asked the allocator: the parts are not known"


def test_a_device_that_was_there_for_a_minute_takes_little_memory() -> None:
    """Sixty virtual GPUs that were added and removed took 2 MiB each, like devices after a day."""
    tracemalloc.start()
    try:
        before = tracemalloc.get_traced_memory()[0]
        histories = [History() for _ in range(3)]
        for history in histories:
            for tick in range(600):
                history.append(1_800_000_000 + tick / 10, [1.0] * len(DEVICE_METRICS))
        taken = (tracemalloc.get_traced_memory()[0] - before) / len(histories)
    finally:
        tracemalloc.stop()
    assert taken < 0.8 * 2**20
    assert [len(history) for history in histories] == [600] * 3


@pytest.mark.parametrize("readings", [256, 257, READINGS + 10])
def test_a_history_that_grew_has_what_one_of_full_size_has(readings: int) -> None:
    history = History((Metric("m", "m", ""),), gap_s=math.inf)
    times = [1_800_000_000 + 7 * tick for tick in range(readings)]
    for tick, time_s in enumerate(times):
        history.append(time_s, (float(tick),))
    there = min(readings, READINGS)
    kept, values = history.readings("m")
    assert kept.tolist() == times[-there:]
    assert values.tolist() == [float(tick) for tick in range(readings)][-there:]
    window = history.window("m", times[0], times[-1], 30.0)
    inside = window.times <= times[-1]
    assert np.nanmax(window.high) == readings - 1
    assert (np.diff(window.times) > 0).all()
    assert not np.isnan(window.mean[inside][1:]).any()


def test_readings_added_at_once_make_the_bins_that_they_make_one_by_one() -> None:
    random = np.random.default_rng(0)
    for jump_s in (0.0, 5000.0):  # as of a clock that was wrong when the machine started
        at_once, singly = BinRing(5.0, 40), BinRing(5.0, 40)
        at_once.add_columns(3)
        singly.add_columns(3)
        begin_s = 1000.0
        for _ in range(4):
            times = begin_s + np.cumsum(random.random(30) * 5)
            times[20:] += jump_s
            begin_s = float(times[-1])
            rows = np.where(random.random((30, 3)) < 0.2, np.nan, random.random((30, 3)))
            at_once.add(times, rows)
            for time_s, row in zip(times.tolist(), rows, strict=True):
                if time_s >= singly.end_s:
                    singly.move_to(time_s)
                singly.fold(row[np.newaxis])
        assert (at_once.begin, at_once.stop) == (singly.begin, singly.stop)
        cells = at_once.cells(np.arange(at_once.start, at_once.stop))
        other = singly.cells(np.arange(singly.start, singly.stop))
        for name in ("low", "mean", "high", "count"):
            np.testing.assert_allclose(getattr(at_once, name)[cells], getattr(singly, name)[other], rtol=1e-12)
