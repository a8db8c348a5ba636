"""Scores of equal cards: what they depend on, what they do not, and how often they are wrong."""

from __future__ import annotations

import math

import numpy as np
import pytest

from devexplorer.core.fleet.verdicts.scores import (
    Floats,
    Prior,
    Scores,
    alone,
    centre_and_error,
    changes,
    critical,
    score,
    slow,
    t_quantile,
)

PRIOR, RUNS = Prior(0.015, 4), Prior(0.01, 4)


def healthy(trials: int, cards: int, spread: float = 0.015, seed: int = 0) -> Floats:
    return np.random.default_rng(seed).normal(0.0, spread, (trials, cards))


def scored(values: Floats, prior: Prior = PRIOR) -> Scores:
    return score(values, np.zeros(len(values)), prior, len(values))


def found(fleets: Floats) -> np.ndarray:
    return np.array([slow(scored(values), len(values)) for values in fleets])


def student_tail(t: float, freedom: float) -> float:
    """By Simpson's rule over the density, with u = 1/x for the infinite range."""
    constant = math.gamma((freedom + 1) / 2) / math.gamma(freedom / 2) / math.sqrt(freedom * math.pi)
    u = np.linspace(1e-9, 1 / t, 20001)
    y = constant * (1 + 1 / u**2 / freedom) ** (-(freedom + 1) / 2) / u**2
    weights = np.ones_like(u)
    weights[1:-1:2], weights[2:-1:2] = 4, 2
    return float((weights * y).sum() * (u[1] - u[0]) / 3)


@pytest.mark.parametrize("freedom", [4.0, 10.0, 66.0])
@pytest.mark.parametrize("probability", [1e-2, 1e-6])
def test_the_approximate_quantile_is_that_of_student(freedom: float, probability: float) -> None:
    exact = student_tail(float(t_quantile(probability, np.array(freedom))), freedom)
    assert exact < 1.001 * probability  # it errs on the safe side
    assert math.log(probability / exact) / freedom < (0.011 if freedom >= 10 else 0.15)  # about the share of t


@pytest.mark.parametrize("cards", [3, 4, 8, 64])
@pytest.mark.parametrize("spread", [0.015, 0.03])
def test_healthy_cards_are_seldom_called_slow(cards: int, spread: float) -> None:
    """tests/benchmarks/fleet_detection.py says it more exactly."""
    assert found(healthy(1000, cards, spread)).any(axis=-1).mean() < (0.012 if spread == 0.015 else 0.025)


def test_a_card_that_is_hardly_slow_is_not_called_slow_however_sure() -> None:
    (values,) = healthy(1, 64, spread=1e-5)
    values[3] += math.log(0.98)
    scores = scored(values, Prior(1e-5, 4))
    assert scores.difference[3] < critical(scores, 64)[3]
    assert not slow(scores, 64).any()


@pytest.mark.parametrize("share", [0.25, 0.7])
def test_of_two_speeds_the_slower_cards_are_slow_and_none_of_the_faster(share: float) -> None:
    values = healthy(100, 64)
    number = round(share * 64)
    values[:, :number] += math.log(0.85)
    flagged = found(values)
    assert flagged[:, :number].mean() > 0.999
    assert flagged[:, number:].any(axis=-1).mean() < 0.03


@pytest.mark.parametrize("absurd", [30.0, -30.0, 1e6])
def test_one_absurd_card_changes_little_for_the_others(absurd: float) -> None:
    for values in healthy(50, 16):
        values[4] -= 0.2
        usual = scored(np.delete(values, 9))
        values[9] = absurd
        scores = scored(values)
        np.testing.assert_allclose(np.delete(scores.difference, 9), usual.difference, atol=0.02)


def test_a_card_does_not_hide_itself() -> None:
    """In a group of four, its own value would pull the reference and its spread."""
    scores = scored(np.array([0.0, 0.004, -0.003, -0.25]))
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
    steps = np.random.default_rng(2).normal(0, 0.01, (400, 64))
    resembling = steps.copy()
    for index in range(1, 64):
        resembling[:, index] = 0.5 * resembling[:, index - 1] + math.sqrt(0.75) * steps[:, index]
    (_, alike), (centres, apart) = (centre_and_error(np.exp(blocks)) for blocks in (steps, resembling))
    assert alike.mean() == pytest.approx(0.01 / 8, rel=0.1)
    assert apart.mean() > 1.4 * alike.mean()
    assert 0.75 < apart.mean() / centres.std() < 1.1
    centre, error = centre_and_error(np.array([1.0, 2.0, 3.0]))
    assert (float(centre), math.isnan(error)) == (pytest.approx(math.log(2)), True)


def test_a_card_alone_is_compared_with_its_own_history() -> None:
    five, one = np.array([0.0, 0.004, -0.006, 0.002, 0.001]), np.zeros(1)
    scores = alone(np.array([-0.2, -0.02, -0.1]), [five, five, one], np.array([0.002, 0.002, 0.0]), RUNS)
    assert slow(scores, 1)[:2].tolist() == [True, False]
    assert scores.freedom.tolist() == [8, 8, 4]
    _, error = changes(np.array([0.05]), [np.array([0.0, 0.1])], np.zeros(1), RUNS)
    assert error[0] == pytest.approx(0.01 * math.sqrt(math.pi / 4))
