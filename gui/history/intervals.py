"""Medians of several runs with their middle 60 % as intervals on one axis, and what the difference is worth. Main
thread.

One quantity has an axis in its unit; several (copies of many sizes) share one of ratios to the first run. The axis
does not begin at 0: intervals show differences, not amounts, and it is never narrower than 4 %, so that noise does not
look like a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QAccessible, QColor, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base import MISSING, number_text
from devexplorer.core.benchmark.history.compare import Cell, Comparison, Row
from devexplorer.core.benchmark.kinds import title
from devexplorer.core.benchmark.statistics import Verdict
from devexplorer.core.records import StoredRun
from devexplorer.gui.history.rows import device_text, when_text
from devexplorer.gui.plots.curves import round_values
from devexplorer.gui.widgets import (
    CENTRE,
    Colour,
    Figures,
    Picture,
    Role,
    colour_of,
    current_theme,
    draw_text,
    font,
    number_texts,
    text_width,
)

ENTRY_PX, HEAD_PX, AXIS_PX, EDGE_PX, GAP_PX = 60, 26, 24, 12, 20
NAME_PX, WORDS_PX, PLOT_PX = (170, 300), (250, 400), 160
"""Least and most of the outer columns, least of the plot between them."""
BAR_PX, TICK_PX = 8, 18
LEAST_SPAN = 0.04
LOG_FROM = 8.0
"""Ratios further apart than this are on a logarithmic axis."""
NAMES = {"speedup": "speed-up"}
"""Of quantities that their unit does not name."""


class Entry(NamedTuple):
    """One run's line in one group."""

    run: StoredRun
    cell: Cell
    group: QRectF | None
    """Of the run that the others are compared with: the boxes of all of them."""
    scale: float
    """What its figures are divided by for the axis."""
    box: QRectF


class Head(NamedTuple):
    """What a group measured."""

    text: str
    box: QRectF


class Axis(NamedTuple):
    """From values to pixels."""

    low: float
    high: float
    is_log: bool
    left: float
    right: float
    unit: str

    def x(self, value: float) -> float:
        """Where a value is."""
        low, high, shown = (self._shown(number) for number in (self.low, self.high, value))
        return self.left + (shown - low) / (high - low) * (self.right - self.left)

    def _shown(self, value: float) -> float:
        return math.log10(max(value, 1e-300)) if self.is_log else value

    def ticks(self, most: int) -> list[float]:
        """Round values on it, at most so many."""
        most = max(most, 2)
        if self.is_log:
            decades = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            for steps in ((1, 2, 5), (1,)):
                values = [step * 10.0**decade for decade in decades for step in steps]
                values = [value for value in values if self.low <= value <= self.high]
                if 2 <= len(values) <= most:
                    return values
            return values[:: math.ceil(len(values) / most)] if values else []
        return round_values(self.low, self.high, most)[1]


