"""How far each of many equal cards lies below the others: robust, with a stated false-alarm rate. Pure functions on
arrays of one value a card, any thread.

Everything works on logarithms of rates, so that a unit cancels and a ratio is a difference. A card is compared with a
**reference**: cards that agree with each other, found in three steps.

1. The shortest half of the values gives a first centre and spread (least median of squares in one dimension: Rousseeuw,
   J. Am. Stat. Assoc. 79, 1984, 871-880). Nearly half of the cards may be slow without spoiling it.
2. Cards outside of a cut are left out, centre and spread are computed again from the rest (reweighting: Rousseeuw and
   Leroy, Robust Regression and Outlier Detection, 1987, 1.2), three times. The spread is then a standard deviation,
   almost fully efficient; the median absolute deviation reaches 37 % and Qn 82 % (Rousseeuw and Croux, J. Am. Stat.
   Assoc. 88, 1993, 1273-1283), which costs power at 64 cards. The truncation is corrected for a normal distribution.
3. Two speeds: the sorted values are also split where the two sides vary least (two means in one dimension). Where the
   slower side lies significantly below the faster one and the faster one is at least a quarter of the cards, the faster
   side becomes the reference. Equal cards have a ceiling, so that the faster half is never called an outlier.

The score of a card leaves the card itself out of its reference, so that it cannot hide in a small group:

    t = (y - median(R)) / sqrt(s² (1 + π / 2m) + u²),        R: the reference without this card, m cards

`s` is the spread of R, π/2m the variance of a median, `u` what the card's own blocks vary more than those of others. A
small group knows little of its spread, so that `s` is shrunk towards a prior spread s₀ worth d₀ degrees of freedom

    s² = max(v, (d₀ s₀² + (m - 1) v) / (d₀ + m - 1)),        v: the variance of R

(the moderated t of Smyth, Stat. Appl. Genet. Mol. Biol. 3, 2004, article 3, upwards only: a spread that was measured
is never made smaller). t is compared with Student's distribution with d₀ + m - 1 degrees of freedom at α / N, one-sided
because only slow cards are looked for; N is how many comparisons the whole check makes (Bonferroni), and α is
`FAMILY_WISE`. `FLOOR` keeps what is significant but of no practical weight from being called slow.
tests/benchmarks/fleet_detection.py measures the false-alarm rate that comes of it.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Integers = npt.NDArray[np.int64]

FAMILY_WISE = 0.008
"""Chance that a check of healthy cards calls any of them slow, as computed; a little below the 1 % that is promised,
because rates are not exactly normal."""
FLOOR = 0.03
"""A card that is less slow than this is not called slow, however sure it is."""
FEWEST = 3
"""Equal cards that a comparison needs, the card itself among them: of two that differ either may be the slow one."""
LEAST_FASTER = 0.25
"""Of two speeds, the faster cards have to be this share to be the reference. Fewer: they are exceptions."""
OF_MEDIAN = math.pi / 2
"""The variance of a median to that of a mean."""
_CUT = 0.0001
"""Chance to lie beyond the cut on one side: 3.7 deviations of a normal distribution. At three, small groups with a
spread above the prior's lose healthy cards and with them the stated false-alarm rate."""
_NORMAL = NormalDist()
_CUT_AT = -_NORMAL.inv_cdf(_CUT)
_TRUNCATED = 1 - 2 * _CUT_AT * _NORMAL.pdf(_CUT_AT) / (1 - 2 * _CUT)
"""Variance of a standard normal distribution that is cut at `_CUT` on both sides."""
_SHORTEST_HALF_EFFICIENCY = 0.37
"""As that of the median absolute deviation."""


class Prior(NamedTuple):
    """What is assumed of a spread before it is measured."""

    spread: float
    """Standard deviation of the logarithm: 0.015 is 1.5 %."""
    freedom: float
    """How many degrees of freedom this assumption is worth."""


