"""The difference of two runs, by its properties: invariances, sensitivity, and false positives on pure noise."""

from __future__ import annotations

import math
from collections.abc import Callable

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from devexplorer.core.benchmark.statistics import (
    noise,
)
from devexplorer.core.history.compare import (
    ALPHA,
    Difference,
    DifferenceVerdict,
    adjusted,
    difference,
    difference_of_spreads,
    parts,
    range_over_median,
    verdict,
)
from devexplorer.core.records import Spread

FIGURE = st.floats(1e-3, 1e6)
RUN = st.lists(FIGURE, min_size=1, max_size=60)
LONG_RUN = st.lists(FIGURE, min_size=4, max_size=60)
FACTOR = st.sampled_from([2.0**power for power in range(-8, 9)])
"""Powers of two: scaling by them is exact, so that ties stay ties."""
quick = settings(max_examples=60, deadline=None)


def test_parts_are_consecutive_and_of_even_length() -> None:
    assert parts([float(value) for value in range(80)]).tolist() == [4.5 + 10 * number for number in range(8)]
    assert parts([3.0, 1.0, 2.0]).tolist() == [3.0, 1.0, 2.0]


def test_reruns_lie_as_far_apart_as_the_largest_and_the_smallest() -> None:
    assert range_over_median([98.0, 100.0, 103.0]) == pytest.approx(0.05)
    assert range_over_median([5.0]) is None


# --- two runs


@given(LONG_RUN, LONG_RUN)
@quick
def test_exchanging_the_runs_turns_the_ratio_round(a: list[float], b: list[float]) -> None:
    there, back = difference(a, b), difference(b, a)
    assert there.ratio * back.ratio == pytest.approx(1)
    assert there.p_value == pytest.approx(back.p_value)
    assert there.low is not None
    assert back.high is not None
    assert there.low * back.high == pytest.approx(1)


@given(LONG_RUN, LONG_RUN, FACTOR)
@quick
def test_another_unit_changes_nothing(a: list[float], b: list[float], factor: float) -> None:
    assert difference([value * factor for value in a], [value * factor for value in b]) == pytest.approx(
        difference(a, b)
    )


@given(LONG_RUN)
@quick
def test_a_run_does_not_differ_from_itself(run: list[float]) -> None:
    found = difference(run, run)
    assert found.ratio == 1
    assert found.p_value == 1
    assert verdict(found, (noise(run), noise(run))) is DifferenceVerdict.NO_DIFFERENCE


@given(LONG_RUN, LONG_RUN, FACTOR)
@quick
def test_a_faster_second_run_is_faster_in_every_figure(a: list[float], b: list[float], factor: float) -> None:
    assume(factor > 1)
    slow, fast = difference(a, b), difference(a, [value * factor for value in b])
    assert fast.ratio > slow.ratio
    assert slow.low is not None
    assert slow.high is not None
    assert fast.low is not None
    assert fast.high is not None
    assert fast.low >= slow.low
    assert fast.high >= slow.high


@given(st.integers(0, 2**32 - 1), st.floats(1.0, 1.2), st.floats(1.0, 1.2))
@quick
def test_the_further_apart_the_less_chance_explains(seed: int, near: float, further: float) -> None:
    generator = np.random.default_rng(seed)
    a, b = generator.normal(100, 2, (2, 80))
    b *= a.max() / b.min() if np.median(parts(b.tolist())) < np.median(parts(a.tolist())) else 1.0
    assume(np.median(parts(b.tolist())) >= np.median(parts(a.tolist())))
    closer, wider = difference(a.tolist(), (b * near).tolist()), difference(a.tolist(), (b * near * further).tolist())
    assert closer.p_value is not None
    assert wider.p_value is not None
    direction = sum(y > x for x in parts(a.tolist()) for y in parts((b * near).tolist())) >= 32
    assert not direction or wider.p_value <= closer.p_value + 1e-12


@given(LONG_RUN, LONG_RUN)
@quick
def test_figures_are_within_their_bounds(a: list[float], b: list[float]) -> None:
    found = difference(a, b)
    assert found.p_value is not None
    assert found.low is not None
    assert found.high is not None
    assert 0 < found.p_value <= 1
    assert 0 < found.low <= found.ratio <= found.high < math.inf


def test_eight_against_eight_that_do_not_mix_is_two_of_all_ways() -> None:
    found = difference([float(value) for value in range(1, 9)], [float(value) for value in range(11, 19)])
    assert found.p_value == pytest.approx(2 / math.comb(16, 8))


def test_the_p_value_is_that_of_the_published_table() -> None:
    """Mann and Whitney 1947, table I: for 4 and 4 values U ≤ 1 has the probability 0.029 (one-sided)."""
    found = difference([1.0, 2.0, 3.0, 5.0], [4.0, 6.0, 7.0, 8.0])
    assert found.p_value == pytest.approx(2 * 0.0286, abs=0.001)


@pytest.mark.parametrize("count", [1, 2, 3])
def test_too_few_samples_say_so(count: int) -> None:
    found = difference([1.0] * count, [2.0] * 8)
    assert (found.ratio, found.low, found.high, found.p_value) == (2.0, None, None, None)
    assert verdict(found, (None, None)) is DifferenceVerdict.UNKNOWN


