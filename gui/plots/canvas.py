"""The drawing area of a plot: two axes, and mouse and keys handed to the time axis of all plots. Main thread."""

from __future__ import annotations

from typing import Any

import pyqtgraph as pg
from PySide6.QtCore import QEvent, Qt
from PySide6.QtGui import QKeyEvent, QMouseEvent, QResizeEvent

from devexplorer.gui.plots.curves import YScale
from devexplorer.gui.plots.markers import ROW_PX, lane_rows
from devexplorer.gui.plots.time_axis import TextTicks, TimeAxis, TimeTicks

LEFT_AXIS_PX = 40
ABOVE_PX, RIGHT_PX, BOTTOM_PX = 4, 26, 4
"""Margins, the upper one above the lane of labels; half of the word "now" stands in the right one."""


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


class Canvas(pg.PlotWidget):  # type: ignore[misc]
    """The drawing area with its axes; tells the time axis where the mouse is."""

    def __init__(self, axis: TimeAxis, view: TimeViewBox, y_ticks: pg.AxisItem) -> None:
        super().__init__(viewBox=view, axisItems={"left": y_ticks, "bottom": TimeTicks(axis)}, background=None)
        self._axis, self._view = axis, view
        self.setMenuEnabled(False)
        self.hideButtons()
        self.setFrameShape(self.Shape.NoFrame)
        self.setFocusPolicy(Qt.FocusPolicy.TabFocus)
        self.setMinimumSize(120, 90)
        self.lane_rows = 0
        """Rows of labels between the upper edge and the curves."""
        self._make_lane(self.height())

    def _make_lane(self, height_px: int) -> None:
        rows = lane_rows(height_px)
        if rows != self.lane_rows:
            self.lane_rows = rows
            self.plotItem.layout.setContentsMargins(2, round(ABOVE_PX + rows * ROW_PX), RIGHT_PX, BOTTOM_PX)

    def resizeEvent(self, ev: QResizeEvent) -> None:
        if hasattr(self, "lane_rows"):  # pyqtgraph resizes while it is being made
            self._make_lane(self.height())
        super().resizeEvent(ev)

    def mousePressEvent(self, ev: QMouseEvent) -> None:
        self.setFocus(Qt.FocusReason.MouseFocusReason)  # so that Escape and the arrows are this plot's after a drag
        super().mousePressEvent(ev)

    def mouseMoveEvent(self, ev: QMouseEvent) -> None:
        super().mouseMoveEvent(ev)
        at = self._view.mapFromScene(self.mapToScene(ev.position().toPoint()))
        self._axis.set_cursor(self._view.seconds_at(at.x()) if 0 <= at.x() <= self._view.width() else None)

    def leaveEvent(self, ev: QEvent) -> None:
        super().leaveEvent(ev)
        self._axis.set_cursor(None)

    def keyPressEvent(self, ev: QKeyEvent) -> None:
        """The plot without a mouse.

        Left and right move the cursor, with Shift they pan the paused plots; Return begins a selection at the cursor
        and, pressed again, ends it; Escape takes away the selection, then the cursor.
        """
        steps = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(ev.key()))
        if steps is not None and ev.modifiers() & Qt.KeyboardModifier.ShiftModifier:
            self._axis.pan(steps * self._axis.width_s / 10)
        elif steps is not None:
            start = self._axis.right_s if self._axis.cursor_s is None else self._axis.cursor_s
            self._axis.set_cursor(start + steps * self._axis.width_s / 100)
        elif ev.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter) and self._axis.cursor_s is not None:
            self._axis.mark()
        elif ev.key() == Qt.Key.Key_Escape and self._axis.selection is not None:
            self._axis.select(None)
        elif ev.key() == Qt.Key.Key_Escape and self._axis.cursor_s is not None:
            self._axis.set_cursor(None)
        else:
            ev.ignore()  # Space and the other keys of the window are the window's


class ValueTicks(TextTicks):
    """The y axis: ticks of the plot's scale, in its unit."""

    def __init__(self, scale: YScale) -> None:
        super().__init__("left")
        self._scale = scale
        self.setStyle(tickLength=0, tickTextOffset=6, hideOverlappingLabels=10, autoExpandTextSpace=False)
        self.setWidth(LEFT_AXIS_PX)

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:  # noqa: N803
        return [(self._scale.step, [value for value, _ in self._scale.ticks])]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        texts = dict(self._scale.ticks)
        return [texts.get(value, "") for value in values]
