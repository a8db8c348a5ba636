"""The picture of a roofline: thin datasheet lines, the measured roof, a mark per run. Main thread.

Colour means device, so dtypes are told apart by the shape of their marks. What is simulated is dashed and hollow.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from functools import cache
from typing import NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPen,
    QPolygonF,
)

from devexplorer.core.base import MISSING, flops_text, joined, number_text
from devexplorer.core.roofline.figures import Ceiling, DrawnRoofline, Point, RooflineTarget, point_words
from devexplorer.gui.charts.roofline_canvas import Range, RooflineCanvas
from devexplorer.gui.history.rows import when_text
from devexplorer.gui.plots.canvas import ReadoutBox
from devexplorer.gui.plots.curves import Floats
from devexplorer.gui.widgets import (
    CPU,
    Colour,
    Figures,
    announce,
    colour_of,
    current_theme,
    draw_text,
    text_width,
)

LABEL_PX = 14
"""Height of a label."""
SAME = 0.01
"""Datasheet rates this near to each other share a line."""
SIZE_PX, REACH_PX, RING_PX = 8.0, 12.0, 7.0
"""Of a mark; how near the pointer has to be; radius of the ring round the mark under it."""
GAP_PX, EDGE_PX = 6, 12
"""From a line to its label; right margin."""
LEAST_COLUMN_PX = 80.0
_CORNERS = {
    "float64": (6, 0.0), "tf32": (4, 0.0), "float16": (4, 45.0), "bfloat16": (3, -90.0), "float8_e4m3fn": (3, 90.0),
    "float8_e5m2": (3, 180.0), "int8": (3, 0.0),
}  # fmt: skip
"""Dtype -> corners of its mark, and the direction of the first one in degrees; a circle where there is none."""
GLYPHS = {
    "float64": "⬢⬡", "float32": "●○", "tf32": "◆◇", "float16": "■□", "bfloat16": "▲△", "float8_e4m3fn": "▼▽",
    "float8_e5m2": "◀◁",
    "int8": "▶▷",
}  # fmt: skip
"""The same as letters, for tables: measured, simulated."""
NOWHERE = DrawnRoofline(RooflineTarget("", "", "", False))


class RoofLine(NamedTuple):
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


def ranges(drawn: DrawnRoofline) -> tuple[Range, Range]:
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


def lines(drawn: DrawnRoofline) -> list[RoofLine]:
    """Slopes up to the highest ceiling of their kind, ceilings from where they meet the slope."""
    result = []
    (left, right), (_, top) = ranges(drawn)
    for is_datasheet in (True, False):
        gb_s = drawn.memory.datasheet if is_datasheet else drawn.memory.gb_per_s
        rates = _distinct(_rates(drawn, is_datasheet=is_datasheet))
        # without a measured slope a measured ceiling ends at the datasheet's
        ridge = gb_s or drawn.memory.datasheet
        for rate in rates:
            result.append(
                RoofLine((max(rate * 1e3 / ridge, left) if ridge else left, rate), (right, rate), is_datasheet)
            )
        if gb_s:
            highest = max(rates, default=top)
            result.append(RoofLine((left, gb_s * left / 1e3), (highest * 1e3 / gb_s, highest), is_datasheet))
    return result


def _rates(drawn: DrawnRoofline, *, is_datasheet: bool) -> list[float]:
    rates = (_rate(ceiling, is_datasheet=is_datasheet) for ceiling in drawn.ceilings)
    return [rate for rate in rates if rate]


def _rate(ceiling: Ceiling, *, is_datasheet: bool) -> float | None:
    if is_datasheet:
        return ceiling.datasheet
    return ceiling.best.tflops if ceiling.best is not None else None


def _distinct(rates: Iterable[float]) -> list[float]:
    result: list[float] = []
    for rate in sorted(rates):
        if not result or rate > result[-1] * (1 + SAME):
            result.append(rate)
    return result


# --- labels -----------------------------------------------------------------------------------------------------------


def labels(drawn: DrawnRoofline) -> list[Label]:
    """What is to be written at the right, the most important first: measured ceilings, then those of the datasheet."""
    measured = [
        Label(
            f"{glyph(ceiling.dtype, drawn)}  {ceiling.dtype}  {number_text(ceiling.best.tflops)}",
            ceiling.best.tflops,
            False,
            ceiling.dtype,
        )
        for ceiling in drawn.ceilings
        if ceiling.best is not None
    ]
    datasheet = []
    for rate in _distinct(_rates(drawn, is_datasheet=True)):
        names = [item.dtype for item in drawn.ceilings if item.datasheet and 1 <= item.datasheet / rate <= 1 + SAME]
        short = ", ".join(names) if len(names) <= 2 else f"{names[0]} and {len(names) - 1} more"
        datasheet.append(Label(f"datasheet {number_text(rate)}  {short}", rate, True))
    return sorted([*measured, *datasheet], key=lambda label: (label.is_datasheet, -label.tflops))


def memory_text(drawn: DrawnRoofline) -> str:
    """The slope in words."""
    memory = drawn.memory
    parts = [] if memory.gb_per_s is None else [f"memory {number_text(memory.gb_per_s)} GB/s"]
    if memory.datasheet is not None:
        parts.append(f"datasheet {number_text(memory.datasheet)}" + ("" if parts else " GB/s"))
    return ", ".join(parts)


@cache  # asked for each of thousands of points
def mark(dtype: str, *, crossed: bool = False) -> QPainterPath:
    """The mark of a dtype, one pixel in size."""
    path = QPainterPath()
    corners, first = _CORNERS.get(dtype, (0, 0.0))
    if corners:
        radius = {3: 0.625, 4: 0.59, 6: 0.54}[corners]  # of about the same area
        turns = [math.radians(first + 360 * number / corners) for number in range(corners)]
        path.addPolygon(QPolygonF([QPointF(math.cos(turn), math.sin(turn)) * radius for turn in turns]))
        path.closeSubpath()
    else:
        path.addEllipse(QPointF(0, 0), 0.5, 0.5)
    if crossed:
        for slant in (-0.6, 0.6):
            path.moveTo(-0.6, -slant)
            path.lineTo(0.6, slant)
    return path


class RooflinePicture(RooflineCanvas):
    """Shows what `set_roofline` was given. The mark under the pointer, or reached with the arrow keys, has a box with
    its figures."""

    point_chosen = Signal(object)
    """A `Point` that was clicked, or chosen with Return."""

    def __init__(self) -> None:
        super().__init__("Roofline")
        self._of: Colour = CPU
        self._drawn = NOWHERE
        self._logs: Floats = np.empty((0, 2))
        """Of intensity and TFLOP/s of each point."""
        self.labels: list[tuple[Label, QRectF]] = []
        """Labels with their boxes, in this widget's pixels."""
        self._marks = pg.ScatterPlotItem(size=SIZE_PX)
        self._marks.setZValue(10)
        self.view.addItem(self._marks)
        self.box = ReadoutBox(self, "The run under the pointer")

    def sizeHint(self) -> QSize:
        return QSize(640, 240)

    def minimumSizeHint(self) -> QSize:
        return QSize(320, 150)

    # --- what is shown

    def set_roofline(self, drawn: DrawnRoofline, colour: Colour) -> None:
        """Draw this; `colour`: of its device."""
        if drawn.points != self._drawn.points or drawn.target != self._drawn.target:
            self._point(None)
        self._drawn, self._of = drawn, colour
        best = [
            f"{ceiling.dtype} {flops_text(ceiling.best.tflops)} {ceiling.words}"
            for ceiling in drawn.ceilings
            if ceiling.best
        ]
        self.setAccessibleDescription(f"{drawn.target.text}: {len(drawn.points)} points. {'. '.join(best)}")
        self._draw()

    def figures(self) -> Figures | None:
        drawn = self._drawn
        if drawn.is_empty:
            return None
        word = " simulated" if drawn.target.simulated else ""
        rows: list[tuple[str, ...]] = [
            (point.what, point.dtype, f"{point.intensity:.4g}", f"{point.tflops:.4g}", "wrong values" * point.is_wrong)
            for point in sorted(drawn.points, key=lambda point: point[:2])
        ]
        rows += [
            ("datasheet" if label.is_datasheet else "ceiling", label.dtype, MISSING, f"{label.tflops:.4g}", label.text)
            for label in labels(drawn)
        ]
        return Figures(("Point", "dtype", "FLOP per byte", f"TFLOP/s{word}", "Remark"), rows, memory_text(drawn))

    @property
    def at(self) -> Point | None:
        """The point whose box is shown."""
        return None if self._index is None else self._drawn.points[self._index]

    @property
    def _colour(self) -> str:
        return colour_of(self._of)

    def _draw(self) -> None:
        theme, drawn = current_theme(), self._drawn
        across, up = ranges(drawn)
        self._draw_axes(across, up, across[0])
        roof = lines(drawn)
        for is_datasheet in (True, False):
            pen = pg.mkPen(theme.bar_other, width=1) if is_datasheet else pg.mkPen(self._colour, width=1.6)
            if drawn.target.simulated and not is_datasheet:
                pen.setDashPattern([4, 3])
            parts = [(line.start, line.end) for line in roof if line.is_datasheet == is_datasheet]
            self._add_lines([part for part in parts if part[0][1] == part[1][1]], pen)
            self._add_lines([part for part in parts if part[0][1] != part[1][1]], pen, antialias=True)
        fill = QColor(theme.panel if drawn.target.simulated else self._colour)
        fill.setAlphaF(1.0 if drawn.target.simulated else 0.55)
        self._logs = np.log10([(point.intensity, point.tflops) for point in drawn.points]).reshape(-1, 2)
        right, wrong = pg.mkPen(self._colour, width=1), pg.mkPen(theme.error, width=1)
        self._marks.setData(
            *self._logs.T,
            symbol=[mark(point.dtype, crossed=point.is_wrong) for point in drawn.points],
            pen=[wrong if point.is_wrong else right for point in drawn.points],
            brush=fill,
        )
        self._place()

    def _place(self) -> None:
        """Ticks, labels and the places of the points, for the present size."""
        wanted = labels(self._drawn)
        column = max((text_width(label.text) + 1 for label in wanted), default=0)
        column = min(column, max(self.width() * 0.4, LEAST_COLUMN_PX))
        self.set_margins(1, round(column + GAP_PX + EDGE_PX) if wanted else EDGE_PX + 8)
        self._show_ticks(*ranges(self._drawn))
        self.labels = []
        for label in wanted:  # those that would lie over more important ones are in the table only
            y = self._px(1.0, label.tflops).y()
            for top in (y - LABEL_PX / 2, y - LABEL_PX, y):  # beside its line, else right above or below it
                box = QRectF(self.area().right() + GAP_PX, top, column, LABEL_PX)
                if not any(box.intersects(other) for _, other in self.labels):
                    self.labels.append((label, box))
                    break
        if self._index is not None:
            self._show_box()
        self.viewport().update()

    @property
    def points_px(self) -> Floats:
        """x and y of each point in this widget's pixels: shape `(points, 2)`."""
        origin, unit = self._px(1.0, 1.0), self._px(10.0, 10.0) - self._px(1.0, 1.0)
        return self._logs * unit.toTuple() + origin.toTuple()

    # --- painting

    def drawForeground(self, painter: QPainter, rect: QRectF | QRect) -> None:
        """The labels, and the ring round the mark under the pointer."""
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        word = "  simulated" if self._drawn.target.simulated else ""
        head = f"TFLOP/s vs FLOP per byte{word}   {memory_text(self._drawn)}"
        draw_text(painter, QRectF(EDGE_PX, 0, self.width() - EDGE_PX, self.area().top()), head, "dim")
        for label, box in self.labels:
            draw_text(painter, box, label.text, "dim" if label.is_datasheet else self._of)
        if self._index is not None:
            painter.setPen(QPen(QColor(current_theme().text), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(QPointF(*self.points_px[self._index]), RING_PX, RING_PX)
        super().drawForeground(painter, rect)

    # --- pointing

    def _reach(self) -> float:
        return REACH_PX

    def _order(self) -> list[int]:
        points = self._drawn.points
        return sorted(range(len(points)), key=lambda number: points[number][:2])

    def _first(self) -> int:
        """The fastest."""
        points = self._drawn.points
        return max(range(len(points)), key=lambda number: points[number].tflops)

    def _show_point(self) -> None:
        if self._index is None:
            self.box.hide()
        else:
            self._show_box()

    def _show_box(self) -> None:
        assert self._index is not None
        point, (x, y) = self._drawn.points[self._index], self.points_px[self._index]
        number = "" if point.run is None else f", run #{point.run}"
        when = "in this session" if point.when_unix_s is None else f"{when_text(point.when_unix_s)}{number}"
        self.box.setText(joined("\n", point.what, *point_words(point, self._drawn), when))
        self.box.adjustSize()
        if self.hasFocus():
            announce(self, self.box.text())
        left = x + 14 if x + 14 + self.box.width() <= self.width() else x - 14 - self.box.width()
        top = min(max(y - self.box.height() / 2, 0), max(self.height() - self.box.height(), 0))
        self.box.move(round(max(left, 0)), round(top))
        self.box.show()

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._point(self._nearest(event.position()))
        if self.at is not None:
            self.point_chosen.emit(self.at)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Return chooses the point."""
        if event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.at is not None:
            self.point_chosen.emit(self.at)
        else:
            super().keyPressEvent(event)


def glyph(dtype: str, drawn: DrawnRoofline) -> str:
    """The mark of a dtype as a letter, hollow where it is simulated."""
    return GLYPHS.get(dtype, "●○")[drawn.target.simulated]
