"""How far each of many equal cards lies below the others: robust, with a stated false-alarm rate. Pure functions on
arrays, any thread.

Everything works on logarithms of rates, so that a unit cancels and a ratio is a difference. The last axis is the cards
of one group, NaN where there is no measurement; axes before it are independent fleets, as a simulation needs.

A card is compared with a **reference**: cards that agree with each other, found in three steps.

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
from statistics import NormalDist
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]
Bools = npt.NDArray[np.bool_]
Ints = npt.NDArray[np.int64]

FAMILY_WISE = 0.008
"""Chance that a check of healthy cards calls any of them slow, as computed; a little below the 1 % that is promised,
because rates are not exactly normal."""
FLOOR = 0.03
"""A card that is less slow than this is not called slow, however sure it is."""
FEWEST = 3
"""Equal cards that a comparison needs, the card itself among them: of two that differ either may be the slow one."""
LEAST_FASTER = 0.25
"""Of two speeds, the faster cards have to be this share to be the reference. Fewer: they are exceptions."""
_REWEIGHTED = 3
_CUT = 0.0001
"""Chance to lie beyond the cut on one side: 3.7 deviations of a normal distribution. At three, small groups with a
spread above the prior's lose healthy cards and with them the stated false-alarm rate."""
_NORMAL = NormalDist()
_SHORTEST_HALF_EFFICIENCY = 0.37
"""As that of the median absolute deviation."""


class Prior(NamedTuple):
    """What is assumed of a spread before it is measured."""

    spread: float
    """Standard deviation of the logarithm: 0.015 is 1.5 %."""
    freedom: float
    """How many degrees of freedom this assumption is worth."""


class Scores(NamedTuple):
    """Arrays of the shape of the values, unless noted."""

    difference: Floats
    """Logarithm of the ratio to the median of the others of the reference; NaN: cannot be compared."""
    scale: Floats
    """What the difference is divided by."""
    freedom: Floats
    others: Ints
    """Cards in the reference, this one left out."""
    spread: Floats
    """Standard deviation of the reference as measured, without the prior; NaN with fewer than two."""
    split: Bools
    """Without the last axis: the reference is the faster side of two."""

    @property
    def statistic(self) -> Floats:
        """How many scales below (negative) or above the others."""
        return self.difference / self.scale


def t_quantile(probability: float, freedom: Floats) -> Floats:
    """The upper quantile of Student's distribution by Wallace's approximation (Ann. Math. Stat. 30, 1959, 1121-1130).

    It errs on the safe side: with 10 degrees of freedom or more by at most 1 %, with 4 by up to 15 %.

    >>> bool(abs(t_quantile(0.001, np.array([10.0]))[0] / 4.1437 - 1) < 0.01)
    True
    """
    z = -_NORMAL.inv_cdf(probability)
    corrected = z * (8 * freedom + 3) / (8 * freedom + 1)
    return np.asarray(np.sqrt(freedom * np.expm1(corrected**2 / freedom)))


def t_tail(statistic: float, freedom: float) -> float:
    """The chance to lie above, by the same approximation; the inverse of `t_quantile`."""
    z = math.copysign((8 * freedom + 1) / (8 * freedom + 3), statistic)
    return _NORMAL.cdf(-z * math.sqrt(freedom * math.log1p(statistic**2 / freedom)))


def critical(scores: Scores, comparisons: int, family_wise: float = FAMILY_WISE) -> Floats:
    """How many scales below the others a card has to lie, positive; without the floor."""
    return t_quantile(family_wise / max(comparisons, 1), scores.freedom)


def slow(scores: Scores, comparisons: int, family_wise: float = FAMILY_WISE, floor: float = FLOOR) -> Bools:
    """Which cards are slow; False where there is nothing to compare with."""
    with np.errstate(invalid="ignore"):
        significant = scores.difference < -critical(scores, comparisons, family_wise) * scores.scale
        return np.asarray(significant & (scores.difference < math.log1p(-floor)))


def score(values: Floats, own_error: Floats | None, prior: Prior, comparisons: int) -> Scores:
    """Scores of every card. `values`: logarithms; `own_error`: the standard error of each, None: alike.

    `comparisons` serves the decision whether there are two speeds.
    """
    values = np.where(np.isfinite(values), values, np.nan)
    count = np.isfinite(values).sum(axis=-1)
    kept = _consistent(values, count, prior)
    faster = _faster_side(values, count)
    kept_faster = _reweighted(values, faster, prior)
    apart = _slower_side_is_apart(values, faster, kept_faster, prior, comparisons)
    kept = np.where(apart[..., None], kept_faster, kept)
    extra = np.zeros_like(values) if own_error is None else _beyond_the_others(own_error, values)
    return _scores(values, kept, extra, prior, apart)


