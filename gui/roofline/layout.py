"""Where everything of a roofline stands: axes, lines, labels that never overlap. Pure geometry, no painting; main
thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import NamedTuple

from PySide6.QtCore import QLineF, QPointF, QRectF

from devexplorer.core.base.formats import number_text
from devexplorer.gui.roofline.figures import Ceiling, Point, Roofline

LEFT_PX, TOP_PX, BOTTOM_PX, EDGE_PX = 52, 22, 22, 12
LEADER_PX, LINE_PX, MARK_PX = 18, 14, 14
"""From a line to its label; height of a label; room for the mark of a dtype in front of it."""
SAME = 0.01
"""Datasheet rates this near to each other share a line."""


class LogAxis(NamedTuple):
    """From values to pixels, by their logarithm."""

    low: float
    high: float
    start_px: float
    end_px: float

    def at(self, value: float) -> float:
        """Where a value stands; what is not on the axis stands beyond its end."""
        share = math.log(max(value, 1e-30) / self.low) / math.log(self.high / self.low)
        return self.start_px + share * (self.end_px - self.start_px)

    @property
    def decades(self) -> list[float]:
        """Powers of ten on it."""
        first, last = math.ceil(math.log10(self.low) - 1e-9), math.floor(math.log10(self.high) + 1e-9)
        return [10.0**power for power in range(first, last + 1)]

    def labelled(self, room_px: float) -> list[float]:
        """The powers of ten that have room for a label."""
        powers = self.decades
        each = abs(self.end_px - self.start_px) / max(math.log10(self.high / self.low), 1e-9)
        return powers[:: max(math.ceil(room_px / max(each, 1e-9)), 1)]

    @property
    def between(self) -> list[float]:
        """2 to 9 times the powers of ten, where that is not too dense."""
        if math.log10(self.high / self.low) > 6:
            return []
        first = math.floor(math.log10(self.low))
        last = math.ceil(math.log10(self.high))
        every = (step * 10.0**power for power in range(first, last + 1) for step in range(2, 10))
        return [value for value in every if self.low <= value <= self.high]


class Line(NamedTuple):
    """One part of a roof."""

    line: QLineF
    is_datasheet: bool


class Label(NamedTuple):
    """Words at the right end of a line."""

    text: str
    line_y: float
    box: QRectF
    is_datasheet: bool
    dtype: str = ""
    """The one whose mark stands in front; empty: none."""


class Along(NamedTuple):
    """Words along the slope: they begin at `origin` and run at `angle` degrees, counted clockwise."""

    text: str
    origin: QPointF
    angle: float


class Layout(NamedTuple):
    """Everything."""

    plot: QRectF
    x: LogAxis
    y: LogAxis
    lines: tuple[Line, ...] = ()
    labels: tuple[Label, ...] = ()
    slope: Along | None = None
    points: tuple[tuple[Point, QPointF], ...] = ()


class _Wanted(NamedTuple):
    text: str
    tflops: float
    is_datasheet: bool
    dtype: str


def arrange(drawn: Roofline, width: float, height: float, measure: Callable[[str], float]) -> Layout:
    """Lay out `drawn` in so many pixels; `measure` gives the width of a label's text."""
    wanted = _labels(drawn)
    column = max((measure(label.text) + (MARK_PX if label.dtype else 0) for label in wanted), default=0.0)
    column = min(column, max(width * 0.4, 80.0))
    right = width - EDGE_PX - (column + LEADER_PX if wanted else 8)
    plot = QRectF(LEFT_PX, TOP_PX, max(right - LEFT_PX, 40.0), max(height - TOP_PX - BOTTOM_PX, 40.0))
    (x_low, x_high), (y_low, y_high) = _ranges(drawn)
    x = LogAxis(x_low, x_high, plot.left(), plot.right())
    y = LogAxis(y_low, y_high, plot.bottom(), plot.top())
    return Layout(
        plot,
        x,
        y,
        tuple(_lines(drawn, x, y)),
        _placed(wanted, plot, y, column),
        _along_slope(drawn, plot, x, y, measure),
        tuple((point, QPointF(x.at(point.intensity), y.at(point.tflops))) for point in drawn.points),
    )


