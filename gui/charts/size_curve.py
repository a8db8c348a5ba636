"""A rate over a size: curves with their spread and a readout at the pointer. Main thread.

Small and drawn at once: a few hundred points that change when one is measured. Simulated curves are dashed and say so.
"""

from __future__ import annotations

import bisect
import itertools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from PySide6.QtCore import QEvent, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPaintEvent,
    QPen,
    QPolygonF,
    QResizeEvent,
)
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.gui.plots.curves import THROUGHPUT_UNITS, Unit, YScale
from devexplorer.gui.widgets.theme import Role, Theme, font

LEFT_PX, RIGHT_PX, TOP_PX, BOTTOM_PX = 44, 24, 22, 20
POINT_PX = 2.5
MOST_MARKS, MOST_POINTS = 80, 1000
"""Points that are marked one by one; points of a curve that is drawn as it is."""
LOG_FROM = 1.4
"""Sizes that grow by this factor and more from one to the next stand on a logarithmic axis."""
GB_UNITS = (Unit("GB/s", 1.0), Unit("MB/s", 1e-3), Unit("kB/s", 1e-6))


Point = tuple[float, float, float, float]
"""x, median, p20, p80."""


@dataclass(frozen=True)
class Series:
    """One curve: points (x, median, p20, p80), x rising."""

    name: str
    colour: str
    """`#RRGGBB`"""
    points: tuple[Point, ...]
    simulated: bool = False
    mark: str = ""
    """Points are dots, or `ring`, or `square`: curves of one device have one colour."""
    quiet: bool = False
    """A thin line without points: what the others are compared with."""