def changes(now: Floats, former: Floats, own_error: Floats | None, prior: Prior) -> tuple[Floats, Floats]:
    """The logarithm of each card's rate to the median of its own former ones, and its standard error.

    `former` has one more axis, NaN where there are fewer. `prior.spread` is what a card varies from run to run. Where
    equal cards have a history too, `score` compares these changes with each other: what changed for all of them (a
    driver, the weather) is not a fault of one.
    """
    count = np.isfinite(former).sum(axis=-1)
    ordered = np.sort(former, axis=-1)
    low, high = (np.clip(index, 0, None)[..., None] for index in ((count - 1) // 2, count // 2))
    usual = (np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1))[..., 0] / 2
    own = np.zeros_like(now) if own_error is None else np.nan_to_num(own_error, nan=0.0)
    error = np.sqrt(own**2 + prior.spread**2 * math.pi / 2 / np.maximum(count, 1))
    return np.where(count > 0, now - usual, np.nan), error


def alone(difference: float, former: Floats, own_error: float, prior: Prior) -> Scores:
    """The change of a single card against its own history, where too few equal cards have one; `former` are logarithms,
    one axis."""
    freedom = max(len(former) - 1, 0)
    variance = shrunk(np.array(former.var(ddof=1) if freedom else 0.0), np.array(freedom), prior)
    scale = np.sqrt(variance * (1 + math.pi / 2 / len(former)) + own_error**2)
    one = np.ones(1)
    return Scores(
        difference * one, scale * one, (freedom + prior.freedom) * one, one.astype(int), one * math.nan, one[0] > 1
    )


# --- the reference ----------------------------------------------------------------------------------------------------


def _consistent(values: Floats, count: Ints, prior: Prior) -> Bools:
    """The cards that agree with the shortest half."""
    ordered = np.sort(values, axis=-1)
    half = count // 2 + 1
    starts = np.arange(values.shape[-1])
    ends = np.minimum(starts + (half - 1)[..., None], values.shape[-1] - 1)
    lengths = np.take_along_axis(ordered, ends, axis=-1) - ordered
    lengths = np.where(starts + half[..., None] <= count[..., None], lengths, np.inf)
    first = lengths.argmin(axis=-1)[..., None]
    length = np.take_along_axis(lengths, first, axis=-1)[..., 0]
    centre = np.take_along_axis(ordered, first + ((half - 1) // 2)[..., None], axis=-1)[..., 0]
    length = np.where(np.isfinite(length), length, 0.0)
    variance = (length / (2 * _NORMAL.inv_cdf(0.75))) ** 2
    freedom = np.maximum(_SHORTEST_HALF_EFFICIENCY * (count - 1), 0.5)
    return _reweighted(values, _near(values, centre, variance, freedom, prior), prior)


def _near(values: Floats, centre: Floats, variance: Floats, freedom: Floats, prior: Prior) -> Bools:
    spread = np.sqrt(shrunk(variance, freedom, prior))
    cut = t_quantile(_CUT, freedom + prior.freedom) * spread
    with np.errstate(invalid="ignore"):
        return np.asarray(np.abs(values - centre[..., None]) <= cut[..., None])


def _reweighted(values: Floats, kept: Bools, prior: Prior) -> Bools:
    for _ in range(_REWEIGHTED):
        number, mean, variance = _moments(values, kept)
        kept = _near(values, mean, variance, np.maximum(number - 1.0, 0.5), prior)
    return kept


def _moments(values: Floats, kept: Bools) -> tuple[Ints, Floats, Floats]:
    """Number, mean and variance of those that are kept; the variance is corrected for the cut."""
    number = kept.sum(axis=-1)
    mean = np.where(kept, values, 0.0).sum(axis=-1) / np.maximum(number, 1)
    squares = np.where(kept, values - mean[..., None], 0.0) ** 2
    return number, mean, squares.sum(axis=-1) / np.maximum(number - 1, 1) / _TRUNCATED


def _truncated_variance() -> float:
    """Of a standard normal distribution that is cut at `_CUT` on both sides."""
    cut = -_NORMAL.inv_cdf(_CUT)
    return 1 - 2 * cut * _NORMAL.pdf(cut) / (1 - 2 * _CUT)


_TRUNCATED = _truncated_variance()


def _faster_side(values: Floats, count: Ints) -> Bools:
    """The faster side of the split that leaves least variance within the two sides."""
    order = np.argsort(values, axis=-1)  # NaN last
    number = np.arange(1, values.shape[-1] + 1)
    centred = values - np.nanmax(np.where(np.isfinite(values), values, -np.inf), axis=-1)[..., None]
    ordered = np.nan_to_num(np.take_along_axis(centred, order, axis=-1), nan=0.0, neginf=0.0, posinf=0.0)
    below = ordered.cumsum(axis=-1)
    above_number = count[..., None] - number
    above = below[..., -1:] - below
    between = below**2 / number + above**2 / np.maximum(above_number, 1)  # what the split explains, up to a constant
    between = np.where((above_number >= 1), between, -np.inf)
    split = between.argmax(axis=-1)
    rank = np.argsort(order, axis=-1)
    return np.asarray((rank > split[..., None]) & np.isfinite(values))


def _slower_side_is_apart(values: Floats, faster: Bools, kept: Bools, prior: Prior, comparisons: int) -> Bools:
    present = np.isfinite(values)
    slower = present & ~faster & ~kept
    count, slower_count = present.sum(axis=-1), slower.sum(axis=-1)
    number, _, variance = _moments(values, kept)
    difference = _median(values, slower) - _median(values, kept)
    freedom = np.maximum(number - 1, 0) + prior.freedom
    scale = np.sqrt(shrunk(variance, np.maximum(number - 1, 0), prior) * (1 + math.pi / 2 / np.maximum(number, 1)))
    limit = t_quantile(FAMILY_WISE / max(comparisons, 1), freedom) * scale
    enough = (number >= np.maximum(LEAST_FASTER * count, 2)) & (slower_count >= 2)
    with np.errstate(invalid="ignore"):
        return np.asarray(enough & (difference < -limit) & (difference < math.log1p(-FLOOR)))


def _median(values: Floats, kept: Bools) -> Floats:
    """NaN where nothing is kept."""
    ordered = np.sort(np.where(kept, values, np.nan), axis=-1)
    number = kept.sum(axis=-1)
    low, high = (np.clip(index, 0, values.shape[-1] - 1)[..., None] for index in ((number - 1) // 2, number // 2))
    middle = (np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1))[..., 0] / 2
    return np.where(number > 0, middle, np.nan)


# --- the score --------------------------------------------------------------------------------------------------------


def shrunk(variance: Floats, freedom: Floats | Ints, prior: Prior) -> Floats:
    """The variance moved towards the prior's, upwards only."""
    moved = (prior.freedom * prior.spread**2 + freedom * variance) / (prior.freedom + freedom)
    return np.asarray(np.maximum(variance, moved))


def _beyond_the_others(own_error: Floats, values: Floats) -> Floats:
    """The variance of a card's own figure beyond that of the others, which is part of the measured spread already."""
    variance = np.where(np.isfinite(values), own_error, np.nan) ** 2
    usual = _median(variance, np.isfinite(variance))[..., None]
    return np.nan_to_num(np.maximum(variance - usual, 0.0), nan=0.0)


def _scores(values: Floats, kept: Bools, extra: Floats, prior: Prior, apart: Bools) -> Scores:
    number, mean, _ = _moments(values, kept)
    centred = np.where(kept, values - mean[..., None], 0.0)
    others = number[..., None] - kept
    least = np.maximum(others, 1)
    sums, squares = centred.sum(axis=-1)[..., None] - centred, (centred**2).sum(axis=-1)[..., None] - centred**2
    variance = np.maximum(squares - sums**2 / least, 0.0) / np.maximum(others - 1, 1) / _TRUNCATED
    difference = values - _median_of_others(values, kept, others)
    scale = np.sqrt(shrunk(variance, np.maximum(others - 1, 0), prior) * (1 + math.pi / 2 / least) + extra)
    usable = np.isfinite(values) & (others >= FEWEST - 1)
    return Scores(
        difference=np.where(usable, difference, np.nan),
        scale=np.where(usable, scale, np.nan),
        freedom=np.maximum(others - 1, 0) + prior.freedom,
        others=others,
        spread=np.where(others >= 2, np.sqrt(variance), np.nan),
        split=apart,
    )


def _median_of_others(values: Floats, kept: Bools, others: Ints) -> Floats:
    masked = np.where(kept, values, np.nan)
    order = np.argsort(masked, axis=-1)
    ordered = np.take_along_axis(masked, order, axis=-1)
    rank = np.where(kept, np.argsort(order, axis=-1), values.shape[-1])
    low, high = (others - 1) // 2, others // 2
    low, high = (np.clip(index + (index >= rank), 0, values.shape[-1] - 1) for index in (low, high))
    return np.asarray((np.take_along_axis(ordered, low, -1) + np.take_along_axis(ordered, high, -1)) / 2)


# --- the figures of one card ------------------------------------------------------------------------------------------

PARTS = 8
"""Consecutive parts of a measurement that are taken as independent of each other."""


def centre_and_error(blocks: Floats) -> tuple[Floats, Floats]:
    """The logarithm of the median block of each card and its standard error; blocks are the last axis.

    Blocks that follow each other resemble each other, so the error is that of eight consecutive parts (batch means:
    Law, Simulation Modeling and Analysis, 9.5), not that of independent blocks. NaN: fewer than eight blocks, or a
    block that is no positive number. Where each block carries 0.5 of the one before it, the error is right within a
    fifth, where 0.9, half of what it should be; between equal cards that does no harm, since their spread contains it.
    """
    with np.errstate(invalid="ignore", divide="ignore"):
        logarithms = np.where(np.isfinite(blocks) & (blocks > 0), np.log(blocks), np.nan)
    length = blocks.shape[-1]
    if not length:
        nothing = np.full(blocks.shape[:-1], np.nan)
        return nothing, nothing
    centre = np.median(logarithms, axis=-1)
    if length < PARTS:
        return centre, np.full_like(centre, np.nan)
    size = length // PARTS
    parts = logarithms[..., : size * PARTS].reshape(*blocks.shape[:-1], PARTS, size).mean(axis=-1)
    return centre, np.asarray(parts.std(axis=-1, ddof=1) / math.sqrt(PARTS))
