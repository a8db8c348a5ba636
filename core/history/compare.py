"""Two or more runs of the history side by side: ratios with intervals, what chance can explain, conditions that differ.
Pure functions, any thread; no torch.

The first run is what the others are compared with. `core.history.difference` says how significance is found.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from devexplorer.core.base import BadInput, count_text, number_text
from devexplorer.core.benchmark.conditions import Differing, condition_rows
from devexplorer.core.benchmark.kind import Figure, figures, kind_name, kind_of, title
from devexplorer.core.history.difference import (
    Difference,
    DifferenceVerdict,
    adjusted,
    difference,
    difference_of_spreads,
    range_over_median,
    verdict,
)
from devexplorer.core.records import BenchResult, Spread, StoredRun

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
        and not first.simulated
        and not other.simulated
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
    p_values = [p for row in rows for cell in row.cells if (p := _p_value(cell)) is not None]
    corrected = iter(adjusted(p_values))
    return tuple(row._replace(cells=tuple(_judge(cell, row.cells[0], corrected) for cell in row.cells)) for row in rows)


def _p_value(cell: ComparedCell | None) -> float | None:
    return None if cell is None or cell.difference is None else cell.difference.p_value


def _judge(cell: ComparedCell | None, first: ComparedCell | None, corrected: Iterator[float]) -> ComparedCell | None:
    if cell is None or first is None or cell.difference is None:
        return cell
    p_value = None if cell.difference.p_value is None else next(corrected)
    decided = verdict(cell.difference, (first.figure.noise, cell.figure.noise), p_value)
    return cell._replace(verdict=decided, words=_difference_text(first.figure, cell.figure, cell.difference, decided))


def speed_text(ratio: float, *, more_is_better: bool = True) -> str:
    """A ratio of figures as text: `3.1 % faster`, `12 % slower`, `2.31 times as fast`, `as fast`."""
    speed = ratio if more_is_better else 1 / ratio
    if speed >= 1.5 or speed <= 1 / 1.5:
        return f"{number_text(speed)} times as fast"
    percent = (speed - 1) * 100
    if abs(percent) < 0.05:
        return "as fast"
    return f"{number_text(abs(percent), 2)} % {'faster' if percent > 0 else 'slower'}"


def _difference_text(first: Figure, other: Figure, change: Difference, decided: DifferenceVerdict) -> str:
    speed = speed_text(change.ratio, more_is_better=first.more_is_better)
    if first.quantity == "speedup":
        speed = f"{number_text(change.ratio)} times the speed-up"
    if first.simulated and other.simulated:
        return f"{speed} (both simulated: a model without noise)"
    if first.simulated or other.simulated:
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