def _ranges(drawn: Roofline) -> tuple[tuple[float, float], tuple[float, float]]:
    rates = [
        *(c.best.tflops for c in drawn.ceilings if c.best is not None),
        *(c.datasheet for c in drawn.ceilings if c.datasheet),
    ]
    memory = [value for value in (drawn.memory.gb_per_s, drawn.memory.datasheet) if value]
    ridges = [rate * 1e3 / gb_s for rate in rates for gb_s in memory]
    across = [*(point.intensity for point in drawn.points), *ridges] or [10.0, 100.0]
    up = [*(point.tflops for point in drawn.points), *rates] or [0.1, 10.0]
    if not rates and memory:
        up = [gb_s * at / 1e3 for gb_s in memory for at in across]
    return _range(across, 2.5, 2.5), _range(up, 2.0, 1.7)


def _range(values: Iterable[float], below: float, above: float) -> tuple[float, float]:
    """At least two decades that hold all of them, with room at both ends."""
    known = list(values)
    low, high = min(known) / below, max(known) * above
    missing = max(100 / (high / low), 1.0)
    return low / missing, high


def _lines(drawn: Roofline, x: LogAxis, y: LogAxis) -> list[Line]:
    """Slopes up to the highest ceiling of their kind, ceilings from where they meet the slope."""
    found = []
    for is_datasheet in (True, False):
        gb_s = drawn.memory.datasheet if is_datasheet else drawn.memory.gb_per_s
        rates = [rate for rate in (_rate(ceiling, is_datasheet) for ceiling in drawn.ceilings) if rate]
        for rate in _distinct(rates):
            ridge = (
                gb_s or drawn.memory.datasheet
            )  # without a measured slope a measured ceiling ends at the datasheet's
            start = min(max(rate * 1e3 / ridge, x.low), x.high) if ridge else x.low
            found.append(Line(QLineF(x.at(start), y.at(rate), x.end_px, y.at(rate)), is_datasheet))
        if gb_s:
            start = max(x.low, y.low * 1e3 / gb_s)
            end = min(max(rates, default=y.high) * 1e3 / gb_s, x.high, y.high * 1e3 / gb_s)
            if end > start:
                found.append(
                    Line(QLineF(x.at(start), y.at(start * gb_s / 1e3), x.at(end), y.at(end * gb_s / 1e3)), is_datasheet)
                )
    return found


def _rate(ceiling: Ceiling, is_datasheet: bool) -> float | None:
    return ceiling.datasheet if is_datasheet else ceiling.best.tflops if ceiling.best is not None else None


def _distinct(rates: Iterable[float]) -> list[float]:
    found: list[float] = []
    for rate in sorted(rates):
        if not found or rate > found[-1] * (1 + SAME):
            found.append(rate)
    return found


# --- labels -----------------------------------------------------------------------------------------------------------


def _labels(drawn: Roofline) -> list[_Wanted]:
    """What is to be written at the right, the most important first: measured ceilings, then those of the datasheet."""
    measured = [
        _Wanted(f"{ceiling.dtype}  {number_text(ceiling.best.tflops)}", ceiling.best.tflops, False, ceiling.dtype)
        for ceiling in drawn.ceilings
        if ceiling.best is not None
    ]
    sheets: list[tuple[float, list[str]]] = []
    for ceiling in sorted((c for c in drawn.ceilings if c.datasheet), key=lambda c: c.datasheet or 0.0):
        rate = ceiling.datasheet or 0.0
        if sheets and rate <= sheets[-1][0] * (1 + SAME):
            sheets[-1][1].append(ceiling.dtype)
        else:
            sheets.append((rate, [ceiling.dtype]))
    datasheet = [_Wanted(f"datasheet {number_text(rate)}  {_short(names)}", rate, True, "") for rate, names in sheets]
    return [*sorted(measured, key=lambda label: -label.tflops), *sorted(datasheet, key=lambda label: -label.tflops)]


