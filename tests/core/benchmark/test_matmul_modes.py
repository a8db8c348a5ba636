"""The three modes: live, burst, sustained."""

from __future__ import annotations

import pytest
from fakes.played_timer import PlayedTimer
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.benchmark.matmul import PARTS, Burst, Live, MatmulRun, MeasuredProduct, Sustained, warm_up
from devexplorer.core.records import MatmulResult, MatmulSpec

FLOP = 2 * 16**3
rates = st.floats(1e-6, 1.0)


def spec(**given: object) -> MatmulSpec:
    return MatmulSpec(**{"device": "cpu", "m": 16, "n": 16, "k": 16, "seconds": None, **given})  # type: ignore[arg-type]


def finished(mode: Live, most: int = 10_000) -> Live:
    for _ in range(most):
        if mode.step() is None:
            return mode
    raise AssertionError("it does not end")


def nothing() -> None:
    pass


# --- live


def test_a_slow_iteration_makes_a_block_of_its_own() -> None:
    timer = PlayedTimer([3.0])
    mode = finished(Live(spec(seconds=5.0), timer, nothing, 3.0))
    assert timer.lengths == [1, 1]
    assert (mode.blocks, mode.seconds, mode.done) == (2, 6.0, 1.0)


@given(each=rates, iterations=st.integers(1, 300))
def test_iterations_limit_every_mode_exactly(each: float, iterations: int) -> None:
    for kind in (Live, Burst):
        assert finished(kind(spec(iterations=iterations), PlayedTimer([each]), nothing, each)).iterations == iterations


@given(seconds=st.lists(rates, min_size=1, max_size=30), limit=st.floats(0.01, 2.0))
def test_a_run_has_its_seconds_and_never_more_than_one_block_beyond(seconds: list[float], limit: float) -> None:
    timer = PlayedTimer(seconds)
    mode = Live(spec(seconds=limit), timer, nothing, seconds[0])
    before = 0.0
    while mode.step() is not None:
        assert before < limit
        before = mode.spent
    assert mode.spent >= limit
    assert mode.done == 1.0
    assert sum(timer.lengths) == mode.iterations


def test_without_an_end_the_progress_is_unknown() -> None:
    assert Live(spec(), PlayedTimer([0.01]), nothing, 0.01).done is None


# --- burst


def test_burst_times_one_by_one_and_leaves_the_flush_out() -> None:
    flushed = []
    timer = PlayedTimer([0.001], flush_seconds=0.004)
    mode = Burst(spec(seconds=1.0), timer, nothing, 0.001, lambda: flushed.append(1))
    finished(mode)
    assert flushed
    assert timer.singles == len(timer.lengths)
    assert set(mode.samples.kept) == {0.001}
    assert timer.lengths[:2] == [1, 10], (
        "the first flush shows how long one takes; then 50 ms are ten iterations with theirs"
    )
    assert mode.spent == pytest.approx(5 * mode.seconds), (
        "what the flushes take is time of the run, but not of the products"
    )
    assert mode.spent == pytest.approx(1.0, abs=0.06)


def test_live_flushes_when_asked_to() -> None:
    flushed = []
    timer = PlayedTimer([0.001], flush_seconds=0.001)
    finished(Live(spec(seconds=0.1, flush_cache=True), timer, nothing, 0.001, lambda: flushed.append(1)))
    assert flushed
    assert timer.singles == len(timer.lengths)


# --- sustained


def test_the_window_begins_when_the_speed_is_steady() -> None:
    falling = [0.010 + 0.001 * step for step in range(20)]
    mode = Sustained(spec(seconds=60.0), PlayedTimer([*falling, 0.05]), nothing, 0.01)
    assert (mode.text, mode.done) == ("settling", None)
    finished(mode)
    assert set(mode.samples.kept) == {0.05}, "nothing of the time before"
    assert mode.seconds == pytest.approx(2.0)
    assert len(mode.parts_tflops()) == PARTS
    assert mode.parts_tflops() == pytest.approx([FLOP / 0.05 / 1e12] * PARTS)
    assert mode.drift() == pytest.approx(0.0)
    assert mode.done == 1.0


def test_time_left_can_be_told_from_what_is_done_also_after_a_long_settling() -> None:
    """The window (like the command line) computes the remaining time from the elapsed time and the progress."""
    falling = [0.010 * 1.1**step for step in range(30)]
    mode = Sustained(spec(seconds=60.0), PlayedTimer([*falling, 0.05]), nothing, 0.01)
    passed = before = 0.0
    left = []
    while (block := mode.step()) is not None:
        passed += block.spent
        if (done := mode.done) is not None:
            assert done >= before
            before = done
            left.append((passed * (1 - done) / done, 2.0 - mode.spent))
    assert passed > 4.0, "it took a while to settle"
    assert left
    for told, true in left:
        assert told == pytest.approx(max(true, 0.0), abs=0.1)


def test_what_is_never_steady_is_measured_when_its_time_is_up_and_the_drift_says_so() -> None:
    falling = [0.01 * 1.02**step for step in range(500)]
    mode = Sustained(spec(seconds=6.0), PlayedTimer(falling), nothing, 0.01)
    settled = 0.0
    while mode.text == "settling":
        assert mode.step() is not None
        settled = mode.spent or settled
    finished(mode)
    assert len(mode.parts_tflops()) == PARTS
    drift = mode.drift()
    assert drift is not None
    assert drift < -0.1


@given(each=st.floats(1e-5, 5.0), seconds=st.one_of(st.none(), st.floats(0.05, 20)))
def test_eight_parts_of_at_least_one_iteration(each: float, seconds: float | None) -> None:
    timer = PlayedTimer([each])
    mode = finished(Sustained(spec(seconds=seconds), timer, nothing, each))
    assert len(mode.parts_tflops()) == PARTS
    assert mode.iterations >= PARTS
    window = min(2.0, seconds or 2.0)
    assert mode.seconds >= window * (1 - 1e-6)
    assert mode.seconds <= window + PARTS * each + 1e-6, "no part is longer than it needs to be"


def test_a_stop_while_it_settles_keeps_what_there_is() -> None:
    run = MatmulRun(
        spec(mode="sustained", seconds=60.0),
        1,
        PlayedTimer([0.01]),
        make=lambda _: MeasuredProduct(nothing, lambda: True),
    )
    run.prepare()
    run.step()
    result = run.result(stopped=True)
    assert isinstance(result, MatmulResult)
    assert (result.blocks, result.parts_tflops, result.drift) == (1, (), None)


def test_iterations_end_the_window_early_with_the_parts_that_are_whole() -> None:
    mode = finished(Sustained(spec(seconds=2.0, iterations=60), PlayedTimer([0.01]), nothing, 0.01))
    assert mode.iterations == 60
    assert len(mode.parts_tflops()) == 2
    assert mode.drift() is None


# --- warm-up


@given(each=st.floats(1e-7, 2.0))
def test_warming_up_takes_its_time_or_one_iteration(each: float) -> None:
    timer = PlayedTimer([each])
    assert warm_up(timer, nothing, 0.2, 0.05) == pytest.approx(each)
    assert timer.now() >= 0.2
    assert timer.now() <= 0.2 + max(0.05, each) + each
