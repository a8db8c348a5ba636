"""Throughput over a grid of shapes: one patch per shape, lighter or darker as it is faster, the best one framed. Main
thread.

Colours: `gui.charts.shades`. A shape that could not be measured is hatched, one that waits is plain.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence

from PySide6.QtCore import QEvent, QLineF, QPointF, QRectF, Qt, Signal
from PySide6.QtGui import (
    QAccessible,
    QBrush,
    QColor,
    QImage,
    QKeyEvent,
    QLinearGradient,
    QMouseEvent,
    QPainter,
    QPen,
)

from devexplorer.core.base import number_text
from devexplorer.gui.charts.shades import STEPS, ramp
from devexplorer.gui.plots.curves import THROUGHPUT_UNITS, Unit, unit_of
from devexplorer.gui.widgets import (
    CENTRE,
    CPU,
    RIGHT,
    Figures,
    Picture,
    announce,
    current_theme,
    draw_text,
    number_texts,
    text_width,
    theme_changed,
)

Place = tuple[int, int]
"""Column and row, counted from 0 at the left and at the top."""

LEAST_PX = (10, 8)
"""Smallest width and height of a patch."""
MOST_TEXTS = 600
"""More figures than these would be too small to read, and slow to draw."""
MOST_PX = 192
TEXT_PX = (34, 16)
"""A patch from this size on has its figure written on it."""
LIGHT_FROM = 0.2
"""Luminance from which on dark figures have more contrast than light ones."""
SCALE_PX, TICKS_PX, EDGE_PX, TOP_PX, LABEL_PX = 12, 18, 12, 20, 16


def figure_colour(fill: QColor) -> QColor:
    """Of the figure on a patch of that colour."""
    red, green, blue = (part**2.2 for part in (fill.redF(), fill.greenF(), fill.blueF()))
    is_light = 0.2126 * red + 0.7152 * green + 0.0722 * blue > LIGHT_FROM
    return QColor("#14161A") if is_light else QColor("#FFFFFF")


class HeatMap(Picture):
    """Feed it with `set_grid`, `set_words` and `add`. `pointed` carries the patch under the pointer, or under the
    keyboard's frame."""

    accessible_role = QAccessible.Role.Chart
    smooth = False

    pointed = Signal(object)
    """A `Place`, or None."""

    def __init__(self) -> None:
        super().__init__("Throughput by shape")
        self.columns: tuple[str, ...] = ()
        """Labels below the columns."""
        self.rows: tuple[str, ...] = ()
        """Labels beside the rows."""
        self._axes = ("", "")
        self._values: dict[Place, float | None] = {}
        self._words: Callable[[Place], str] = lambda _place: ""
        self._image: QImage | None = None
        self._left = self._right = EDGE_PX
        """Room beside the patches, in pixels."""
        self.best: Place | None = None
        """The patch that is framed."""
        self._pointed: Place | None = None
        self._now: Place | None = None
        self.ends = (0.0, 0.0)
        """The lowest and the highest value, the ends of the scale."""
        self._simulated = False
        self._device = CPU
        theme_changed.connect(self._recolour)
        self._recolour()
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    # what is shown

    def _recolour(self) -> None:
        self._ramp, self._image = ramp(self._device), None
        self.update()

    def set_device(self, device: int, *, simulated: bool) -> None:
        """`device`: palette index of the device that was measured."""
        self._device, self._simulated = device, simulated
        self._recolour()

    def set_grid(self, columns: Sequence[int], rows: Sequence[int], x_name: str, y_name: str) -> None:
        """What the columns (left to right) and rows (top to bottom) are."""
        self.columns, self.rows = tuple(map(str, columns)), tuple(map(str, rows))
        self._axes = (x_name, y_name)
        self._values, self.best, self._pointed, self._now, self._image = {}, None, None, None, None
        self.ends = (0.0, 0.0)
        self._left = EDGE_PX + max(map(text_width, (*self.rows, y_name)), default=0) + 8
        self._right = 2 * EDGE_PX + SCALE_PX + 6 + text_width("0.000")
        width = self._left + LEAST_PX[0] * len(columns) + self._right
        self.setMinimumSize(width, TOP_PX + LEAST_PX[1] * len(rows) + TICKS_PX)
        self.update()

    def set_words(self, words: Callable[[Place], str]) -> None:
        """What the tooltip of a patch says; asked only then."""
        self._words = words

    def add(self, values: Mapping[Place, float | None], now: Place | None = None) -> None:
        """TFLOP/s of what is finished since the last time, None where it could not be measured; `now`: what is being
        measured."""
        self._values.update(values)
        self._now, self._image = now, None
        known = [value for value in self._values.values() if value is not None]
        self.ends = (min(known, default=0.0), max(known, default=0.0))
        for place, value in values.items():
            best = None if self.best is None else self._values[self.best]
            if value is not None and (best is None or value > best):
                self.best = place
        if self.best is not None:
            self.setAccessibleDescription(
                f"{len(self._values)} shapes are finished; the best is {self._words(self.best)}"
            )
        self.update()

    def figures(self) -> Figures | None:
        if not self._values:
            return None
        places = sorted(self._values, key=lambda place: (place[1], place[0]))
        unit = self.unit
        rates = number_texts(None if (rate := self._values[place]) is None else rate / unit.factor for place in places)
        rows = [(self.rows[row], self.columns[column], rate) for (column, row), rate in zip(places, rates, strict=True)]
        word = " simulated" if self._simulated else ""
        return Figures((self._axes[1], self._axes[0], f"{unit.name}{word}"), rows)

    @property
    def unit(self) -> Unit:
        """In which the values are written: that of the highest."""
        return unit_of(self.ends[1], THROUGHPUT_UNITS)

    def colour_at(self, place: Place) -> QColor | None:
        """What a patch is filled with; None: hatched, or an outline."""
        value = self._values.get(place)
        if value is None:
            return None
        low, high = self.ends
        share = (value - low) / (high - low) if high > low else 1.0
        return self._ramp[round(share * (STEPS - 1))]

    # where everything is

    def _side(self) -> tuple[float, float]:
        """Width and height of a patch, gap included: four times as wide as it is high at most, and never wider than
        `MOST_PX`."""
        width = (self.width() - self._left - self._right) / max(len(self.columns), 1)
        height = (self.height() - TOP_PX - TICKS_PX) / max(len(self.rows), 1)
        height = min(height, MOST_PX / 2, width)
        width = min(width, MOST_PX, max(4 * height, TEXT_PX[0] + 8))
        return max(width // 1, 1.0), max(height // 1, 1.0)  # whole pixels: all gaps are alike

    def box(self, place: Place) -> QRectF:
        """Where a patch is."""
        width, height = self._side()
        gap = self._gap()
        return QRectF(self._left + place[0] * width, TOP_PX + place[1] * height, width - gap, height - gap)

    def place_at(self, point: QPointF) -> Place | None:
        """The patch at a point."""
        width, height = self._side()
        column, row = math.floor((point.x() - self._left) / width), math.floor((point.y() - TOP_PX) / height)
        return (column, row) if 0 <= column < len(self.columns) and 0 <= row < len(self.rows) else None

    # painting

    def draw(self, painter: QPainter) -> None:
        if self.columns and self.rows:
            self._paint_patches(painter)
        if self._now is not None and self._now not in self._values:
            self._frame(painter, self._now, current_theme().dim, 1)
        self._frame(painter, self.best, current_theme().text, 2)
        if self._pointed is not None and self._pointed != self.best:
            self._frame(painter, self._pointed, current_theme().text, 1)
        self._paint_ticks(painter)
        self._paint_scale(painter)

    def _paint_patches(self, painter: QPainter) -> None:
        """One picture of a pixel per patch, enlarged; then the gaps between them. So a thousand patches cost what one
        does."""
        theme, (width, height) = current_theme(), self._side()
        if self._image is None:
            self._image = self._drawn()
        left, right = self._left, self._left + len(self.columns) * width
        top, bottom = TOP_PX, TOP_PX + len(self.rows) * height
        painter.drawImage(QRectF(left, top, right - left, bottom - top), self._image)
        gap = self._gap()
        painter.setPen(Qt.PenStyle.NoPen)
        painter.setBrush(QBrush(QColor(theme.dim), Qt.BrushStyle.BDiagPattern))
        painter.drawRects([self.box(place) for place, value in self._values.items() if value is None])
        painter.setPen(QPen(QColor(theme.panel), gap))
        xs = [left + (column + 1) * width - gap / 2 for column in range(len(self.columns))]
        ys = [top + (row + 1) * height - gap / 2 for row in range(len(self.rows))]
        painter.drawLines([QLineF(x, top, x, bottom) for x in xs])
        painter.drawLines([QLineF(left, y, right, y) for y in ys])
        if width - gap >= TEXT_PX[0] and height - gap >= TEXT_PX[1] and len(self._values) <= MOST_TEXTS:
            self._paint_figures(painter)

    def _drawn(self) -> QImage:
        image = QImage(len(self.columns), len(self.rows), QImage.Format.Format_RGB32)
        image.fill(QColor(current_theme().window))
        for place in self._values:
            colour = self.colour_at(place)
            if colour is not None:
                image.setPixelColor(*place, colour)
        return image

    def _paint_figures(self, painter: QPainter) -> None:
        factor = self.unit.factor
        for place, value in self._values.items():
            fill = self.colour_at(place)
            if value is not None and fill is not None:
                draw_text(painter, self.box(place), number_text(value / factor), figure_colour(fill), align=CENTRE)

    def _gap(self) -> int:
        return 1 if min(self._side()) < 20 else 2

    def _frame(self, painter: QPainter, place: Place | None, colour: str, width: int) -> None:
        if place is None:
            return
        box = self.box(place)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        if width > 1:  # a second line between the frame and the patch: the frame is seen on every lightness
            painter.setPen(current_theme().panel)
            painter.drawRect(box.adjusted(1.5, 1.5, -1.5, -1.5))
        painter.setPen(QPen(QColor(colour), width))
        painter.drawRect(box if width > 1 else box.adjusted(0.5, 0.5, -0.5, -0.5))

    def _paint_ticks(self, painter: QPainter) -> None:
        left, (width, height) = self._left, self._side()
        below = TOP_PX + len(self.rows) * height
        widest = max(map(text_width, self.columns), default=0) + 8
        for column in self._shown(len(self.columns), width, widest):
            where = QRectF(left + column * width + width / 2 - widest, below + 2, 2 * widest, LABEL_PX)
            draw_text(painter, where, self.columns[column], "dim", align=CENTRE)
        for row in self._shown(len(self.rows), height, LABEL_PX):
            where = QRectF(0, TOP_PX + (row + 0.5) * height - LABEL_PX / 2, left - 6, LABEL_PX)
            draw_text(painter, where, self.rows[row], "dim", align=RIGHT)
        draw_text(painter, QRectF(0, 0, left - 6, TOP_PX), self._axes[1], "text", align=RIGHT)
        after = QRectF(left + len(self.columns) * width + 4, below + 2, 40, LABEL_PX)
        draw_text(painter, after, self._axes[0], "text")
        head = self.unit.name + ("  simulated" if self._simulated else "")
        draw_text(painter, QRectF(left, 0, self.width() - left, TOP_PX), head, "dim")

    @staticmethod
    def _shown(count: int, step_px: float, needed_px: float) -> range:
        """Which of the labels have room."""
        return range(0, count, max(math.ceil(needed_px / step_px), 1))

    def _paint_scale(self, painter: QPainter) -> None:
        if self.best is None:
            return
        (width, height), (low, high) = self._side(), self.ends
        x = self._left + len(self.columns) * width + 28
        box = QRectF(x, TOP_PX, SCALE_PX, max(len(self.rows) * height - 1, 24))
        shades = QLinearGradient(box.bottomLeft(), box.topLeft())
        for step, colour in enumerate(self._ramp):
            shades.setColorAt(step / (STEPS - 1), colour)
        painter.fillRect(box, shades)
        words = QRectF(box.right() + 6, box.top() - 7, 60, 14)
        factor = self.unit.factor
        draw_text(painter, words, number_text(high / factor), "dim")
        if high > low:
            words.moveTop(box.bottom() - 7)
            draw_text(painter, words, number_text(low / factor), "dim")

    # pointing

    def _point(self, place: Place | None) -> None:
        if place != self._pointed:
            self._pointed = place
            if place is not None and self.hasFocus():
                announce(self, self._words(place))
            self.pointed.emit(place)
            self.update()

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self.place_at(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows go from patch to patch, from the best one at first; Escape leaves."""
        moves = {Qt.Key.Key_Left: (-1, 0), Qt.Key.Key_Right: (1, 0), Qt.Key.Key_Up: (0, -1), Qt.Key.Key_Down: (0, 1)}
        move = moves.get(Qt.Key(event.key()))
        if move is not None and self.columns and self.rows:
            if self._pointed is None:
                self._point(self.best or (0, 0))
            else:
                column, row = self._pointed[0] + move[0], self._pointed[1] + move[1]
                self._point((min(max(column, 0), len(self.columns) - 1), min(max(row, 0), len(self.rows) - 1)))
        elif event.key() == Qt.Key.Key_Escape and self._pointed is not None:
            self._point(None)
        else:
            super().keyPressEvent(event)

    def tip_at(self, point: QPointF) -> str:
        """The shape there, once something is known of it."""
        place = self.place_at(point)
        return "" if place is None or place not in self._values else self._words(place)
