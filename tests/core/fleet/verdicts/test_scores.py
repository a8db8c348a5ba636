"""Scores of equal cards: what they depend on, what they do not, and how often they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from devexplorer.core.fleet.verdicts.scores import (
    Floats,
    Prior,
    alone,
    centre_and_error,
    changes,
    critical,
    score,
    slow,
    t_quantile,
    t_tail,
)

PRIOR = Prior(0.015, 4)


def healthy(trials: int, cards: int, spread: float = 0.015, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(0.0, spread, (trials, cards))


def found(values: Floats) -> np.ndarray:
    comparisons = values.shape[-1]
    return slow(score(values, None, PRIOR, comparisons), comparisons)


def student_tail(t: float, freedom: float) -> float:
    """By Simpson's rule over the density, with u = 1/x for the infinite range."""
    constant = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    u = np.linspace(1e-9, 1 / t, 20001)
    y = constant * (1 + 1 / u**2 / freedom) ** (-(freedom + 1) / 2) / u**2
    weights = np.ones_like(u)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return float((weights * y).sum() * (u[1] - u[0]) / 3)


@pytest.mark.parametrize("freedom", [4.0, 6.0, 10.0, 30.0, 66.0])
@pytest.mark.parametrize("probability", [1e-2, 1e-4, 1e-6])
def test_the_approximate_quantile_is_that_of_student(freedom: float, probability: float) -> None:
    t = float(t_quantile(probability, np.array(freedom)))
    exact = student_tail(t, freedom)
    assert exact < 1.001 * probability  # it errs on the safe side
    assert math.log(probability / exact) / freedom < (0.011 if freedom >= 10 else 0.15)  # about the share of t
    assert t_tail(t, freedom) == pytest.approx(probability, rel=1e-6)
    assert t_tail(-t, freedom) == pytest.approx(1 - probability)


@pytest.mark.parametrize("cards", [3, 4, 8, 64])
@pytest.mark.parametrize("spread", [0.015, 0.03])
def test_healthy_cards_are_seldom_called_slow(cards: int, spread: float) -> None:
    """2,000 fleets of each size; tests/benchmarks/fleet_detection.py says it more exactly."""
    assert found(healthy(2000, cards, spread)).any(axis=-1).mean() < (0.012 if spread == 0.015 else 0.02)


@pytest.mark.parametrize(("cards", "factor", "share"), [(64, 0.9, 0.985), (8, 0.85, 0.97), (4, 0.8, 0.95)])
def test_a_slow_card_is_found(cards: int, factor: float, share: float) -> None:
    values = healthy(600, cards)
    values[:, 0] += math.log(factor)
    assert found(values)[:, 0].mean() > share


def test_a_card_that_is_hardly_slow_is_not_called_slow_however_sure() -> None:
    values = healthy(100, 64, spread=1e-5)
    values[:, 3] += math.log(0.98)
    scores = score(values, None, Prior(1e-5, 4), 64)
    assert (scores.statistic[:, 3] < -critical(scores, 64)[:, 3]).all()
    assert not slow(scores, 64).any()


@pytest.mark.parametrize("share", [0.25, 0.4, 0.5, 0.6, 0.7])
def test_of_two_speeds_the_slower_cards_are_slow_and_none_of_the_faster(share: float) -> None:
    values = healthy(200, 64)
    number = round(share * 64)
    values[:, :number] += math.log(0.85)
    scores = score(values, None, PRIOR, 64)
    flagged = slow(scores, 64)
    assert scores.split.all()
    assert flagged[:, :number].mean() > 0.999
    assert flagged[:, number:].any(axis=-1).mean() < 0.02


@pytest.mark.parametrize("absurd", [30.0, -30.0, 1e6, math.inf, -math.inf, math.nan])
def test_one_absurd_or_lost_card_changes_little_for_the_others(absurd: float) -> None:
    """What it is replaced by: a card in the middle."""
    values = healthy(200, 16)
    values[:, 4] -= 0.2
    usual = score(np.delete(values, 9, axis=-1), None, PRIOR, 16)
    values[:, 9] = absurd
    with np.errstate(over="raise"):
        scores = score(values, None, PRIOR, 16)
    others = np.arange(16) != 9
    np.testing.assert_allclose(scores.difference[:, others], usual.difference, atol=0.02)
    assert (slow(scores, 16)[:, others] == slow(usual, 16)).mean() > 0.99
    if not math.isfinite(absurd):
        assert np.isnan(scores.difference[:, 9]).all()


