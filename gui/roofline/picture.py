"""The picture of a roofline, painted from `roofline_layout`: thin datasheet lines, the measured roof, a mark per run.
Main thread.

Colour means device, so dtypes are told apart by the shape of their marks. What is simulated is dashed and hollow.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import (
    QColor,
    QFontMetrics,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPaintEvent,
    QPen,
    QPixmap,
    QPolygonF,
    QResizeEvent,
)
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from devexplorer.gui.history.rows import when_text
from devexplorer.gui.roofline.figures import Point, Roofline, Target, point_words
from devexplorer.gui.roofline.layout import BOTTOM_PX, EDGE_PX, LEADER_PX, LEFT_PX, MARK_PX, TOP_PX, Layout, arrange
from devexplorer.gui.widgets.theme import Role, Theme, font

SIZE_PX, REACH_PX, RING_PX = 8.0, 12.0, 7.0
"""Of a mark; how near the pointer has to be; radius of the ring round the mark under it."""
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


def mark(dtype: str, at: QPointF, size: float = SIZE_PX) -> QPainterPath:
    """The mark of a dtype."""
    path = QPainterPath()
    corners, first = _CORNERS.get(dtype, (0, 0.0))
    radius = size / 2
    if not corners:
        path.addEllipse(at, radius, radius)
        return path
    radius *= {3: 1.25, 4: 1.18, 6: 1.08}[corners]  # of about the same area
    turns = [math.radians(first + 360 * number / corners) for number in range(corners)]
    path.addPolygon(
        QPolygonF([QPointF(at.x() + radius * math.cos(turn), at.y() + radius * math.sin(turn)) for turn in turns])
    )
    path.closeSubpath()
    return path


class RooflinePicture(QWidget):
    """Shows what `set_roofline` was given. The mark under the pointer, or reached with the arrow keys, has a box with
    its words."""

    pointed = Signal(object)
    """A `Point`, or None."""
    point_chosen = Signal(object)
    """A `Point` that was clicked, or chosen with Return."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme, self._colour = theme, theme.cpu
        self._drawn = NOWHERE
        self._at: int | None = None
        self._still: QPixmap | None = None
        self.layout_now: Layout = arrange(NOWHERE, 400, 200, lambda _text: 0.0)
        """Where everything stands."""
        self.box = QLabel(self)
        self.box.setTextFormat(Qt.TextFormat.PlainText)
        self.box.setFont(font(Role.LABEL))
        self.box.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.box.setAccessibleName("The run under the pointer")
        self.box.hide()
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Roofline")
        self._style_box()

    def sizeHint(self) -> QSize:
        return QSize(640, 240)

    def minimumSizeHint(self) -> QSize:
        return QSize(320, 150)

    # --- what is shown

    def set_theme(self, theme: Theme, colour: str) -> None:
        """Paint in other colours; `colour` is the device's."""
        self._theme, self._colour = theme, colour
        self._style_box()
        self._redraw()

    def set_roofline(self, drawn: Roofline, colour: str) -> None:
        """Draw this; `colour`: `#RRGGBB` of its device."""
        if drawn.points != self._drawn.points or drawn.target != self._drawn.target:
            self._point(None)
        self._drawn, self._colour = drawn, colour
        best = [
            f"{ceiling.dtype} {ceiling.best.tflops:.3g} TFLOP/s {ceiling.words}"
            for ceiling in drawn.ceilings
            if ceiling.best
        ]
        self.setAccessibleDescription(f"{drawn.target.text}: {len(drawn.points)} points. {'. '.join(best)}")
        self._redraw()

    @property
    def at(self) -> Point | None:
        """The point whose box is on show."""
        return None if self._at is None else self.layout_now.points[self._at][0]

    def _style_box(self) -> None:
        theme = self._theme
        self.box.setStyleSheet(
            f"background: {theme.card}; color: {theme.text}; border: 1px solid {theme.border_strong}; border-radius:"
            " 4px; padding: 4px 7px;"
        )

    def _redraw(self) -> None:
        metrics = QFontMetrics(font(Role.LABEL))
        self.layout_now = arrange(
            self._drawn, self.width(), self.height(), lambda text: float(metrics.horizontalAdvance(text)) + 1
        )
        self._still = None
        if self._at is not None:
            self._show_box()
        self.update()

    def resizeEvent(self, event: QResizeEvent) -> None:
        self._redraw()

    # --- painting

    def paintEvent(self, _event: QPaintEvent) -> None:
        if self._still is None or self._still.devicePixelRatio() != self.devicePixelRatio():
            self._still = self._paint_still()
        painter = QPainter(self)
        painter.drawPixmap(0, 0, self._still)
        if self._at is not None:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing)
            painter.setPen(QPen(QColor(self._theme.text), 1.5))
            painter.drawEllipse(self.layout_now.points[self._at][1], RING_PX, RING_PX)
        painter.end()

    def _paint_still(self) -> QPixmap:
        """Everything but the ring, once: thousands of marks are not painted again for each step of the pointer."""
        ratio = self.devicePixelRatio()
        picture = QPixmap(max(round(self.width() * ratio), 1), max(round(self.height() * ratio), 1))
        picture.setDevicePixelRatio(ratio)
        picture.fill(Qt.GlobalColor.transparent)
        painter = QPainter(picture)
        painter.setFont(font(Role.LABEL))
        self._paint_axes(painter)
        self._paint_lines(painter)
        self._paint_marks(painter)
        self._paint_labels(painter)
        painter.end()
        return picture

    def _paint_axes(self, painter: QPainter) -> None:
        theme, layout, plot = self._theme, self.layout_now, self.layout_now.plot
        fine, coarse = QColor(theme.text), QColor(theme.text)
        fine.setAlphaF(0.05)
        coarse.setAlphaF(0.15)
        for values, colour in ((layout.x.between, fine), (layout.x.decades, coarse)):
            painter.setPen(QPen(colour, 1))
            for value in values:
                at = round(layout.x.at(value)) + 0.5
                painter.drawLine(QPointF(at, plot.top()), QPointF(at, plot.bottom()))
        for values, colour in ((layout.y.between, fine), (layout.y.decades, coarse)):
            painter.setPen(QPen(colour, 1))
            for value in values:
                at = round(layout.y.at(value)) + 0.5
                painter.drawLine(QPointF(plot.left(), at), QPointF(plot.right(), at))
        painter.setPen(QColor(theme.dim))
        unit = "FLOP / byte"
        unit_width = QFontMetrics(font(Role.LABEL)).horizontalAdvance(unit) + 6
        for value in layout.x.labelled(60):
            at = layout.x.at(value)
            if at < plot.right() - unit_width - 16:  # the unit stands at the end
                where = QRectF(at - 40, plot.bottom() + 3, 80, BOTTOM_PX - 4)
                painter.drawText(where, Qt.AlignmentFlag.AlignCenter, _tick(value))
        for value in layout.y.labelled(16):
            at = layout.y.at(value)
            painter.drawText(
                QRectF(0, at - 8, LEFT_PX - 6, 16),
                Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter,
                _tick(value),
            )
        where = QRectF(plot.right() - unit_width, plot.bottom() + 3, unit_width, BOTTOM_PX - 4)
        painter.drawText(where, Qt.AlignmentFlag.AlignRight | Qt.AlignmentFlag.AlignVCenter, unit)
        head = "TFLOP/s" + ("  simulated" if self._drawn.target.simulated else "")
        painter.drawText(
            QRectF(EDGE_PX, 0, 300, TOP_PX - 4), Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, head
        )

    def _paint_lines(self, painter: QPainter) -> None:
        theme = self._theme
        painter.save()
        painter.setClipRect(self.layout_now.plot.adjusted(0, -1, 1, 1))
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for line in self.layout_now.lines:
            pen = QPen(QColor(theme.bar_other), 1) if line.is_datasheet else QPen(QColor(self._colour), 1.6)
            if self._drawn.target.simulated and not line.is_datasheet:
                pen.setDashPattern([4, 3])
            painter.setPen(pen)
            shown = line.line
            if abs(shown.dy()) < 0.01:  # on pixel centres
                shown = shown.translated(0, round(shown.y1()) + 0.5 - shown.y1())
            painter.drawLine(shown)
        painter.restore()

    def _paint_marks(self, painter: QPainter) -> None:
        colour = QColor(self._colour)
        fill = QColor(colour)
        fill.setAlphaF(0.55)
        hollow = QColor(self._theme.panel)
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painted = set()
        for point, at in self.layout_now.points:
            if (place := (point.dtype, point.is_wrong, round(at.x()), round(at.y()))) in painted:
                continue  # one over the other: shapes that are measured again and again
            painted.add(place)
            painter.setPen(QPen(QColor(self._theme.error) if point.is_wrong else colour, 1))
            painter.setBrush(hollow if self._drawn.target.simulated else fill)
            painter.drawPath(mark(point.dtype, at))
            if point.is_wrong:
                reach = SIZE_PX / 2 + 1
                painter.drawLine(at + QPointF(-reach, -reach), at + QPointF(reach, reach))
                painter.drawLine(at + QPointF(-reach, reach), at + QPointF(reach, -reach))
        painter.restore()

    def _paint_labels(self, painter: QPainter) -> None:
        theme, plot = self._theme, self.layout_now.plot
        metrics = QFontMetrics(font(Role.LABEL))
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for label in self.layout_now.labels:
            quiet = QColor(theme.bar_other if label.is_datasheet else self._colour)
            painter.setPen(QPen(quiet, 1))
            middle = label.box.center().y()
            end = plot.right() + LEADER_PX - 4
            turns = ((plot.right(), label.line_y), (plot.right() + 5, label.line_y), (end - 4, middle), (end, middle))
            painter.drawPolyline([QPointF(x, y) for x, y in turns])
            left = label.box.left()
            if label.dtype:
                painter.setBrush(QColor(theme.panel) if self._drawn.target.simulated else quiet)
                painter.drawPath(mark(label.dtype, QPointF(left + SIZE_PX / 2 + 1, middle)))
                left += MARK_PX
            painter.setPen(QColor(theme.dim if label.is_datasheet else theme.text))
            where = QRectF(left, label.box.top(), label.box.right() - left + 1, label.box.height())
            shown = metrics.elidedText(label.text, Qt.TextElideMode.ElideRight, math.ceil(where.width()))
            painter.drawText(
                where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter | Qt.TextFlag.TextSingleLine, shown
            )
        painter.restore()
        along = self.layout_now.slope
        if along is not None:
            painter.save()
            painter.setPen(QColor(theme.dim))
            painter.translate(along.origin)
            painter.rotate(along.angle)
            painter.drawText(QPointF(0, 0), along.text)
            painter.restore()

    # --- pointing

    def _point(self, place: int | None) -> None:
        if place == self._at:
            return
        self._at = place
        if place is None:
            self.box.hide()
        else:
            self._show_box()
        self.pointed.emit(self.at)
        self.update()

    def _show_box(self) -> None:
        assert self._at is not None
        point, at = self.layout_now.points[self._at]
        number = "" if point.run is None else f", run #{point.run}"
        when = "in this session" if point.when_unix_s is None else f"{when_text(point.when_unix_s)}{number}"
        self.box.setText("\n".join(filter(None, (point.what, *point_words(point, self._drawn), when))))
        self.box.adjustSize()
        left = at.x() + 14 if at.x() + 14 + self.box.width() <= self.width() else at.x() - 14 - self.box.width()
        top = min(max(at.y() - self.box.height() / 2, 0), max(self.height() - self.box.height(), 0))
        self.box.move(round(max(left, 0)), round(top))
        self.box.show()

    def suggestion(self, position: QPointF) -> int | None:
        """Number of the mark under a position."""
        best, distance = None, REACH_PX
        for number, (_, at) in enumerate(self.layout_now.points):
            away = math.hypot(at.x() - position.x(), at.y() - position.y())
            if away < distance:
                best, distance = number, away
        return best

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self.suggestion(event.position()))

    def mousePressEvent(self, event: QMouseEvent) -> None:
        self._point(self.suggestion(event.position()))
        if self.at is not None:
            self.point_chosen.emit(self.at)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right go from mark to mark, from the fastest at first; Return chooses, Escape leaves."""
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        points = self.layout_now.points
        if step is not None and points:
            order = sorted(
                range(len(points)), key=lambda number: (points[number][0].intensity, points[number][0].tflops)
            )
            if self._at is None:
                self._point(max(order, key=lambda number: points[number][0].tflops))
            else:
                self._point(order[min(max(order.index(self._at) + step, 0), len(order) - 1)])
        elif event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self.at is not None:
            self.point_chosen.emit(self.at)
        elif event.key() == Qt.Key.Key_Escape and self._at is not None:
            self._point(None)
        else:
            super().keyPressEvent(event)


def _tick(value: float) -> str:
    return f"{value:,.0f}" if value >= 1 else f"{value:g}"