class SizeCurve(QWidget):
    """Feed it with `set_curves`."""

    pointed = Signal(object)
    """x of the nearest measured size, or None."""

    def __init__(
        self, theme: Theme, name: str, units: tuple[Unit, ...] = THROUGHPUT_UNITS, parent: QWidget | None = None
    ) -> None:
        super().__init__(parent)
        self._theme = theme
        self._series: tuple[Series, ...] = ()
        self._xs: list[float] = []
        self._scale = YScale(units)
        self._x_name, self._title = "", ""
        self._x_text: Callable[[float], str] = lambda x: f"{x:g}"
        self._range: tuple[float, float] | None = None
        self._guide: tuple[float, str] | None = None
        self._at: float | None = None
        self._log = False
        self._place()
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(220, 96)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName(name)

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours; those of the curves come with `set_curves`."""
        self._theme = theme
        self.update()

    def set_axis(
        self, x_name: str, x_text: Callable[[float], str], title: str = "", between: tuple[float, float] | None = None
    ) -> None:
        """What x is and how it is written; `title` stands behind the unit; `between`: what the axis spans even before
        it is measured."""
        self._x_name, self._x_text, self._title, self._range = x_name, x_text, title, between
        self._place()
        self.update()

    def set_curves(self, series: Sequence[Series], guide: tuple[float, str] | None = None) -> None:
        """Show these curves; `guide` is a dotted line across with its words, shown where it is in reach."""
        self._series, self._guide = tuple(series), guide
        self._xs = xs = sorted({point[0] for one in series for point in one.points})
        ratios = sorted(b / a for a, b in itertools.pairwise(xs) if a > 0)
        self._log = bool(ratios) and ratios[len(ratios) // 2] >= LOG_FROM and xs[0] > 0 and xs[-1] / xs[0] >= 8
        top = max((point[3] for one in series for point in one.points), default=0.0)
        if guide is not None and guide[0] <= 3 * top:
            top = max(top, guide[0])
        self._scale.stale = True
        self._scale.fit(top)
        self._place()
        self.setAccessibleDescription("; ".join(self._in_words(one) for one in series))
        self.update()

    def _in_words(self, one: Series) -> str:
        if not one.points:
            return f"{one.name}: nothing measured"
        x, y, _, _ = max(one.points, key=lambda point: point[1])
        return f"{one.name}: {y / self._scale.unit.factor:.4g} {self._scale.unit.name} at {self._x_text(x)}, the most"

    @property
    def xs(self) -> list[float]:
        """Every measured size."""
        return list(self._xs)

    @property
    def series(self) -> tuple[Series, ...]:
        """What is shown."""
        return self._series

    # where everything is

    def _area(self) -> QRectF:
        return QRectF(
            LEFT_PX, TOP_PX, max(self.width() - LEFT_PX - RIGHT_PX, 10), max(self.height() - TOP_PX - BOTTOM_PX, 10)
        )

    def _ends(self) -> tuple[float, float]:
        xs = self._xs
        low, high = self._range or ((xs[0], xs[-1]) if xs else (0.0, 1.0))
        return (low, high) if high > low else (low * 0.5, low * 1.5 or 1.0)

    def _place(self) -> None:
        """Where x begins and how many pixels it takes: asked for each of thousands of points."""
        area, (low, high) = self._area(), self._ends()
        if self._log:
            low, high = math.log(low), math.log(high)
        self._x_from, self._x_left, self._x_per = low, area.left(), area.width() / (high - low)

    def _x(self, x: float) -> float:
        return self._x_left + ((math.log(x) if self._log else x) - self._x_from) * self._x_per

    def _y(self, y: float) -> float:
        area = self._area()
        return area.bottom() - min(y / self._scale.top, 1.2) * area.height()

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._place()

    # painting

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        self._paint_axes(painter)
        if self._guide is not None:
            self._paint_guide(painter, *self._guide)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for one in self._series:
            self._paint_curve(painter, one)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        self._paint_legend(painter)
        if self._at is not None:
            self._paint_readout(painter, self._at)

    def _paint_axes(self, painter: QPainter) -> None:
        theme, area = self._theme, self._area()
        which = font(Role.LABEL)
        metrics = QFontMetrics(which)
        painter.setFont(which)
        ticks = self._scale.ticks
        every = max(math.ceil(len(ticks) * 18 / area.height()), 1)
        for number, (value, text) in enumerate(ticks):
            y = round(self._y(value)) + 0.5
            painter.setPen(QColor(theme.border))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            if number % every == 0:
                painter.setPen(QColor(theme.dim))
                painter.drawText(
                    QRectF(0, y - 8, LEFT_PX - 6, 16), Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, text
                )
        painter.setPen(QColor(theme.dim))
        end = -math.inf
        name = metrics.horizontalAdvance(self._x_name) + 12 if self._x_name else 0
        for x in self._xs:
            at = self._x(x)
            if at <= end + 14:  # of thousands of sizes only those that may have room are written
                continue
            text = self._x_text(x)
            width = metrics.horizontalAdvance(text)
            left = max(min(at - width / 2, self.width() - width - 4), 2)
            if left > end + 14 and left + width <= self.width() - name:
                painter.drawText(QPointF(left, area.bottom() + 4 + metrics.ascent()), text)
                end = left + width
        painter.setPen(QColor(theme.text))
        if self._x_name:
            painter.drawText(QPointF(self.width() - name + 8, area.bottom() + 4 + metrics.ascent()), self._x_name)

    def _paint_guide(self, painter: QPainter, value: float, words: str) -> None:
        if value > self._scale.top:
            return
        area, y = self._area(), round(self._y(value)) + 0.5
        pen = QPen(QColor(self._theme.dim), 1)
        pen.setDashPattern([1, 3])
        painter.setPen(pen)
        painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
        painter.drawText(QRectF(area.left() + 4, y - 16, area.width(), 14), Qt.AlignmentFlag.AlignLeft, words)

    def _paint_curve(self, painter: QPainter, one: Series) -> None:
        colour = QColor(one.colour)
        drawn = one.points if len(one.points) <= MOST_POINTS else thinned(one.points)
        points = [QPointF(self._x(x), self._y(y)) for x, y, _, _ in drawn]
        if not one.quiet and len(drawn) <= MOST_MARKS:
            whisker = QColor(colour)
            whisker.setAlphaF(0.35)
            painter.setPen(QPen(whisker, 3))
            for (x, _, low, high), point in zip(drawn, points, strict=True):
                if self._y(low) - self._y(high) > 2 * POINT_PX:
                    painter.drawLine(QPointF(point.x(), self._y(low)), QPointF(self._x(x), self._y(high)))
        pen = QPen(QColor(self._theme.dim) if one.quiet else colour, 1)
        if one.simulated:
            pen.setDashPattern([4, 3])
        painter.setPen(pen)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawPolyline(QPolygonF(points))
        if one.quiet or (len(points) > MOST_MARKS and not one.mark):
            return
        for point in points:
            self._paint_mark(painter, one, point)

    def _paint_mark(self, painter: QPainter, one: Series, at: QPointF) -> None:
        painter.setPen(QPen(QColor(one.colour), 1))
        painter.setBrush(QColor(self._theme.panel) if one.mark else QColor(one.colour))
        if one.mark == "square":
            painter.drawRect(QRectF(at.x() - POINT_PX, at.y() - POINT_PX, 2 * POINT_PX, 2 * POINT_PX))
        else:
            painter.drawEllipse(at, POINT_PX, POINT_PX)

    def _paint_legend(self, painter: QPainter) -> None:
        theme = self._theme
        which = font(Role.LABEL)
        metrics = QFontMetrics(which)
        painter.setFont(which)
        x = float(LEFT_PX)
        painter.setPen(QColor(theme.dim))
        shown = [one for one in self._series if one.points]
        alike = bool(shown) and all(one.simulated or one.quiet for one in shown)
        head = "  ".join(filter(None, (self._scale.unit.name, self._title, "simulated" if alike else "")))
        painter.drawText(QPointF(x, 14), head)
        x += metrics.horizontalAdvance(head) + 16
        for one in shown:
            words = one.name + ("  simulated" if one.simulated and not alike else "")
            if x + 26 + metrics.horizontalAdvance(words) > self.width() - 4:
                break
            pen = QPen(QColor(theme.dim if one.quiet else one.colour), 1)
            if one.simulated:
                pen.setDashPattern([4, 3])
            painter.setPen(pen)
            painter.drawLine(QPointF(x, 10.5), QPointF(x + 18, 10.5))
            if not one.quiet:
                painter.setRenderHint(QPainter.RenderHint.Antialiasing)
                self._paint_mark(painter, one, QPointF(x + 9, 10.5))
                painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
            painter.setPen(QColor(theme.dim if one.quiet else one.colour))
            painter.drawText(QPointF(x + 24, 14), words)
            x += 24 + metrics.horizontalAdvance(words) + 16

    def _paint_readout(self, painter: QPainter, x: float) -> None:
        theme, area = self._theme, self._area()
        found = [(one, point) for one in self._series for point in one.points if point[0] == x]
        if not found:
            return
        at = round(self._x(x)) + 0.5
        painter.setPen(QColor(theme.dim))
        painter.drawLine(QPointF(at, area.top()), QPointF(at, area.bottom()))
        factor, unit = self._scale.unit.factor, self._scale.unit.name
        lines = [(self._x_text(x), theme.dim)]
        lines += [
            (f"{one.name}  {point[1] / factor:.4g} {unit}", theme.dim if one.quiet else one.colour)
            for one, point in found
        ]
        which = font(Role.LABEL)
        metrics = QFontMetrics(which)
        width = max(metrics.horizontalAdvance(text) for text, _ in lines) + 14
        height = len(lines) * 15 + 6
        left = at + 8 if at + 8 + width < self.width() else at - 8 - width
        box = QRectF(left, min(area.top() + 2, self.height() - height - 2), width, height)
        painter.setPen(QColor(theme.border_strong))
        painter.setBrush(QColor(theme.card))
        painter.drawRoundedRect(box.adjusted(0.5, 0.5, -0.5, -0.5), 4, 4)
        painter.setFont(which)
        for number, (text, colour) in enumerate(lines):
            painter.setPen(QColor(colour))
            painter.drawText(QPointF(box.left() + 7, box.top() + 14 + 15 * number), text)

    # pointing

    def _point(self, x: float | None) -> None:
        if x != self._at:
            self._at = x
            self.pointed.emit(x)
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        xs = self.xs
        self._point(min(xs, key=lambda x: abs(self._x(x) - event.position().x())) if xs else None)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right go from size to size, Escape leaves."""
        xs, step = self.xs, {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is not None and xs:
            at = len(xs) - 1 if self._at is None else bisect.bisect_left(xs, self._at) + step
            self._point(xs[min(max(at, 0), len(xs) - 1)])
        elif event.key() == Qt.Key.Key_Escape and self._at is not None:
            self._point(None)
        else:
            super().keyPressEvent(event)


def thinned(points: Sequence[Point]) -> list[Point]:
    """The lowest and the highest of each few points, in their order: a dip of one shape stays to be seen. At most
    `MOST_POINTS`."""
    size = 2 * math.ceil(len(points) / MOST_POINTS)
    result = []
    for start in range(0, len(points), size):
        part = points[start : start + size]
        result += sorted({min(part, key=lambda point: point[1]), max(part, key=lambda point: point[1])})
    return result