@pytest.mark.parametrize("cards", [1, 2])
def test_too_few_cards_have_no_score(cards: int) -> None:
    scores = score(healthy(5, cards), None, PRIOR, cards)
    assert np.isnan(scores.statistic).all()
    assert not slow(scores, cards).any()


def test_no_measured_card_at_all_is_no_error() -> None:
    scores = score(np.full((2, 5), np.nan), None, PRIOR, 5)
    assert np.isnan(scores.difference).all()


def test_a_card_does_not_hide_itself() -> None:
    """In a group of four, its own value would pull the reference and its spread."""
    values = np.array([0.0, 0.004, -0.003, -0.25])
    scores = score(values, None, PRIOR, 4)
    assert scores.difference[3] == pytest.approx(-0.25)
    assert scores.others[3] == 3
    assert slow(scores, 4).tolist() == [False, False, False, True]


def test_a_card_whose_own_blocks_vary_needs_to_be_slower() -> None:
    values = np.zeros(16)
    values[5] = -0.1
    sure, unsure = (score(values, np.where(np.arange(16) == 5, e, 0.002), PRIOR, 16) for e in (0.002, 0.05))
    assert slow(sure, 16)[5]
    assert not slow(unsure, 16)[5]
    np.testing.assert_allclose(np.delete(sure.scale, 5), np.delete(unsure.scale, 5))


def test_the_error_of_blocks_that_resemble_each_other_is_larger() -> None:
    rng = np.random.default_rng(2)
    steps = rng.normal(0, 0.01, (400, 64))
    resembling = steps.copy()
    for index in range(1, 64):
        resembling[:, index] = 0.5 * resembling[:, index - 1] + math.sqrt(0.75) * steps[:, index]
    (_, alike), (centre, apart) = (centre_and_error(np.exp(blocks)) for blocks in (steps, resembling))
    assert alike.mean() == pytest.approx(0.01 / 8, rel=0.1)
    assert apart.mean() > 1.4 * alike.mean()
    assert 0.75 < apart.mean() / centre.std() < 1.1


def test_few_or_bad_blocks_have_no_error_or_no_centre() -> None:
    assert np.isnan(centre_and_error(np.array([1.0, 2.0, 3.0]))[1])
    assert centre_and_error(np.array([1.0, 2.0, 3.0]))[0] == pytest.approx(math.log(2))
    assert np.isnan(centre_and_error(np.array([1.0, 0.0, 3.0]))[0])
    assert np.isnan(centre_and_error(np.empty((2, 0)))[0]).all()


def test_own_history_finds_a_twentieth_that_equal_cards_do_not_show() -> None:
    rng = np.random.default_rng(4)
    card = healthy(300, 64)
    former = card[..., None] + rng.normal(0, 0.005, (300, 64, 5))
    now = card + rng.normal(0, 0.005, card.shape)
    now[:, 0] += math.log(0.95)
    assert found(now)[:, 0].mean() < 0.5
    change, error = changes(now, former, None, Prior(0.01, 4))
    flagged = slow(score(change, error, Prior(0.01, 4), 128), 128)
    assert flagged[:, 0].mean() > 0.97
    assert flagged[:, 1:].any(axis=-1).mean() < 0.01


def test_a_card_alone_is_compared_with_its_own_history() -> None:
    former = np.array([0.0, 0.004, -0.006, 0.002, 0.001])
    for change, expected in ((-0.2, True), (-0.02, False)):
        assert slow(alone(change, former, 0.002, Prior(0.01, 4)), 1)[0] == expected
    assert alone(-0.1, former[:1], 0.0, Prior(0.01, 4)).freedom[0] == 4


def test_former_runs_may_be_missing() -> None:
    former = np.array([[0.0, 0.1, np.nan], [np.nan] * 3])
    change, error = changes(np.array([0.05, 0.0]), former, None, Prior(0.01, 4))
    assert change[0] == pytest.approx(0.0)
    assert np.isnan(change[1])
    assert error[0] == pytest.approx(0.01 * math.sqrt(math.pi / 4))
