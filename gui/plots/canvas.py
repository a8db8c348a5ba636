"""The drawing area of a plot: two axes with given ticks, a grid, lines with labels; the readout over it: a line at the
cursor, a small box with each curve's value there and what it did in the selected span, that span as a band. Over time,
mouse and keys go to the time axis that all plots share. Main thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from itertools import product
from typing import Any, NamedTuple

import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import (
    QAccessible,
    QColor,
    QContextMenuEvent,
    QFocusEvent,
    QKeyEvent,
    QMouseEvent,
    QPainter,
    QPainterPath,
    QPen,
    QResizeEvent,
    QWheelEvent,
)
from PySide6.QtWidgets import (
    QApplication,
    QGraphicsItem,
    QGraphicsPathItem,
    QGraphicsScene,
    QLabel,
    QScrollArea,
    QScrollBar,
    QWidget,
)

from devexplorer.gui.plots.curves import straight_pen
from devexplorer.gui.plots.markers import ROW_PX, LinesItem, MarkerLine, forget_picture, lane_rows
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.widgets import Role, announce, current_theme, font, paint_focus, theme_changed

LEFT_AXIS_PX, BOTTOM_AXIS_PX = 40, 22
GRID_ALPHA, GRID_Z, AXIS_Z = 0.15, -50, 0.5
"""The grid is faint, and below the curves, which are below the texts of the axes."""
ABOVE_PX, RIGHT_PX, BOTTOM_PX = 4, 26, 4
"""Margins, the upper one above the lane of labels; half of the word "now" is in the right one."""

Ticks = Sequence[tuple[float, str]]
"""Values with their texts."""


class TextTicks(pg.AxisItem):  # type: ignore[misc]  # pyqtgraph publishes no types
    """An axis of texts alone: pyqtgraph draws a tick of no length as a dot, and these would end every grid line in
    one."""

    def __init__(self, side: str) -> None:
        super().__init__(side)
        self.ticks: Ticks = ()
        # Texts at the ends may reach past the plot: they are centred at its corners.
        self.setStyle(
            tickLength=0, tickTextOffset=6, hideOverlappingLabels=40, autoExpandTextSpace=False, tickTextHeight=14
        )
        self.setTicks([[]])  # until it is told, pyqtgraph would number it from 0 to 1

    def show_ticks(self, ticks: Ticks) -> None:
        """Show these texts at these values."""
        self.ticks = ticks
        self.setTicks([ticks])

    def resizeEvent(self, ev: Any = None) -> None:
        super().resizeEvent(ev)
        forget_picture(self)

    def drawPicture(self, p: Any, axisSpec: Any, tickSpecs: Any, textSpecs: Any) -> None:  # noqa: N803
        super().drawPicture(p, axisSpec, [], textSpecs)


class PlotCanvas(pg.GraphicsView):  # type: ignore[misc]
    """A drawing area that neither pans nor zooms by itself; a lane above the curves holds the labels of lines. Items
    go into its `view`.

    pyqtgraph's own `PlotWidget` has four axes, a title and a form of forty controls, hidden, and takes four times as
    long to make.
    """

    accessible_role = QAccessible.Role.Chart

    def __init__(self, left_px: int = LEFT_AXIS_PX, right_px: int = RIGHT_PX, view: pg.ViewBox | None = None) -> None:
        super().__init__(background=None)
        self.view = pg.ViewBox(enableMenu=False, enableMouse=False) if view is None else view
        self.left, self.bottom = TextTicks("left"), TextTicks("bottom")
        self.centralLayout.setSpacing(0)
        for part, row, column in ((self.view, 0, 1), (self.left, 0, 0), (self.bottom, 1, 1)):
            self.centralLayout.addItem(part, row, column)
        # Nearly all items move with every reading: an index costs more than it finds, and one that has missed a
        # change is left with pointers to items that are gone.
        self.scene().setItemIndexMethod(QGraphicsScene.ItemIndexMethod.NoIndex)
        self.left.setWidth(left_px)
        self.bottom.setHeight(BOTTOM_AXIS_PX)
        self.grid = QGraphicsPathItem(self.view)  # pyqtgraph's own would let the axes drop the texts at their ends
        self.grid.setZValue(GRID_Z)
        self.grid.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self._grid_of: tuple[object, ...] = ()
        self.lines = LinesItem(self.centralWidget)
        self._right_px = right_px
        self.lane_rows = -1
        """Rows of labels between the upper edge and the curves."""
        self.set_lane(0)
        self.keep_pictures(True)
        for axis in (self.left, self.bottom):
            axis.linkToView(self.view)
            axis.setZValue(AXIS_Z)
            axis.setTickFont(font(Role.LABEL))
            axis.setPen(pg.mkPen(None))
        theme_changed.connect(self._recolour)
        self._recolour()

    def keep_pictures(self, keep: bool) -> None:
        """Of what is painted in Python and stays the same while curves move past."""
        mode = QGraphicsItem.CacheMode.DeviceCoordinateCache if keep else QGraphicsItem.CacheMode.NoCache
        for still in (self.left, self.bottom, self.lines):
            still.setCacheMode(mode)

    def render(self, *arguments: Any, **options: Any) -> None:
        self.keep_pictures(False)  # a drawing has texts and lines
        super().render(*arguments, **options)
        self.keep_pictures(True)

    def set_lane(self, rows: int) -> None:
        """Keep room for so many rows of labels."""
        self.set_margins(rows, self._right_px)

    def set_margins(self, rows: int, right_px: int) -> None:
        """Keep room for so many rows of labels above the curves, and so many pixels at the right."""
        if (rows, right_px) != (self.lane_rows, self._right_px):
            self.lane_rows, self._right_px = rows, right_px
            self.centralLayout.setContentsMargins(2, round(ABOVE_PX + rows * ROW_PX), right_px, BOTTOM_PX)

    def _recolour(self) -> None:
        theme = current_theme()
        self.setBackground(theme.panel)
        for axis in (self.left, self.bottom):
            axis.setTextPen(theme.dim)
        self.lines.update()  # its picture is kept, with labels in the colours of before
        colour = QColor(theme.text)
        colour.setAlphaF(GRID_ALPHA)
        self.grid.setPen(QPen(colour, 1))

    def show_lines(self, markers: list[MarkerLine], guides: Sequence[tuple[float, str, str]] = ()) -> None:
        """Show the grid at the ticks of the left axis, markers, and guides across: value, label, colour."""
        rect = self.view.rect()
        grid_of = (rect, self.left.ticks, self.view.viewRange())
        if grid_of != self._grid_of:
            self._grid_of = grid_of
            grid = QPainterPath()
            for value, _ in self.left.ticks:
                y = round(self.px(0.0, value).y()) + 0.5  # the middle of a row of pixels
                grid.moveTo(0.0, y)
                grid.lineTo(rect.width(), y)
            self.grid.setPath(grid)
        self.lines.setPos(self.view.mapToItem(self.centralWidget, QPointF(0, 0)))
        across = [MarkerLine(round(self.px(0.0, value).y()), text, colour) for value, text, colour in guides]
        self.lines.show_lines(rect, self.lane_rows, markers, across)

    def drawForeground(self, painter: QPainter, rect: QRectF | QRect) -> None:
        super().drawForeground(painter, rect)
        painter.save()
        painter.resetTransform()
        paint_focus(painter, self)
        painter.restore()

    def wheelEvent(self, event: QWheelEvent) -> None:
        bar = self._bar_around()
        if bar is None or event.modifiers() & Qt.KeyboardModifier.ControlModifier:
            super().wheelEvent(event)
        else:
            QApplication.sendEvent(bar, event)

    def _bar_around(self) -> QScrollBar | None:
        """The scroll bar of what it lies in, if that can scroll."""
        around = self.parentWidget()
        while around is not None:
            if isinstance(around, QScrollArea) and around.verticalScrollBar().maximum() > 0:
                return around.verticalScrollBar()
            around = around.parentWidget()
        return None

    def focusInEvent(self, event: QFocusEvent) -> None:
        super().focusInEvent(event)
        self.viewport().update()

    def focusOutEvent(self, event: QFocusEvent) -> None:
        super().focusOutEvent(event)
        self.viewport().update()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        event.ignore()  # the menu is that of the picture that this is part of

    def px(self, x: float, y: float) -> QPointF:
        """A place on the axes, in pixels from the upper left corner of the area."""
        (left, right), (low, high) = self.view.viewRange()
        x_share, y_share = (x - left) / (right - left), (high - y) / (high - low)
        return QPointF(x_share * self.view.width(), y_share * self.view.height())

    def area(self) -> QRect:
        """Where the curves are, in this widget's pixels."""
        area: QRect = self.mapFromScene(self.view.mapRectToScene(self.view.rect())).boundingRect()
        return area


