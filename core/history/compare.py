"""Two or more runs of the history side by side: ratios with intervals, what chance can explain, conditions that differ.
Pure functions, any thread; no torch.

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

The first run is what the others are compared with.
"""

from __future__ import annotations

import enum
import itertools
import math
from collections.abc import Iterator, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.base import BadInput, count_text, number_text
from devexplorer.core.benchmark.conditions import Differing, condition_rows
from devexplorer.core.benchmark.kind import Figure, figures, kind_name, kind_of, title
from devexplorer.core.benchmark.statistics import FEWEST
from devexplorer.core.records import BenchResult, Spread, StoredRun

Floats = npt.NDArray[np.float64]

PARTS = 8
"""Consecutive parts of a run that are taken as independent of each other."""
ALPHA = 0.05
AS_RATIO = 1.5
"""From here on a difference is said as a ratio."""
LEAST_CHANGE = 0.01
"""Of a size."""


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


MOST_RUNS = 50


class ComparedCell(NamedTuple):
    """One quantity of one run against the first run's."""

    figure: Figure
    difference: Difference | None = None
    """None: this is the first run, or the first run has no such figure."""
    verdict: DifferenceVerdict | None = None
    words: str = ""
    """`3.1 % faster, more than the noise of either run`."""

    @property
    def interval(self) -> str:
        """The ratio's 95 % interval as text, `1.02 to 1.04`; empty where there is none."""
        change = self.difference
        if change is None or change.low is None or change.high is None or change.p_value is None:
            return ""
        return f"{change.low:.3f} to {change.high:.3f}"


class ComparedRow(NamedTuple):
    """One quantity of all runs."""

    label: str
    """Empty where the runs measured one thing only."""
    unit: str
    cells: tuple[ComparedCell | None, ...]
    """One per run, in their order; None: that run did not measure it."""


class Comparison(NamedTuple):
    """Runs side by side."""

    runs: tuple[StoredRun, ...]
    kind: str
    rows: tuple[ComparedRow, ...]
    differing: tuple[Differing, ...]
    """What was not the same: of what was asked for, then of the conditions."""
    mixed: bool
    """Some are simulated and some measured."""
    remarks: tuple[str, ...]
    """Sentences that belong beside the figures."""


def compare(runs: Sequence[StoredRun]) -> Comparison:
    """Compare with the first run. Raises `BadInput` for what cannot be compared; simulated beside measured runs are
    marked."""
    _check(runs)
    differing = condition_rows(runs)
    figures_by_key = [_by_key(run.result, runs) for run in runs]
    keys = [key for key in figures_by_key[0] if any(key in other for other in figures_by_key[1:])]
    if not keys:
        raise BadInput("these runs have no figure in common: " + "; ".join(title(run.result.spec) for run in runs[:3]))
    rows = tuple(_row(figures_by_key[0][key], [other.get(key) for other in figures_by_key[1:]]) for key in keys)
    is_mixed = len({run.result.simulated for run in runs}) > 1
    remarks = _remarks(runs, figures_by_key, keys, is_mixed)
    return Comparison(tuple(runs), kind_name(runs[0].result), _judged(rows), differing, is_mixed, remarks)


def refusal(runs: Sequence[StoredRun]) -> str | None:
    """Why these runs cannot be compared, in one line (for the tooltip of a disabled button); None: they can."""
    try:
        _check(runs)
    except BadInput as error:
        return str(error)
    return None


def _check(runs: Sequence[StoredRun]) -> None:
    if len(runs) < 2:
        raise BadInput("choose at least two runs to compare")
    if len(runs) > MOST_RUNS:
        raise BadInput(f"{len(runs)} runs are too many to compare at once; choose at most {MOST_RUNS}")
    if len({run.id for run in runs}) < len(runs):
        raise BadInput("a run was chosen twice; choose each run once")
    kinds = list(dict.fromkeys(kind_name(run.result) for run in runs))
    if len(kinds) > 1:
        raise BadInput(f"{' and '.join(kinds)} measure different things; choose runs of one kind")
    results = [run.result for run in runs]
    if reason := kind_of(results[0]).incomparable(results):
        raise BadInput(reason)