def _short(names: Sequence[str]) -> str:
    """`float16, bfloat16`, or the first of more."""
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"


def _placed(wanted: Sequence[_Wanted], plot: QRectF, y: LogAxis, column: float) -> tuple[Label, ...]:
    """Each as near to its line as its neighbours allow; those that have no room are left out, the least important
    first."""
    kept = sorted(wanted[: max(int(plot.height() / LINE_PX), 0)], key=lambda label: -label.tflops)
    centres = spread_out(
        [y.at(label.tflops) for label in kept], LINE_PX, plot.top() - LINE_PX / 2, plot.bottom() + LINE_PX / 2
    )
    left = plot.right() + LEADER_PX
    return tuple(
        Label(
            label.text,
            y.at(label.tflops),
            QRectF(left, centre - LINE_PX / 2, column, LINE_PX),
            label.is_datasheet,
            label.dtype,
        )
        for label, centre in zip(kept, centres, strict=True)
    )


def spread_out(wanted: Sequence[float], each: float, low: float, high: float) -> list[float]:
    """Centres of things that are `each` high, in the given (rising) order, none over another, all between `low` and
    `high`, moved as little as that allows. They have to fit. Neighbours that would overlap become a block, which stands
    where its members want to be on average (the pool-adjacent-violators algorithm of isotonic regression).
    """
    blocks: list[tuple[int, float]] = []  # how many, and the sum of where its first member would be for each of them
    for value in wanted:
        count, total = 1, value
        while blocks and _top(blocks[-1], each, low, high) + blocks[-1][0] * each > _top(
            (count, total), each, low, high
        ):
            before, sum_before = blocks.pop()
            total, count = sum_before + total - count * before * each, before + count
        blocks.append((count, total))
    tops = ((count, _top((count, total), each, low, high)) for count, total in blocks)
    return [top + (number + 0.5) * each for count, top in tops for number in range(count)]


def _top(block: tuple[int, float], each: float, low: float, high: float) -> float:
    """Upper edge of a block, inside the limits."""
    count, total = block
    return max(min(total / count - each / 2, high - count * each), low)


def _along_slope(
    drawn: Roofline, plot: QRectF, x: LogAxis, y: LogAxis, measure: Callable[[str], float]
) -> Along | None:
    """Above the higher slope, where no point can be; at the top left where the slope is too short."""
    memory = drawn.memory
    parts = [] if memory.gb_per_s is None else [f"memory {number_text(memory.gb_per_s)} GB/s"]
    if memory.datasheet is not None:
        parts.append(f"datasheet {number_text(memory.datasheet)}" + ("" if parts else " GB/s"))
    if not parts:
        return None
    text = ", ".join(parts)
    gb_s = max(value for value in (memory.gb_per_s, memory.datasheet) if value is not None)
    start = max(x.low, y.low * 1e3 / gb_s)
    per_decade_x, per_decade_y = plot.width() / math.log10(x.high / x.low), plot.height() / math.log10(y.high / y.low)
    angle = math.atan2(per_decade_y, per_decade_x)
    length = measure(text)
    rates = [rate for ceiling in drawn.ceilings for rate in (_rate(ceiling, True), _rate(ceiling, False)) if rate]
    foot = QPointF(x.at(start) + 10 * math.cos(angle), y.at(start * gb_s / 1e3) - 10 * math.sin(angle))
    end_y = foot.y() - length * math.sin(angle)
    if end_y - LINE_PX < y.at(max(rates, default=y.high)) or foot.x() + length * math.cos(angle) > plot.right():
        return Along(text, QPointF(plot.left() + 6, plot.top() + LINE_PX - 2), 0.0)
    lift = 5.0
    return Along(
        text, QPointF(foot.x() - lift * math.sin(angle), foot.y() - lift * math.cos(angle)), -math.degrees(angle)
    )


def overlapping(labels: Sequence[Label]) -> bool:
    """Whether any two lie over each other."""
    return any(a.box.intersects(b.box) for a, b in pairwise(sorted(labels, key=lambda label: label.box.top())))
