"""TFLOP/s over FLOP per byte, both logarithmic: axes, grid, lines, and the point under the pointer, or reached with the
arrow keys. Main thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QKeyEvent, QMouseEvent, QPen

from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.curves import CurveItem, Floats, decades
from devexplorer.gui.widgets import current_theme, offer_menu, text_width, theme_changed

LEFT_PX, TICK_PX = 52, (60, 16)
"""Width of the left axis; from one power of ten to the next where it is written."""
STEPS = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}

Range = tuple[float, float]


def between(low: float, high: float) -> list[float]:
    """2 to 9 times the powers of ten, where that is not too dense."""
    if math.log10(high / low) > 6:
        return []
    values = [step * power for power in decades(low / 10, high) for step in range(2, 10)]
    return [value for value in values if low <= value <= high]


class RooflineCanvas(PlotCanvas):
    """Subclasses draw, say where the points are and show the one that is pointed at."""

    def __init__(self, name: str) -> None:
        super().__init__(LEFT_PX)
        self._index: int | None = None
        """Of the point that is pointed at."""
        self._lines: list[pg.PlotCurveItem] = []
        theme_changed.connect(self._draw)
        self.view.sigResized.connect(self._place)
        self.set_lane(1)
        self.setMouseTracking(True)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setAccessibleName(name)

    # --- what subclasses say

    def _draw(self) -> None:
        """Draw everything."""
        raise NotImplementedError

    def _place(self) -> None:
        """Put what depends on the size where it belongs."""
        raise NotImplementedError

    @property
    def points_px(self) -> Floats:
        """x and y of each point in this widget's pixels: shape `(points, 2)`."""
        raise NotImplementedError

    def _reach(self) -> Floats | float:
        """How near the pointer has to be to each point, in pixels."""
        raise NotImplementedError

    def _order(self) -> Sequence[int]:
        """The points as the arrow keys go from one to the next."""
        raise NotImplementedError

    def _first(self) -> int:
        """Where the arrow keys begin."""
        return 0

    def _show_point(self) -> None:
        """Another point, or none, is pointed at."""
        raise NotImplementedError

    # --- drawing

    def _draw_axes(self, across: Range, up: Range, left: float) -> None:
        """The grid of these ranges; what is level begins at `left`."""
        for line in self._lines:
            self.view.removeItem(line)
        self._lines = []
        self.view.setXRange(math.log10(left), math.log10(across[1]), padding=0)
        self.view.setYRange(*map(math.log10, up), padding=0)
        for values, alpha in ((between, 0.05), (decades, 0.15)):
            grid = QColor(current_theme().text)
            grid.setAlphaF(alpha)
            upright = [((value, up[0]), (value, up[1])) for value in values(*across)]
            level = [((left, value), (across[1], value)) for value in values(*up)]
            self._add_lines([*upright, *level], pg.mkPen(grid, width=1))

    def _add_lines(self, parts: Sequence[tuple[Range, Range]], pen: QPen, *, antialias: bool = False) -> None:
        """From points of intensity and TFLOP/s to others; level lines are crisp without antialiasing."""
        x, y = ([math.log10(point[side]) for part in parts for point in part] for side in (0, 1))
        item = CurveItem(x, y, connect="pairs", pen=pen, antialias=antialias)
        self.view.addItem(item, ignoreBounds=True)
        self._lines.append(item)

    def _show_ticks(self, across: Range, up: Range, from_px: float = 0.0) -> None:
        """As many powers of ten as have room; at the bottom those whose texts are right of `from_px`."""
        area, ((left, right), (low, high)) = self.area(), self.view.viewRange()
        every = max(math.ceil(TICK_PX[0] * (right - left) / max(area.width(), 1)), 1)
        powers = [(power, f"{power:,g}") for power in decades(*across)][::every]
        texts = [(x, text) for x, text in powers if self._px(x, 1.0).x() - text_width(text) / 2 >= from_px]
        self.bottom.show_ticks([(math.log10(x), text) for x, text in texts])
        every = max(math.ceil(TICK_PX[1] * (high - low) / max(area.height(), 1)), 1)
        room = 8 * (high - low) / max(area.height(), 1)  # higher ticks would lie on the words above the picture
        powers = [(math.log10(power), f"{power:,g}") for power in decades(*up)]
        self.left.show_ticks([tick for tick in powers if tick[0] <= high - room][::every])

    def _px(self, intensity: float, tflops: float) -> QPointF:
        """Where it is, in this widget's pixels."""
        return self.px(math.log10(intensity), math.log10(tflops)) + QPointF(self.area().topLeft())

    # --- pointing

    def _point(self, index: int | None) -> None:
        if index != self._index:
            self._index = index
            self._show_point()
            self.viewport().update()

    def _nearest(self, position: QPointF) -> int | None:
        """Number of the point under a position."""
        away = np.linalg.norm(self.points_px - position.toTuple(), axis=1) - self._reach()
        return int(away.argmin()) if len(away) and away.min() < 0 else None

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self._nearest(event.position()))

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Arrows go from point to point, Escape leaves."""
        step, order = STEPS.get(Qt.Key(event.key())), self._order()
        if step is not None and order:
            at = None if self._index is None else order.index(self._index) + step
            self._point(self._first() if at is None else order[min(max(at, 0), len(order) - 1)])
        elif event.key() == Qt.Key.Key_Escape and self._index is not None:
            self._point(None)
        else:
            event.ignore()

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_menu(self, event)