class Scores(NamedTuple):
    """A value for each card."""

    difference: Floats
    """Logarithm of the ratio to what the card is compared with; NaN: it cannot be compared."""
    scale: Floats
    """What the difference is divided by."""
    freedom: Floats
    others: Integers
    """Cards, or former runs, that it is compared with."""
    spread: Floats
    """Standard deviation of the reference as measured, without the prior."""


def t_quantile(probability: float, freedom: Floats | float) -> Floats:
    """The upper quantile of Student's distribution by Wallace's approximation (Ann. Math. Stat. 30, 1959, 1121-1130).

    It errs on the safe side: with 10 degrees of freedom or more by at most 1 %, with 4 by up to 15 %.

    >>> bool(abs(t_quantile(0.001, np.array([10.0]))[0] / 4.1437 - 1) < 0.01)
    True
    """
    z = -_NORMAL.inv_cdf(probability)
    corrected = z * (8 * freedom + 3) / (8 * freedom + 1)
    return np.asarray(np.sqrt(freedom * np.expm1(corrected**2 / freedom)))


def critical(scores: Scores, comparisons: int) -> Floats:
    """The difference below which each card is called slow, as a logarithm; without the floor."""
    return -t_quantile(FAMILY_WISE / max(comparisons, 1), scores.freedom) * scores.scale


def slow(scores: Scores, comparisons: int, floor: float = FLOOR) -> Bools:
    """Which cards are slow; False where there is nothing to compare with."""
    return np.asarray(scores.difference < np.minimum(critical(scores, comparisons), math.log1p(-floor)))


def score(values: Floats, own_error: Floats, prior: Prior, comparisons: int) -> Scores:
    """Scores of three cards or more. `values`: logarithms; `own_error`: the standard error of each. `comparisons`
    serves the decision whether there are two speeds."""
    kept = _reference(values, prior, comparisons)
    others = kept.sum() - kept
    least = np.maximum(others, 1)
    centred = np.where(kept, values - values[kept].mean(), 0.0)
    sums, squares = centred.sum() - centred, (centred**2).sum() - centred**2
    variance = np.maximum(squares - sums**2 / least, 0.0) / np.maximum(others - 1, 1) / _TRUNCATED
    extra = np.maximum(own_error**2 - np.median(own_error**2), 0.0)
    scale = np.sqrt(shrunk(variance, others - 1, prior) * (1 + OF_MEDIAN / least) + extra)
    difference = np.where(others >= FEWEST - 1, values - _median_of_others(values, kept), np.nan)
    return Scores(difference, scale, others - 1 + prior.freedom, others, np.sqrt(variance))


def changes(now: Floats, former: Sequence[Floats], own_error: Floats, prior: Prior) -> tuple[Floats, Floats]:
    """The logarithm of each card's rate to the median of its own former ones, and its standard error.

    `prior.spread` is what a card varies from run to run. Where equal cards have a history too, `score` compares these
    changes with each other: what changed for all of them (a driver, the weather) is not a fault of one.
    """
    usual = np.array([np.median(runs) for runs in former])
    number = np.array([len(runs) for runs in former])
    return now - usual, np.sqrt(own_error**2 + prior.spread**2 * OF_MEDIAN / number)


def alone(change: Floats, former: Sequence[Floats], own_error: Floats, prior: Prior) -> Scores:
    """The changes of single cards, where too few equal cards have a history."""
    number = np.array([len(runs) for runs in former])
    variance = np.array([runs.var(ddof=1) if len(runs) > 1 else 0.0 for runs in former])
    scale = np.sqrt(shrunk(variance, number - 1, prior) * (1 + OF_MEDIAN / number) + own_error**2)
    return Scores(change, scale, number - 1 + prior.freedom, number, np.sqrt(variance))


def shrunk(variance: Floats | float, freedom: Integers | float, prior: Prior) -> Floats:
    """The variance moved towards the prior's, upwards only."""
    moved = (prior.freedom * prior.spread**2 + freedom * variance) / (prior.freedom + freedom)
    return np.asarray(np.maximum(variance, moved))


