"""Statistics of the samples of one run, by their properties."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from devexplorer.core.benchmark.statistics import (
    MOST_SAMPLES,
    noise,
    noise_of_spread,
    noise_verdict,
    spread,
    thinned,
)
from devexplorer.core.records import Spread

FIGURE = st.floats(1e-3, 1e6)
RUN = st.lists(FIGURE, min_size=1, max_size=60)
LONG_RUN = st.lists(FIGURE, min_size=4, max_size=60)
FACTOR = st.sampled_from([2.0**power for power in range(-8, 9)])
"""Powers of two: scaling by them is exact, so that ties stay ties."""
quick = settings(max_examples=60, deadline=None)


@given(RUN, st.randoms(use_true_random=False))
@quick
def test_the_order_of_samples_changes_neither_spread_nor_noise(run: list[float], random: object) -> None:
    shuffled = run.copy()
    random.shuffle(shuffled)  # type: ignore[attr-defined]
    assert spread(shuffled) == spread(run)
    assert noise(shuffled) == noise(run)


@given(RUN, FACTOR)
@quick
def test_another_unit_scales_the_spread_and_leaves_the_noise(run: list[float], factor: float) -> None:
    scaled, known = spread([value * factor for value in run]), spread(run)
    assert scaled == Spread(median=known.median * factor, p20=known.p20 * factor, p80=known.p80 * factor)
    assert noise([value * factor for value in run]) == noise(run)


@given(RUN)
@quick
def test_a_spread_is_in_order_and_within_the_samples(run: list[float]) -> None:
    known = spread(run)
    assert min(run) <= known.p20 * (1 + 1e-12)
    assert known.p20 <= known.median <= known.p80 <= max(run) * (1 + 1e-12)


def test_figures_of_a_known_run() -> None:
    run = [float(value) for value in range(1, 102)]
    assert spread(run) == Spread(median=51.0, p20=21.0, p80=81.0)
    assert noise(run) == pytest.approx(50 / 51)


def test_what_is_not_known_is_none() -> None:
    assert noise([5.0]) is None
    assert noise_of_spread(Spread(median=1.0, p20=1.0, p80=1.0)) is None
    assert noise_verdict(None) == ""
    with pytest.raises(ValueError, match="at least one"):
        spread([])


def test_the_noise_of_a_spread_is_that_of_normal_samples() -> None:
    run = np.random.default_rng(1).normal(100, 2, 50_000).tolist()
    assert noise_of_spread(spread(run)) == pytest.approx(noise(run), rel=0.03)


@pytest.mark.parametrize(("value", "words"), [(0.004, "quiet"), (0.03, "some noise"), (0.08, "noisy")])
def test_noise_in_words(value: float, words: str) -> None:
    assert noise_verdict(value) == words


@given(st.lists(FIGURE, min_size=1, max_size=1000), st.integers(2, 250))
@quick
def test_thinning_keeps_order_ends_and_an_even_choice(run: list[float], most: int) -> None:
    kept = thinned([float(place) for place in range(len(run))], most)
    assert len(kept) == min(len(run), most)
    assert kept[0] == 0.0
    assert kept[-1] == len(run) - 1
    steps = [b - a for a, b in itertools.pairwise(kept)]
    assert all(step >= 1 for step in steps)
    assert not steps or max(steps) - min(steps) <= 1


def test_thinning_keeps_the_spread_of_a_long_run() -> None:
    run = np.random.default_rng(2).normal(100, 3, 20_000).tolist()
    kept = thinned(run)
    assert len(kept) == MOST_SAMPLES
    assert spread(kept).median == pytest.approx(spread(run).median, rel=0.01)