class Intervals(Picture):
    """Paints the comparison of the last `set_comparison`; as high as its entries are, a scroll area round it shows the
    rest."""

    accessible_role = QAccessible.Role.Chart
    smooth = False

    def __init__(self, colour: Callable[[StoredRun], Colour]) -> None:
        """`colour` of a run's device."""
        super().__init__("Medians with intervals")
        self._colour = colour
        self._comparison: Comparison | None = None
        self.entries: list[Entry] = []
        self.heads: list[Head] = []
        self.axis = Axis(0.0, 1.0, False, 0.0, 1.0, "")
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Fixed)

    def set_comparison(self, comparison: Comparison | None) -> None:
        """Show this one."""
        self._comparison = comparison
        self._arrange()
        texts = [f"#{entry.run.id}: {_value(entry)} {entry.cell.words}" for entry in self.entries]
        self.setAccessibleDescription(". ".join(texts))
        self.update()

    def figures(self) -> Figures | None:
        rows: list[tuple[str, ...]] = []
        for entry in self.entries:
            figure, change = entry.cell.figure, entry.cell.difference
            spread, word = figure.spread, " simulated" if figure.simulated else ""
            numbers = number_texts((spread.median, spread.p20, spread.p80))
            ratio = MISSING if change is None else f"{change.ratio:.3f}"
            what = f"{title(entry.run.result.spec)}{word}"
            rows.append((_name(entry.run, entry.cell), what, *numbers, figure.unit, ratio, entry.cell.words))
        titles = ("Run", "Measured", "Median", "p20", "p80", "Unit", "Times the first run", "In words")
        return Figures(titles, rows) if rows else None

    # --- where everything is

    def _arrange(self) -> None:
        self.entries, self.heads = [], []
        if self._comparison is None:
            return
        rows = self._comparison.rows
        is_ratio = len(rows) > 1
        y = float(AXIS_PX)
        for row in rows:
            first = row.cells[0]
            if is_ratio and first is not None:
                head = ", ".join(part for part in (row.label or NAMES.get(first.figure.quantity, ""), row.unit) if part)
                self.heads.append(Head(head, QRectF(EDGE_PX, y, self.width() - 2 * EDGE_PX, HEAD_PX)))
                y += HEAD_PX
            for run, cell in zip(self._comparison.runs, row.cells, strict=True):
                if cell is not None and first is not None:
                    scale = first.figure.spread.median if is_ratio else 1.0
                    box = QRectF(0, y, self.width(), ENTRY_PX)
                    known = sum(other is not None for other in row.cells)
                    group = box.adjusted(0, 0, 0, (known - 1) * ENTRY_PX) if cell is first else None
                    self.entries.append(Entry(run, cell, group, scale or 1.0, box))
                    y += ENTRY_PX
        left, right = self._columns()
        self.axis = self._axis_for(rows, left, right, is_ratio)
        self.setFixedHeight(round(y) + EDGE_PX // 2)

    def _columns(self) -> tuple[float, float]:
        """Left and right end of the plot."""
        names = (
            max(text_width(_name(entry.run, entry.cell), Role.TEXT), text_width(title(entry.run.result.spec)))
            for entry in self.entries
        )
        name = min(max([NAME_PX[0], *(width + 4 for width in names)]), NAME_PX[1], 0.3 * self.width())
        side = min(max(0.36 * self.width(), WORDS_PX[0]), WORDS_PX[1])
        left = EDGE_PX + name + GAP_PX
        return left, max(self.width() - EDGE_PX - side - GAP_PX, left + PLOT_PX)

    def _axis_for(self, rows: Sequence[Row], left: float, right: float, is_ratio: bool) -> Axis:
        known = [(entry.cell.figure.spread, entry.scale) for entry in self.entries]
        low = min((spread.p20 / scale for spread, scale in known), default=0.0)
        high = max((spread.p80 / scale for spread, scale in known), default=1.0)
        unit = "times the first run" if is_ratio else rows[0].unit if rows else ""
        if low > 0 and high / low > LOG_FROM:
            return Axis(low / 1.3, high * 1.3, True, left, right, unit)
        room = max(0.08 * (high - low), (LEAST_SPAN * high - (high - low)) / 2, 1e-12)
        return Axis(max(low - room, 0.0), high + room, False, left, right, unit)

    def resizeEvent(self, event: QResizeEvent) -> None:
        if event.size().width() != event.oldSize().width():
            self._arrange()

    def tip_at(self, point: QPointF) -> str:
        """Everything about the run at a point."""
        entry = next((entry for entry in self.entries if entry.box.contains(point)), None)
        if entry is None:
            return ""
        spread, run = entry.cell.figure.spread, entry.run
        lines = [
            f"#{run.id}  {title(run.result.spec)}",
            f"{device_text(run, (entry.cell.figure,))}  {run.conditions.device_name}".strip(),
            when_text(run.conditions.started_unix_s),
            f"{_value(entry)}, middle 60 % from {number_text(spread.p20)} to {number_text(spread.p80)}",
            _ratio(entry),
            entry.cell.words,
        ]
        return "\n".join(filter(None, lines))

    # --- painting

    def draw(self, painter: QPainter) -> None:
        self._paint_axis(painter)
        for head in self.heads:
            below = QRectF(head.box.left(), head.box.bottom() - 18, text_width(head.text, Role.STRONG) + 6, 18)
            painter.fillRect(below, current_theme().panel)  # over the grid
            draw_text(painter, below, head.text, "text", Role.STRONG)
        for entry in self.entries:
            self._paint_entry(painter, entry)

    def _paint_axis(self, painter: QPainter) -> None:
        theme, axis = current_theme(), self.axis
        if not self.entries:
            return
        bottom = self.entries[-1].box.bottom()
        grid = QColor(theme.text)
        grid.setAlphaF(0.15)
        widest = text_width("0,000.0") + 16
        ticks = axis.ticks(int((axis.right - axis.left) / widest))
        digits = (
            max(0, -math.floor(math.log10(ticks[1] - ticks[0]) + 1e-9)) if len(ticks) > 1 and not axis.is_log else 0
        )
        for value in ticks:
            x = round(axis.x(value)) + 0.5
            painter.setPen(grid)
            painter.drawLine(QPointF(x, AXIS_PX - 4), QPointF(x, bottom))
            text = (f"{value:,.0f}" if value >= 1 else f"{value:g}") if axis.is_log else f"{value:,.{digits}f}"
            draw_text(painter, QRectF(x - widest, 0, 2 * widest, AXIS_PX - 4), text, "dim", align=CENTRE)
        if axis.unit:
            where = QRectF(axis.right + GAP_PX, 0, self.width() - axis.right - GAP_PX, AXIS_PX - 4)
            draw_text(painter, where, f"{axis.unit}: median and the middle 60 %", "dim")

    def _paint_entry(self, painter: QPainter, entry: Entry) -> None:
        theme, axis, box = current_theme(), self.axis, entry.box
        colour = QColor(colour_of(self._colour(entry.run)))
        if entry.group is not None:
            self._paint_reference(painter, entry, entry.group)
        else:
            painter.setPen(theme.border)
            painter.drawLine(QPointF(EDGE_PX, box.top() + 0.5), QPointF(self.width() - EDGE_PX, box.top() + 0.5))
        top, left, width = box.top() + 9, float(EDGE_PX), axis.left - GAP_PX - EDGE_PX
        draw_text(painter, QRectF(left, top, width, 18), _name(entry.run, entry.cell), colour, Role.STRONG)
        draw_text(painter, QRectF(left, box.top() + 28, width, 16), title(entry.run.result.spec), "dim")
        self._paint_interval(painter, entry, colour)
        left, width = axis.right + GAP_PX, self.width() - axis.right - GAP_PX - EDGE_PX
        draw_text(painter, QRectF(left, top, width, 18), _value(entry), "text", Role.STRONG)
        behind = text_width(_value(entry), Role.STRONG) + 12
        draw_text(painter, QRectF(left + behind, top, width - behind, 18), _ratio(entry), "soft", Role.TEXT)
        words = entry.cell.words or ("the others are compared with this" if entry.group is not None else "")
        is_clear = entry.cell.verdict in (Verdict.CLEAR, Verdict.SMALL, Verdict.APART)
        painter.setFont(font(Role.LABEL))
        painter.setPen(theme.text if is_clear else theme.dim)
        painter.drawText(QRectF(left, box.top() + 28, width, 30), Qt.TextFlag.TextWordWrap, words)

    def _paint_reference(self, painter: QPainter, first: Entry, group: QRectF) -> None:
        """What the others are compared with, behind all of its group."""
        spread = first.cell.figure.spread
        low, middle, high = (self.axis.x(value / first.scale) for value in (spread.p20, spread.median, spread.p80))
        band = QColor(current_theme().text)
        band.setAlphaF(0.06)
        painter.fillRect(QRectF(low, group.top(), max(high - low, 1), group.height()), band)
        pen = QPen(current_theme().dim)
        pen.setDashPattern([2, 3])
        painter.setPen(pen)
        painter.drawLine(QPointF(round(middle) + 0.5, group.top()), QPointF(round(middle) + 0.5, group.bottom()))

    def _paint_interval(self, painter: QPainter, entry: Entry, colour: QColor) -> None:
        spread = entry.cell.figure.spread
        low, middle, high = (self.axis.x(value / entry.scale) for value in (spread.p20, spread.median, spread.p80))
        y = round(entry.box.center().y())
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        is_simulated = entry.cell.figure.simulated
        fill = QColor(colour)
        fill.setAlphaF(0.0 if is_simulated else 0.35)
        pen = QPen(colour)
        if is_simulated:
            pen.setDashPattern([4, 3])
        if high - low >= 2:
            painter.setPen(pen)
            painter.setBrush(fill)
            painter.drawRoundedRect(QRectF(low, y - BAR_PX / 2 + 0.5, high - low, BAR_PX - 1), 3, 3)
        mark = QPen(colour, 3)
        mark.setCapStyle(Qt.PenCapStyle.FlatCap)
        if is_simulated:
            mark.setDashPattern([1.2, 0.8])
        painter.setPen(mark)
        painter.drawLine(QPointF(middle, y - TICK_PX / 2), QPointF(middle, y + TICK_PX / 2))
        painter.restore()


def _name(run: StoredRun, cell: Cell) -> str:
    return f"#{run.id}  {device_text(run, (cell.figure,))}"


def _value(entry: Entry) -> str:
    return f"{number_text(entry.cell.figure.spread.median)} {entry.cell.figure.unit}"


def _ratio(entry: Entry) -> str:
    difference, interval = entry.cell.difference, entry.cell.interval
    if difference is None:
        return ""
    return f"× {difference.ratio:.3f}" + (f" ({interval})" if interval else "")