def _by_key(result: BenchResult, runs: Sequence[StoredRun]) -> dict[tuple[str, ...], Figure]:
    """Figures by what they measured. Copies between other devices than the first run's go by the devices' roles."""
    by_key = {(figure.quantity, *figure.key): figure for figure in figures(result)}
    kind = kind_of(result)
    roles = kind.roles(result)
    if all(kind.roles(run.result) == roles for run in runs):
        return by_key
    return {_with_roles(key, roles): figure for key, figure in by_key.items()}


def _with_roles(key: tuple[str, ...], roles: dict[str, str]) -> tuple[str, ...]:
    quantity, way, *rest = key
    return (quantity, " → ".join(roles.get(name, name) for name in way.split(" → ")), *rest)


# --- one quantity -----------------------------------------------------------------------------------------------------


def _row(first: Figure, others: Sequence[Figure | None]) -> ComparedRow:
    cells = [
        ComparedCell(first),
        *(None if other is None else ComparedCell(other, _difference(first, other)) for other in others),
    ]
    return ComparedRow(first.label, first.unit, tuple(cells))


def _difference(first: Figure, other: Figure) -> Difference | None:
    if min(_least(first.spread), _least(other.spread)) <= 0:
        return None
    if (
        first.samples
        and other.samples
        and not (first.is_computed or other.is_computed)
        and min(first.samples + other.samples) > 0
    ):
        result = difference(first.samples, other.samples)
        # the samples that are kept are a part of those that the median was made of: the ratio is that of the figures on
        # show
        ratio = other.spread.median / first.spread.median
        if result.low is not None and result.high is not None:
            return result._replace(ratio=ratio, low=min(result.low, ratio), high=max(result.high, ratio))
        return result._replace(ratio=ratio)
    return difference_of_spreads(first.spread, other.spread)


def _least(known: Spread) -> float:
    return min(known.median, known.p20)


def _judged(rows: Sequence[ComparedRow]) -> tuple[ComparedRow, ...]:
    """Verdicts and texts, the p-values of all comparisons adjusted together."""
    p_values: dict[bool, list[float]] = {True: [], False: []}
    for row in rows:
        for cell in row.cells:
            if cell is not None and cell.difference is not None and cell.difference.p_value is not None:
                p_values[cell.figure.whole].append(cell.difference.p_value)
    corrected = {whole: iter(adjusted(values)) for whole, values in p_values.items()}
    return tuple(row._replace(cells=tuple(_judge(cell, row.cells[0], corrected) for cell in row.cells)) for row in rows)


def _judge(
    cell: ComparedCell | None, first: ComparedCell | None, corrected: dict[bool, Iterator[float]]
) -> ComparedCell | None:
    if cell is None or first is None or cell.difference is None:
        return cell
    p_value = None if cell.difference.p_value is None else next(corrected[cell.figure.whole])
    decided = verdict(cell.difference, (first.figure.noise, cell.figure.noise), p_value)
    return cell._replace(verdict=decided, words=_difference_text(first.figure, cell.figure, cell.difference, decided))


def speed_text(ratio: float) -> str:
    """A ratio of rates as text: `3.1 % faster`, `12 % slower`, `2.31 times as fast`, `as fast`."""
    if ratio >= AS_RATIO or ratio <= 1 / AS_RATIO:
        return f"{number_text(ratio)} times as fast"
    return _percent_text(ratio, "faster", "slower", "as fast")


def duration_text(ratio: float) -> str:
    """A ratio of times as text: `23 % longer`, `12 % shorter`, `2.31 times as long`, `as long`."""
    if ratio >= AS_RATIO:
        return f"{number_text(ratio)} times as long"
    return _percent_text(ratio, "longer", "shorter", "as long")