class TimeViewBox(pg.ViewBox):  # type: ignore[misc]  # pyqtgraph publishes no types
    """The area of the curves: wheel and drag go to the shared time axis instead of to this plot alone; a drag with
    Shift selects."""

    def __init__(self, axis: TimeAxis) -> None:
        super().__init__(enableMenu=False, enableMouse=False, defaultPadding=0)
        self._axis = axis
        self._selected_from: float | None = None

    def _time_at(self, x_px: float) -> float:
        return self._axis.now_unix_s + self.seconds_at(min(max(x_px, 0.0), float(self.width())))

    def seconds_at(self, x_px: float) -> float:
        """x in seconds from now of a position in this box's pixels."""
        return self._axis.left_s + x_px / max(float(self.width()), 1.0) * self._axis.width_s

    def wheelEvent(self, ev: Any, axis: int | None = None) -> None:
        ev.accept()
        up = ev.delta() > 0
        if self._axis.paused:
            self._axis.zoom(0.8 if up else 1.25, self.seconds_at(ev.pos().x()))
        else:
            self._axis.step_span(-1 if up else 1)

    def mouseDragEvent(self, ev: Any, axis: int | None = None) -> None:
        ev.accept()
        if ev.isStart():  # as a time: while live, what was below the mouse moves on
            shift = ev.modifiers() & Qt.KeyboardModifier.ShiftModifier
            self._selected_from = self._time_at(ev.buttonDownPos().x()) if shift else None
        if self._selected_from is not None:
            self._axis.select(self._selected_from, self._time_at(ev.pos().x()))
            return
        moved = ev.pos().x() - ev.lastPos().x()
        self._axis.pan(-moved / max(self.width(), 1) * self._axis.width_s)


