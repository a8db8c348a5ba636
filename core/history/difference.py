"""What two runs of samples can say about each other. Pure functions, any thread; no torch.

How two runs are compared, so that a sceptic can check it. Samples that follow each other resemble each other (a card
warms up, another process comes and goes), so 200 of them are far fewer than 200 independent ones and a test that counts
them one by one finds differences everywhere. Therefore each run is cut into eight consecutive parts (batch means, as
simulations use them: Law, Simulation Modeling and Analysis, 9.5), and the medians of the parts are compared:

- p-value: Mann and Whitney's test of the parts, exact: all 12,870 ways to deal sixteen values into two hands of eight
  are counted, ties take their mean rank. Two-sided.
- interval of the ratio: the test turned round (Hodges and Lehmann): the ratios of all pairs of parts, of which as many
  are left out at both ends as the test allows, at 95 %.

How often noise alone is called a difference at 5 %, in 1000 simulated pairs of 200 samples: 4.9 % when samples are
independent, 6.7 % when each carries 0.7 of the one before, 8.6 % when 0.9 (a test of the single samples: 41 % and 63
%). Tests keep these bounds.

Both depend on nothing random, so the same two runs always give the same answer. Neither knows what happens between runs
(another placement in memory, another day): that only reruns show.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.benchmark.statistics import FEWEST
from devexplorer.core.records import Spread

Floats = npt.NDArray[np.float64]

PARTS = 8
"""Consecutive parts of a run that are taken as independent of each other."""
ALPHA = 0.05


class DifferenceVerdict(enum.Enum):
    """What can be said about the difference of two runs."""

    NO_DIFFERENCE = "no difference"
    """Chance alone makes such a difference too often."""
    SMALL = "small"
    """Chance does not explain it, but it is smaller than the noise within one of the runs."""
    CLEAR = "clear"
    """Chance does not explain it, and it is more than the noise of either run."""
    APART = "apart"
    """No samples: the middle 60 % of both do not overlap."""
    OVERLAP = "overlap"
    """No samples: the middle 60 % of both overlap."""
    UNKNOWN = "unknown"
    """One figure each, or too few."""


class Difference(NamedTuple):
    """The second run against the first."""

    ratio: float
    """Median over median."""
    low: float | None
    """95 % interval of the ratio; without samples: the ratio of the ends of the middle 60 %. None: not known."""
    high: float | None
    p_value: float | None
    """None: without samples there is none."""


def parts(samples: Sequence[float] | Floats, count: int = PARTS) -> Floats:
    """The medians of `count` consecutive parts of equal length (to within one sample); the samples themselves where
    there are fewer."""
    values = np.asarray(samples, dtype=np.float64)
    if len(values) <= count:
        return values
    return np.array([np.median(part) for part in np.array_split(values, count)])


def difference(first: Sequence[float], second: Sequence[float]) -> Difference:
    """The second run against the first by their samples, all positive, in the order of measurement."""
    a, b = np.asarray(first, dtype=np.float64), np.asarray(second, dtype=np.float64)
    if (
        not len(a)
        or not len(b)
        or not (np.isfinite(a).all() and np.isfinite(b).all() and (a > 0).all() and (b > 0).all())
    ):
        raise ValueError("runs are compared by positive samples, at least one each")
    ratio = float(np.median(b) / np.median(a))
    one, two = parts(a), parts(b)
    if min(len(one), len(two)) < FEWEST:
        return Difference(ratio, None, None, None)
    low, high = _interval(one, two)
    return Difference(ratio, min(low, ratio), max(high, ratio), _mann_whitney(one, two))


def difference_of_spreads(first: Spread, second: Spread) -> Difference:
    """The second run against the first where only their spreads are known, all positive. No interval where one of them
    has no width."""
    ratio = second.median / first.median
    if first.p20 == first.p80 or second.p20 == second.p80:
        return Difference(ratio, None, None, None)
    return Difference(ratio, second.p20 / first.p80, second.p80 / first.p20, None)


def verdict(change: Difference, noises: Sequence[float | None], p_value: float | None = None) -> DifferenceVerdict:
    """What can be said. `noises` of both runs; `p_value` where it was adjusted for several comparisons."""
    p = change.p_value if p_value is None else p_value
    if change.low is None or change.high is None:
        return DifferenceVerdict.UNKNOWN
    if p is None:
        return DifferenceVerdict.OVERLAP if change.low <= 1 <= change.high else DifferenceVerdict.APART
    if p >= ALPHA:
        return DifferenceVerdict.NO_DIFFERENCE
    most = max((value for value in noises if value is not None), default=0.0)
    apart = max(change.ratio, 1 / change.ratio) - 1
    return DifferenceVerdict.CLEAR if apart > most else DifferenceVerdict.SMALL


def adjusted(p_values: Sequence[float]) -> tuple[float, ...]:
    """Holm's adjustment: with several comparisons at once, the chance that any of them is wrong stays below `ALPHA`.
    Keeps the order."""
    values = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(values)
    result = np.empty_like(values)
    result[order] = np.maximum.accumulate(np.minimum(values[order] * np.arange(len(values), 0, -1), 1.0))
    return tuple(result.tolist())


def range_over_median(values: Sequence[float]) -> float | None:
    """How far reruns of one thing lie apart: the largest less the smallest, over the median. None for fewer than
    two."""
    if len(values) < 2:
        return None
    median = float(np.median(np.asarray(values, dtype=np.float64)))
    return (max(values) - min(values)) / median if median > 0 else None


# --- the exact test ---------------------------------------------------------------------------------------------------


@cache
def _deals(first: int, second: int) -> npt.NDArray[np.intp]:
    """Every way to deal `first + second` places: the places of the first hand, shape `(ways, first)`; 12,870 rows for 8
    and 8."""
    ways = math.comb(first + second, first)
    flat = itertools.chain.from_iterable(itertools.combinations(range(first + second), first))
    return np.fromiter(flat, dtype=np.intp, count=ways * first).reshape(ways, first)


def _mean_ranks(values: Floats) -> Floats:
    """Ranks from 1 on; equal values share the mean of theirs."""
    ordered = np.sort(values)
    return (np.searchsorted(ordered, values, "left") + np.searchsorted(ordered, values, "right") + 1) / 2


def _mann_whitney(a: Floats, b: Floats) -> float:
    """Share of all ways to deal that are at least as far from the middle as what was seen."""
    ranks = _mean_ranks(np.concatenate((a, b)))
    middle = len(a) * (len(a) + len(b) + 1) / 2
    sums = ranks[_deals(len(a), len(b))].sum(axis=1)
    seen = abs(ranks[: len(a)].sum() - middle)
    return float(np.mean(np.abs(sums - middle) >= seen - 1e-9))


@cache
def _left_out(first: int, second: int) -> int:
    """How many ratios of pairs are left out at either end of the interval."""
    sums = (_deals(first, second) + 1).sum(axis=1) - first * (first + 1) // 2
    below = np.cumsum(np.bincount(sums, minlength=first * second + 1)) / len(sums)
    return int(np.searchsorted(below, ALPHA / 2, "right"))


def _interval(a: Floats, b: Floats) -> tuple[float, float]:
    ratios = np.sort(np.divide.outer(b, a), axis=None)
    left_out = max(_left_out(len(a), len(b)) - 1, 0)
    return float(ratios[left_out]), float(ratios[len(ratios) - 1 - left_out])