def _percent_text(ratio: float, more: str, less: str, same: str) -> str:
    percent = (ratio - 1) * 100
    if abs(percent) < 0.05:
        return same
    return f"{number_text(abs(percent), 2)} % {more if percent > 0 else less}"


def size_text(ratio: float) -> str:
    """A ratio of sizes as text: `50 % larger`, `the same`."""
    if abs(ratio - 1) < LEAST_CHANGE:
        return "the same"
    return _percent_text(ratio, "larger", "smaller", "the same")


def _difference_text(first: Figure, other: Figure, change: Difference, decided: DifferenceVerdict) -> str:
    speed = duration_text(change.ratio) if first.quantity == "seconds" else speed_text(change.ratio)
    if first.quantity == "speedup":
        speed = f"{number_text(change.ratio)} times the speed-up"
    if first.quantity == "mib":
        return size_text(change.ratio)
    if first.is_computed and other.is_computed:
        return f"{speed} (both simulated: a model without noise)"
    if first.simulated != other.simulated:
        return f"{speed} (a simulation against a measurement)"
    noises = [value for value in (first.noise, other.noise) if value is not None]
    most = f" of {number_text(max(noises) * 100, 2)} %" if noises else ""
    return {
        DifferenceVerdict.CLEAR: f"{speed}, more than the noise of either run",
        DifferenceVerdict.SMALL: f"{speed}, less than the noise{most} but steady: chance does not explain it",
        DifferenceVerdict.NO_DIFFERENCE: f"{speed}, no significant difference",
        DifferenceVerdict.APART: f"{speed}; the middle 60 % of both do not overlap",
        DifferenceVerdict.OVERLAP: f"{speed}; the middle 60 % of both overlap",
        DifferenceVerdict.UNKNOWN: f"{speed}; too few figures to say anything about noise",
    }[decided]


# --- remarks ----------------------------------------------------------------------------------------------------------


def _remarks(
    runs: Sequence[StoredRun],
    figures_by_key: Sequence[dict[tuple[str, ...], Figure]],
    keys: Sequence[tuple[str, ...]],
    mixed: bool,
) -> tuple[str, ...]:
    remarks = []
    if mixed:
        names = ", ".join(f"#{run.id}" for run in runs if run.result.simulated)
        remarks.append(
            f"This compares simulated with measured runs: {names} come from the model of a virtual GPU, not from a"
            " card."
        )
    if stopped := [f"#{run.id}" for run in runs if run.result.stopped]:
        remarks.append(f"Ended before its time: {', '.join(stopped)}; what was measured until then is compared.")
    if wrong := [f"#{run.id}" for run in runs if run.result.verified is False]:
        remarks.append(f"The values were wrong: {', '.join(wrong)}; the speed of wrong results means nothing.")
    left_out = len({key for each in figures_by_key for key in each} - set(keys))
    if left_out:
        remarks.append(f"Left out: {count_text(left_out, 'figure')} that the first run or all others lack.")
    again = [
        run
        for run in runs
        if run.result.spec == runs[0].result.spec and _card(run) == _card(runs[0]) and not run.result.simulated
    ]
    medians = [
        each[keys[0]].spread.median
        for run, each in zip(runs, figures_by_key, strict=True)
        if run in again and keys[0] in each
    ]
    apart = range_over_median(medians)
    if len(keys) == 1 and apart is not None:
        within = f"{number_text(apart * 100, 2)} %"
        remarks.append(
            f"{len(medians)} runs measured exactly the same on one device; their medians lie within {within}."
        )
    if not any(run.result.simulated for run in runs):
        remarks.append(
            "Runs of the same thing differ more than the samples within a run; repeat both before you believe a few per"
            " cent."
        )
    return tuple(remarks)


def _card(run: StoredRun) -> tuple[str | None, ...]:
    """What tells devices of one number apart. An export without names says no host: those are all one."""
    return run.conditions.host, run.conditions.device_name, run.conditions.uuid