class Canvas(PlotCanvas):
    """The drawing area over time; passes the position of the mouse to the time axis."""

    def __init__(self, axis: TimeAxis, view: TimeViewBox) -> None:
        super().__init__(view=view)
        self._axis = axis
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMinimumSize(120, 90)
        self.set_lane(lane_rows(self.height()))

    def resizeEvent(self, ev: QResizeEvent) -> None:
        if hasattr(self, "lane_rows"):  # pyqtgraph resizes while it is being made
            self.set_lane(lane_rows(self.height()))
        super().resizeEvent(ev)

    def mousePressEvent(self, ev: QMouseEvent) -> None:
        self.setFocus(Qt.FocusReason.MouseFocusReason)  # so that Escape and the arrows are this plot's after a drag
        super().mousePressEvent(ev)

    def mouseMoveEvent(self, ev: QMouseEvent) -> None:
        super().mouseMoveEvent(ev)
        x = self.view.mapFromScene(self.mapToScene(ev.position().toPoint())).x()
        self._axis.set_cursor(self.view.seconds_at(x) if 0 <= x <= self.view.width() else None)

    def leaveEvent(self, ev: QEvent) -> None:
        super().leaveEvent(ev)
        self._axis.set_cursor(None)

    def spoken(self) -> str:
        """What the plot says that this is the canvas of."""
        plot: Any = self.parent()
        return str(plot.spoken())

    def keyPressEvent(self, ev: QKeyEvent) -> None:
        """The plot without a mouse.

        Left and right move the cursor, with Shift they pan the paused plots; Return begins a selection at the cursor
        and, pressed again, ends it; Escape clears the selection, then the cursor.
        """
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(ev.key()))
        if steps is not None and ev.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._axis.pan(steps * self._axis.width_s / 10)
        elif steps is not None:
            start = self._axis.right_s if self._axis.cursor_s is None else self._axis.cursor_s
            self._axis.set_cursor(start + steps * self._axis.width_s / 100)
            announce(self, self.spoken())
        elif ev.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._axis.cursor_s is not None:
            self._axis.mark()
        elif ev.key() == Qt.Key.Key_Escape and self._axis.selection is not None:
            self._axis.select(None)
        elif ev.key() == Qt.Key.Key_Escape and self._axis.cursor_s is not None:
            self._axis.set_cursor(None)
        else:
            ev.ignore()  # Space and the other keys of the window are the window's