def _reference(values: Floats, prior: Prior, comparisons: int) -> Bools:
    """The cards that agree with the shortest half, or the faster side of two speeds."""
    order = np.argsort(values)
    ordered, count = values[order], len(values)
    half = count // 2 + 1
    lengths = ordered[half - 1 :] - ordered[: count - half + 1]
    first = int(lengths.argmin())
    variance = float(lengths[first] / (2 * _NORMAL.inv_cdf(0.75))) ** 2
    freedom = _SHORTEST_HALF_EFFICIENCY * (count - 1)
    centre = float(ordered[first + (half - 1) // 2])
    kept = _reweighted(values, _near(values, centre, variance, freedom, prior), prior)

    number = np.arange(1, count)
    below = (ordered - ordered[-1]).cumsum()
    explained = below[:-1] ** 2 / number + (below[-1] - below[:-1]) ** 2 / (count - number)  # by a split, but for a sum
    faster = np.zeros(count, bool)
    faster[order[explained.argmax() + 1 :]] = True
    kept_faster = _reweighted(values, faster, prior)
    slower = ~faster & ~kept_faster
    members = int(kept_faster.sum())
    if slower.sum() < 2 or members < max(LEAST_FASTER * count, 2):
        return kept
    _, variance = _moments(values[kept_faster])
    scale = np.sqrt(shrunk(variance, members - 1, prior) * (1 + OF_MEDIAN / members))
    limit = -t_quantile(FAMILY_WISE / max(comparisons, 1), members - 1 + prior.freedom) * scale
    difference = np.median(values[slower]) - np.median(values[kept_faster])
    return kept_faster if difference < np.minimum(limit, math.log1p(-FLOOR)) else kept


def _near(values: Floats, centre: float, variance: float, freedom: float, prior: Prior) -> Bools:
    spread = np.sqrt(shrunk(variance, freedom, prior))
    return np.asarray(np.abs(values - centre) <= t_quantile(_CUT, freedom + prior.freedom) * spread)


def _reweighted(values: Floats, kept: Bools, prior: Prior) -> Bools:
    for _ in range(3):
        centre, variance = _moments(values[kept])
        kept = _near(values, centre, variance, max(kept.sum() - 1.0, 0.5), prior)
    return kept


def _moments(values: Floats) -> tuple[float, float]:
    """Mean, and variance corrected for the cut."""
    squares = (values - values.mean()) ** 2
    return float(values.mean()), float(squares.sum() / max(len(values) - 1, 1) / _TRUNCATED)


def _median_of_others(values: Floats, kept: Bools) -> Floats:
    """Of the reference without each card."""
    ordered = np.sort(values[kept])
    rank = np.searchsorted(ordered, values)
    others = kept.sum() - kept
    low, high = (others - 1) // 2, others // 2
    low, high = low + (kept & (low >= rank)), high + (kept & (high >= rank))
    last = len(ordered) - 1
    return np.asarray((ordered[np.minimum(low, last)] + ordered[np.minimum(high, last)]) / 2)


PARTS = 8
"""Consecutive parts of a measurement that are taken as independent of each other."""


def centre_and_error(blocks: Floats) -> tuple[Floats, Floats]:
    """The logarithm of the median of a card's blocks, all positive, and its standard error; blocks are the last axis.

    Blocks that follow each other resemble each other, so the error is that of eight consecutive parts (batch means:
    Law, Simulation Modeling and Analysis, 9.5), not that of independent blocks. NaN: fewer than eight blocks. Where
    each block carries 0.5 of the one before it, the error is right within a fifth, where 0.9, half of what it should
    be; between equal cards that does no harm, since their spread contains it.
    """
    logarithms = np.log(blocks)
    centre = np.asarray(np.median(logarithms, axis=-1))
    size = blocks.shape[-1] // PARTS
    if not size:
        return centre, np.full_like(centre, np.nan)
    parts = logarithms[..., : size * PARTS].reshape(*blocks.shape[:-1], PARTS, size).mean(axis=-1)
    return centre, np.asarray(parts.std(axis=-1, ddof=1) / math.sqrt(PARTS))