@pytest.mark.parametrize("wrong", [[], [0.0], [-1.0], [math.nan], [math.inf]])
def test_what_is_no_sample_is_refused(wrong: list[float]) -> None:
    with pytest.raises(ValueError, match="positive samples"):
        difference(wrong, [1.0] * 4)


def independent(generator: np.random.Generator, count: int) -> np.ndarray:
    return generator.normal(0, 1, count)


def resembling(generator: np.random.Generator, count: int) -> np.ndarray:
    """Autocorrelated samples (0.7), as from a warming card or another process."""
    values = np.zeros(count)
    for place, new in enumerate(generator.normal(0, 1, count)):
        values[place] = (0.7 * values[place - 1] if place else 0.0) + new
    return values


def spikes(generator: np.random.Generator, count: int) -> np.ndarray:
    """Mostly quiet with one outlier in ten, as with interrupts."""
    return generator.normal(0, 0.2, count) - 8.0 * (generator.random(count) < 0.1)


Noise = Callable[[np.random.Generator, int], np.ndarray]


@pytest.mark.parametrize("kind", [independent, resembling, spikes])
def test_noise_alone_is_called_a_difference_no_more_often_than_promised(kind: Noise) -> None:
    generator, rounds = np.random.default_rng(3), 400
    wrong = missed = 0
    for _ in range(rounds):
        a, b = (np.exp(0.01 * kind(generator, 200)) for _ in range(2))
        found = difference(a.tolist(), b.tolist())
        assert found.p_value is not None
        assert found.low is not None
        assert found.high is not None
        wrong += found.p_value < ALPHA
        missed += not found.low <= 1 <= found.high
    most = 0.05 if kind is not resembling else 0.08  # what is left of the resemblance between the parts
    deviation = math.sqrt(most * (1 - most) / rounds)
    assert wrong / rounds <= most + 3 * deviation
    assert missed / rounds <= most + 3 * deviation
    assert wrong > 0, "a test that never finds anything cannot be wrong"


def test_counting_resembling_samples_one_by_one_would_be_wrong_far_more_often() -> None:
    """Why parts are used: the normal approximation of the same test, on the samples themselves."""
    generator, rounds, wrong = np.random.default_rng(4), 200, 0
    for _ in range(rounds):
        both = np.concatenate([resembling(generator, 200), resembling(generator, 200)])
        ranks = both.argsort().argsort() + 1
        deviation = math.sqrt(200 * 200 * 401 / 12)
        wrong += abs(ranks[:200].sum() - 200 * 401 / 2) / deviation > 1.96
    assert wrong / rounds > 0.25


def test_a_real_difference_is_found() -> None:
    generator, found = np.random.default_rng(5), 0
    for _ in range(50):
        a, b = np.exp(0.01 * generator.normal(0, 1, (2, 200)))
        found += verdict(difference(a.tolist(), (b * 1.03).tolist()), (0.0135, 0.0135)) is DifferenceVerdict.CLEAR
    assert found == 50


# --- several comparisons


@given(st.lists(st.floats(0, 1), min_size=1, max_size=12), st.randoms(use_true_random=False))
@quick
def test_holm_keeps_the_order_and_never_helps(p_values: list[float], random: object) -> None:
    found = adjusted(p_values)
    assert all(p <= q <= 1 for p, q in zip(p_values, found, strict=True))
    assert all(found[a] <= found[b] for a in range(len(found)) for b in range(len(found)) if p_values[a] < p_values[b])
    places = list(range(len(p_values)))
    random.shuffle(places)  # type: ignore[attr-defined]
    assert adjusted([p_values[place] for place in places]) == pytest.approx([found[place] for place in places])


def test_holm_of_a_known_case() -> None:
    assert adjusted([0.01, 0.04, 0.03]) == pytest.approx((0.03, 0.06, 0.06))
    assert adjusted([]) == ()


# --- spreads only


def test_without_samples_the_middles_of_both_runs_are_laid_beside_each_other() -> None:
    near, far = Spread(median=100, p20=99, p80=101), Spread(median=110, p20=108, p80=112)
    apart = difference_of_spreads(near, far)
    assert apart == pytest.approx(Difference(1.1, 108 / 101, 112 / 99, None))
    assert verdict(apart, (None, None)) is DifferenceVerdict.APART
    assert verdict(difference_of_spreads(near, near), (None, None)) is DifferenceVerdict.OVERLAP
    single = Spread(median=2, p20=2, p80=2)
    assert verdict(difference_of_spreads(near, single), (None, None)) is DifferenceVerdict.UNKNOWN


def test_a_steady_difference_below_the_noise_is_called_small() -> None:
    found = Difference(1.01, 1.005, 1.015, 0.001)
    assert verdict(found, (0.02, 0.005)) is DifferenceVerdict.SMALL
    assert verdict(found, (0.002, 0.005)) is DifferenceVerdict.CLEAR
    assert verdict(found, (0.002, 0.005), p_value=0.2) is DifferenceVerdict.NO_DIFFERENCE
    slower = Difference(1 / 1.01, 0.98, 0.995, 0.001)
    assert verdict(slower, (0.02, 0.005)) is DifferenceVerdict.SMALL, "the same the other way round"