FILL_ALPHA, EDGE_ALPHA = 0.16, 0.8
COLUMN_ROWS = 6
"""More curves than this are listed in two columns, where there is room."""
DISTANCE_PX = 12
"""Between the line and the box."""


class SelectionItem(pg.LinearRegionItem):  # type: ignore[misc]  # pyqtgraph publishes no types
    """A band in seconds from now, below the curves."""

    def __init__(self) -> None:
        super().__init__(movable=False)
        self.setZValue(-60)
        theme_changed.connect(self._recolour)
        self._recolour()
        self.hide()

    def _recolour(self) -> None:
        fill, edge = QColor(current_theme().accent), QColor(current_theme().accent)
        fill.setAlphaF(FILL_ALPHA)
        edge.setAlphaF(EDGE_ALPHA)
        self.setBrush(fill)
        for line in self.lines:
            line.setPen(straight_pen(edge, self.getViewWidget()))
        self.update()

    def show_span(self, edges: tuple[float, float] | None) -> None:
        """Show a band between these edges, or none."""
        self.setVisible(edges is not None)
        if edges is not None:
            if self.lines[0].pen.width() != straight_pen(None, self.getViewWidget()).width():
                self._recolour()  # the window is on another screen
            self.setRegion(edges)


class CursorReading(NamedTuple):
    """One line of the box."""

    name: str
    colour: str
    """`#RRGGBB`"""
    values: tuple[str, ...]
    simulated: bool


class ReadoutBox(QLabel):
    """A small label over a picture, which no click ever hits."""

    def __init__(self, picture: QWidget, name: str) -> None:
        super().__init__(picture, textFormat=Qt.TextFormat.PlainText)
        self.setObjectName("readout")
        self.setFont(font(Role.LABEL))
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName(name)
        self.hide()


