"""The picture of a roofline: thin datasheet lines, the measured roof, a mark per run. Main thread.

Colour means device, so dtypes are told apart by the shape of their marks. What is simulated is dashed and hollow.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import cache

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QContextMenuEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPen,
    QPolygonF,
)

from devexplorer.core.base import MISSING
from devexplorer.gui.history.rows import when_text
from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.cursor import ReadoutBox
from devexplorer.gui.plots.curve_item import CurveItem
from devexplorer.gui.plots.curves import Floats, decades
from devexplorer.gui.roofline.figures import Point, Roofline, Target, point_words
from devexplorer.gui.roofline.layout import (
    LABEL_PX,
    Label,
    Range,
    between,
    labels,
    lines,
    memory_text,
    placed,
    ranges,
)
from devexplorer.gui.widgets import (
    CPU,
    Colour,
    Figures,
    announce,
    colour_of,
    current_theme,
    draw_text,
    offer_table,
    text_width,
    theme_changed,
)

SIZE_PX, REACH_PX, RING_PX = 8.0, 12.0, 7.0
"""Of a mark; how near the pointer has to be; radius of the ring round the mark under it."""
LEFT_PX, LEADER_PX, MARK_PX, EDGE_PX = 52, 18, 14, 12
"""Width of the left axis; from a line to its label; room for the mark in front of a label; right margin."""
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
NOWHERE = Roofline(Target("", "", "", False))


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


class RooflinePicture(PlotCanvas):
    """Shows what `set_roofline` was given. The mark under the pointer, or reached with the arrow keys, has a box with
    its figures."""

    pointed = Signal(object)
    """A `Point`, or None."""
    point_chosen = Signal(object)
    """A `Point` that was clicked, or chosen with Return."""

    def __init__(self) -> None:
        super().__init__(LEFT_PX)
        self._of: Colour = CPU
        theme_changed.connect(self._draw)
        self._drawn = NOWHERE
        self._index: int | None = None
        self._logs: Floats = np.empty((0, 2))
        """Of intensity and TFLOP/s of each point."""
        self.labels: list[tuple[Label, QRectF]] = []
        """Labels with their boxes, in this widget's pixels."""
        self._lines: list[pg.PlotCurveItem] = []
        self._marks = pg.ScatterPlotItem(size=SIZE_PX)
        self._marks.setZValue(10)
        self.view.addItem(self._marks)
        self.box = ReadoutBox(self, "The run under the pointer")
        self.view.sigResized.connect(self._place)
        self.set_lane(1)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName("Roofline")

    def sizeHint(self) -> QSize:
        return QSize(640, 240)

    def minimumSizeHint(self) -> QSize:
        return QSize(320, 150)

    # --- what is shown

    def set_roofline(self, drawn: Roofline, colour: Colour) -> None:
        """Draw this; `colour`: of its device."""
        if drawn.points != self._drawn.points or drawn.target != self._drawn.target:
            self._point(None)
        self._drawn, self._of = drawn, colour
        best = [
            f"{ceiling.dtype} {ceiling.best.tflops:.3g} TFLOP/s {ceiling.words}"
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

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_table(self, event)

    @property
    def at(self) -> Point | None:
        """The point whose box is on show."""
        return None if self._index is None else self._drawn.points[self._index]

    @property
    def _colour(self) -> str:
        return colour_of(self._of)

    def _draw(self) -> None:
        theme, drawn = current_theme(), self._drawn
        for line in self._lines:
            self.view.removeItem(line)
        self._lines = []
        x_range, y_range = ranges(drawn)
        self.view.setXRange(*map(math.log10, x_range), padding=0)
        self.view.setYRange(*map(math.log10, y_range), padding=0)
        for values, alpha in ((between, 0.05), (decades, 0.15)):
            grid = QColor(theme.text)
            grid.setAlphaF(alpha)
            across = [((value, y_range[0]), (value, y_range[1])) for value in values(*x_range)]
            up = [((x_range[0], value), (x_range[1], value)) for value in values(*y_range)]
            self._add_lines([*across, *up], pg.mkPen(grid, width=1))
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

    def _add_lines(self, parts: Sequence[tuple[Range, Range]], pen: QPen, *, antialias: bool = False) -> None:
        """From points of intensity and TFLOP/s to others; level lines are crisp without antialiasing."""
        x, y = ([math.log10(point[side]) for part in parts for point in part] for side in (0, 1))
        item = CurveItem(x, y, connect="pairs", pen=pen, antialias=antialias)
        self.view.addItem(item, ignoreBounds=True)
        self._lines.append(item)

    def _place(self) -> None:
        """Ticks, labels and the places of the points, for the present size."""
        wanted = labels(self._drawn)
        column = max((text_width(label.text) + (MARK_PX if label.dtype else 0) + 1 for label in wanted), default=0)
        column = min(column, max(self.width() * 0.4, LEAST_COLUMN_PX))
        self.set_margins(1, round(column + LEADER_PX + EDGE_PX) if wanted else EDGE_PX + 8)
        area, (x_range, y_range) = self.area(), ranges(self._drawn)
        for axis, values, length, room, head in (
            (self.bottom, x_range, area.width(), 60, 0),
            (self.left, y_range, area.height(), 16, 8),  # higher ticks would lie on the words above the picture
        ):
            highest = values[1] * (values[0] / values[1]) ** (head / max(length, 1))
            powers = [power for power in decades(*values) if power <= highest]
            every = math.ceil(room * math.log10(values[1] / values[0]) / max(length, 1))
            axis.show_ticks([(math.log10(power), _tick(power)) for power in powers[:: max(every, 1)]])
        self.labels = [
            (label, QRectF(area.right() + LEADER_PX, area.top() + centre - LABEL_PX / 2, column, LABEL_PX))
            for label, centre in placed(wanted, lambda tflops: self._px(1.0, tflops).y() - area.top(), area.height())
        ]
        if self._index is not None:
            self._show_box()
        self.viewport().update()

    def _px(self, intensity: float, tflops: float) -> QPointF:
        """Where it is, in this widget's pixels."""
        return self.px(math.log10(intensity), math.log10(tflops)) + QPointF(self.area().topLeft())

    @property
    def points_px(self) -> Floats:
        """x and y of each point in this widget's pixels: shape `(points, 2)`."""
        origin, unit = self._px(1.0, 1.0), self._px(10.0, 10.0) - self._px(1.0, 1.0)
        return self._logs * unit.toTuple() + origin.toTuple()

    # --- painting

    def drawForeground(self, painter: QPainter, rect: QRectF | QRect) -> None:
        """The labels, and the ring round the mark under the pointer."""
        theme, area = current_theme(), QRectF(self.area())
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        head = "TFLOP/s over FLOP per byte" + ("  simulated" if self._drawn.target.simulated else "")
        draw_text(painter, QRectF(EDGE_PX, 0, self.width(), area.top()), head, "dim")
        for label, box in self.labels:
            quiet = QColor(theme.bar_other if label.is_datasheet else self._colour)
            painter.setPen(quiet)
            middle, line, end = box.center().y(), self._px(1.0, label.tflops).y(), box.left() - 4
            turns = ((area.right(), line), (area.right() + 5, line), (end - 4, middle), (end, middle))
            painter.drawPolyline([QPointF(x, y) for x, y in turns])
            text = QRectF(box)
            if label.dtype:
                draw_text(painter, box, glyph(label.dtype, self._drawn), quiet)
                text.setLeft(box.left() + MARK_PX)
            draw_text(painter, text, label.text, "dim" if label.is_datasheet else "text")
        self._paint_slope_text(painter, area)
        if self._index is not None:
            painter.setPen(QPen(QColor(theme.text), 1.5))
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawEllipse(QPointF(*self.points_px[self._index]), RING_PX, RING_PX)
        super().drawForeground(painter, rect)

    def _paint_slope_text(self, painter: QPainter, area: QRectF) -> None:
        """Above the higher slope, where no point can be; at the top left where the slope is too short."""
        text, slopes = memory_text(self._drawn), [line for line in lines(self._drawn) if line.start[1] != line.end[1]]
        if not text or not slopes:
            return
        line = max(slopes, key=lambda line: line.start[1])
        start, end = self._px(*line.start), self._px(*line.end)
        along = pg.Point(end - start)
        along = along / max(along.length(), 1e-9)
        if start.y() > area.bottom():  # it enters the picture at the bottom
            start += along * ((area.bottom() - start.y()) / along.y())
        foot = start + along * 10
        tip = foot + along * text_width(text)
        painter.save()
        if tip.y() - LABEL_PX < end.y() or tip.x() > area.right():
            painter.translate(area.left() + 6, area.top() + LABEL_PX / 2)
        else:
            painter.translate(foot)
            painter.rotate(math.degrees(math.atan2(along.y(), along.x())))
            painter.translate(0, -LABEL_PX / 2 - 2)
        draw_text(painter, QRectF(0, -LABEL_PX / 2, area.width(), LABEL_PX), text, "dim")
        painter.restore()

    # --- pointing

    def _point(self, index: int | None) -> None:
        if index == self._index:
            return
        self._index = index
        if index is None:
            self.box.hide()
        else:
            self._show_box()
        self.pointed.emit(self.at)
        self.viewport().update()

    def _show_box(self) -> None:
        assert self._index is not None
        point, (x, y) = self._drawn.points[self._index], self.points_px[self._index]
        number = "" if point.run is None else f", run #{point.run}"
        when = "in this session" if point.when_unix_s is None else f"{when_text(point.when_unix_s)}{number}"
        self.box.setText("\n".join(filter(None, (point.what, *point_words(point, self._drawn), when))))
        self.box.adjustSize()
        if self.hasFocus():
            announce(self, self.box.text())
        left = x + 14 if x + 14 + self.box.width() <= self.width() else x - 14 - self.box.width()
        top = min(max(y - self.box.height() / 2, 0), max(self.height() - self.box.height(), 0))
        self.box.move(round(max(left, 0)), round(top))
        self.box.show()

    def _nearest(self, position: QPointF) -> int | None:
        """Number of the mark under a position."""
        away = np.linalg.norm(self.points_px - position.toTuple(), axis=1)
        return int(away.argmin()) if len(away) and away.min() < REACH_PX else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self._nearest(event.position()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._point(self._nearest(event.position()))
        if self.at is not None:
            self.point_chosen.emit(self.at)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right go from mark to mark, from the fastest at first; Return chooses, Escape leaves."""
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        points = self._drawn.points
        if step is not None and points:
            order = sorted(range(len(points)), key=lambda number: (points[number].intensity, points[number].tflops))
            if self._index is None:
                self._point(max(order, key=lambda number: points[number].tflops))
            else:
                self._point(order[min(max(order.index(self._index) + step, 0), len(order) - 1)])
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.at is not None:
            self.point_chosen.emit(self.at)
        elif event.key() == Qt.Key.Key_Escape and self._index is not None:
            self._point(None)
        else:
            event.ignore()


def glyph(dtype: str, drawn: Roofline) -> str:
    """The mark of a dtype as a letter, hollow where it is simulated."""
    return GLYPHS.get(dtype, "●○")[drawn.target.simulated]


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
