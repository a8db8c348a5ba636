"""What is drawn of a roofline: ranges of the axes, lines of the roof, labels that never overlap. Pure functions; main
thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from devexplorer.core.base import number_text
from devexplorer.gui.plots.curves import decades
from devexplorer.gui.roofline.figures import Ceiling, Roofline

LABEL_PX = 14
"""Height of a label."""
SAME = 0.01
"""Datasheet rates this near to each other share a line."""

Range = tuple[float, float]


class Line(NamedTuple):
    """One part of a roof, from one intensity and TFLOP/s to another."""

    start: tuple[float, float]
    end: tuple[float, float]
    is_datasheet: bool


class Label(NamedTuple):
    """Text at the right end of a line."""

    text: str
    tflops: float
    is_datasheet: bool
    dtype: str = ""
    """The one whose mark is in front; empty: none."""


def ranges(drawn: Roofline) -> tuple[Range, Range]:
    """Of intensity and TFLOP/s."""
    rates = [*_rates(drawn, is_datasheet=False), *_rates(drawn, is_datasheet=True)]
    memory = [value for value in (drawn.memory.gb_per_s, drawn.memory.datasheet) if value]
    ridges = [rate * 1e3 / gb_s for rate in rates for gb_s in memory]
    across = [*(point.intensity for point in drawn.points), *ridges] or [10.0, 100.0]
    up = [*(point.tflops for point in drawn.points), *rates] or [0.1, 10.0]
    if not rates and memory:
        up = [gb_s * intensity / 1e3 for gb_s in memory for intensity in across]
    return _range(across, 2.5, 2.5), _range(up, 2.0, 1.7)


def _range(values: Sequence[float], below: float, above: float) -> Range:
    """At least two decades that hold all of them, with room at both ends."""
    low, high = min(values) / below, max(values) * above
    missing = max(100 / (high / low), 1.0)
    return low / missing, high


def between(low: float, high: float) -> list[float]:
    """2 to 9 times the powers of ten, where that is not too dense."""
    if math.log10(high / low) > 6:
        return []
    values = [step * power for power in decades(low / 10, high) for step in range(2, 10)]
    return [value for value in values if low <= value <= high]


def lines(drawn: Roofline) -> list[Line]:
    """Slopes up to the highest ceiling of their kind, ceilings from where they meet the slope."""
    result = []
    (left, right), (_, top) = ranges(drawn)
    for is_datasheet in (True, False):
        gb_s = drawn.memory.datasheet if is_datasheet else drawn.memory.gb_per_s
        rates = _distinct(_rates(drawn, is_datasheet=is_datasheet))
        # without a measured slope a measured ceiling ends at the datasheet's
        ridge = gb_s or drawn.memory.datasheet
        for rate in rates:
            result.append(Line((max(rate * 1e3 / ridge, left) if ridge else left, rate), (right, rate), is_datasheet))
        if gb_s:
            highest = max(rates, default=top)
            result.append(Line((left, gb_s * left / 1e3), (highest * 1e3 / gb_s, highest), is_datasheet))
    return result


def _rates(drawn: Roofline, *, is_datasheet: bool) -> list[float]:
    rates = (_rate(ceiling, is_datasheet=is_datasheet) for ceiling in drawn.ceilings)
    return [rate for rate in rates if rate]


def _rate(ceiling: Ceiling, *, is_datasheet: bool) -> float | None:
    return ceiling.datasheet if is_datasheet else ceiling.best.tflops if ceiling.best is not None else None


def _distinct(rates: Iterable[float]) -> list[float]:
    result: list[float] = []
    for rate in sorted(rates):
        if not result or rate > result[-1] * (1 + SAME):
            result.append(rate)
    return result


# --- labels -----------------------------------------------------------------------------------------------------------


def labels(drawn: Roofline) -> list[Label]:
    """What is to be written at the right, the most important first: measured ceilings, then those of the datasheet."""
    measured = [
        Label(f"{ceiling.dtype}  {number_text(ceiling.best.tflops)}", ceiling.best.tflops, False, ceiling.dtype)
        for ceiling in drawn.ceilings
        if ceiling.best is not None
    ]
    datasheet = []
    for rate in _distinct(_rates(drawn, is_datasheet=True)):
        names = [item.dtype for item in drawn.ceilings if item.datasheet and 1 <= item.datasheet / rate <= 1 + SAME]
        short = ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"
        datasheet.append(Label(f"datasheet {number_text(rate)}  {short}", rate, True))
    return [*sorted(measured, key=_rate_of, reverse=True), *sorted(datasheet, key=_rate_of, reverse=True)]


def _rate_of(label: Label) -> float:
    return label.tflops


def memory_text(drawn: Roofline) -> str:
    """Along the slope."""
    memory = drawn.memory
    parts = [] if memory.gb_per_s is None else [f"memory {number_text(memory.gb_per_s)} GB/s"]
    if memory.datasheet is not None:
        parts.append(f"datasheet {number_text(memory.datasheet)}" + ("" if parts else " GB/s"))
    return ", ".join(parts)


def placed(wanted: Sequence[Label], y_px: Callable[[float], float], height: float) -> list[tuple[Label, float]]:
    """Labels with their centres, each as near to its line as its neighbours allow; those that have no room are left
    out, the least important first."""
    kept = sorted(wanted[: max(int(height / LABEL_PX), 0)], key=_rate_of, reverse=True)
    centres = spread_out([y_px(label.tflops) for label in kept], LABEL_PX, -LABEL_PX / 2, height + LABEL_PX / 2)
    return list(zip(kept, centres, strict=True))


def spread_out(wanted: Sequence[float], each: float, low: float, high: float) -> list[float]:
    """Centres of things that are `each` high, in the given (rising) order, none over another, all between `low` and
    `high`, moved as little as that allows. They have to fit. Neighbours that would overlap become a block, which is
    where its members want to be on average (the pool-adjacent-violators algorithm of isotonic regression).
    """
    blocks: list[tuple[int, float]] = []  # how many, and the sum of where its first member would be for each of them

    def top(count: int, total: float) -> float:
        """Upper edge of a block, inside the limits."""
        return max(min(total / count - each / 2, high - count * each), low)

    for value in wanted:
        count, total = 1, value
        while blocks and top(*blocks[-1]) + blocks[-1][0] * each > top(count, total):
            before, sum_before = blocks.pop()
            total, count = sum_before + total - count * before * each, before + count
        blocks.append((count, total))
    return [top(*block) + (number + 0.5) * each for block in blocks for number in range(block[0])]