class Cursor(QObject):
    """The line (in the plot's own x) and the box."""

    def __init__(self, canvas: PlotCanvas) -> None:
        super().__init__(canvas)
        self._canvas = canvas
        self._shown: tuple[object, ...] = ()
        self.line = pg.InfiniteLine(angle=90, movable=False)
        self.line.setZValue(60)
        self.line.hide()
        canvas.view.addItem(self.line, ignoreBounds=True)
        self.box = ReadoutBox(canvas, "Values at the cursor and in the selection")
        self.box.setTextFormat(Qt.TextFormat.RichText)
        theme_changed.connect(self._recolour)
        self._recolour()

    def _recolour(self) -> None:
        self.line.setPen(straight_pen(current_theme().dim, self._canvas))
        self._shown = ()

    def show_line(self, x_s: float | None) -> None:
        """Put the line at x = `x_s`, or take it away."""
        self.line.setVisible(x_s is not None)
        if x_s is not None:
            self.line.setPos(x_s)
            if self.line.pen.width() != (pen := straight_pen(current_theme().dim, self._canvas)).width():
                self.line.setPen(pen)  # the window is on another screen

    def show_box(
        self, x_px: float, titles: Sequence[str], heads: Sequence[str], readings: Sequence[CursorReading]
    ) -> None:
        """Show the box beside the line, `x_px` from the left end of the axis.

        `heads` are above the values of each reading; where there is one value they are left out.
        """
        plot = self._canvas.area()
        shown = (tuple(titles), tuple(heads), tuple(readings), self._canvas.size())
        if shown != self._shown:
            self._shown = shown
            self._fill(titles, heads, readings, QSize(self._canvas.width() - round(plot.left()), self._canvas.height()))
        left = plot.left() + x_px + DISTANCE_PX
        if left + self.box.width() > plot.right():
            left -= 2 * DISTANCE_PX + self.box.width()
        left = min(max(left, plot.left()), max(plot.right() - self.box.width(), plot.left()))
        top = max(min(plot.top() + 4, plot.bottom() - self.box.height()), 0)
        self.box.move(round(left), top)
        self.box.show()
        self.box.raise_()  # over the word "paused"

    def hide(self) -> None:
        """Take line and box away."""
        self.line.hide()
        self.box.hide()

    def _fill(
        self, titles: Sequence[str], heads: Sequence[str], readings: Sequence[CursorReading], room: QSize
    ) -> None:
        """In the first of these forms that has room: two columns or three, each also without the word "simulated"
        behind each name, one column, only some of the readings."""
        several = (2, 3, 1) if len(readings) > COLUMN_ROWS else (1,)
        for columns, with_word in product(several, (len(heads) == 1 or several == (1,), False)):
            self.box.setText(_html(titles, heads, readings, columns, with_word))
            self.box.adjustSize()
            if self.box.size().boundedTo(room) == self.box.size():
                break
        left_out = math.ceil((self.box.height() - room.height()) / self.box.fontMetrics().lineSpacing())
        if left_out > 0:
            said = sorted(readings, key=lambda reading: all(value[:2] in ("0", "0 ") for value in reading.values))
            kept = said[: max(len(said) - left_out - 1, 1)]
            more = f"… and {len(readings) - len(kept)} more"
            some = [reading for reading in readings if reading in kept]
            self.box.setText(_html([*titles, more], heads, some, columns, with_word))
            self.box.adjustSize()


def _html(
    titles: Sequence[str], heads: Sequence[str], readings: Sequence[CursorReading], columns: int, with_word: bool
) -> str:
    # Names come from the engine, which is not trusted: escaped.
    if not with_word and any(reading.simulated for reading in readings):
        names = [reading.name for reading in readings if reading.simulated]
        titles = [
            *titles,
            "all simulated" if len(names) == len(readings) else f"simulated: {names[0]} … {names[-1]}",
        ]
    split = max(-(-len(readings) // columns), 1)  # every device can be hidden in the legend
    tables = [_table(heads, readings[at : at + split], with_word) for at in range(0, len(readings), split)]
    head = "".join(f'<div style="color:{current_theme().dim}">{escape(title)}</div>' for title in titles)
    return f"{head}<table cellspacing='0'><tr>{'<td>&nbsp;&nbsp;&nbsp;</td>'.join(tables)}</tr></table>"


def _table(heads: Sequence[str], readings: Sequence[CursorReading], with_word: bool) -> str:
    number = 'align="right" style="white-space:nowrap'
    rows = []
    if len(heads) > 1:
        cells = (f'<td {number}; color:{current_theme().dim}">&nbsp;&nbsp;{escape(text)}</td>' for text in heads)
        rows.append("<td></td>" + "".join(cells))
    for reading in readings:
        word = " simulated" if reading.simulated and with_word else ""
        cells = (f'<td {number}">&nbsp;&nbsp;{escape(value)}</td>' for value in reading.values)
        name = f'<td style="color:{reading.colour}; white-space:nowrap">{escape(reading.name)}{word}</td>'
        rows.append(name + "".join(cells))
    return f"<td><table cellspacing='0'>{''.join(f'<tr>{row}</tr>' for row in rows)}</table></td>"
