"""A filled area between two curves: the span from lowest to highest reading of each bin, a part of a stack. Main thread
only.

On the screen it is painted as one bar per pixel column: filling a polygon of a thousand jagged corners takes Qt fifteen
times as long (tests/benchmarks/timeline_memory.py). In a drawing, where there are no pixels, it is the polygon.
"""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from pyqtgraph.Qt.internals import PrimitiveArray
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QPaintEngine, QPainter, QPainterPath
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from devexplorer.gui.plots.curves import Floats

NONE = np.empty(0)


class AreaItem(QGraphicsItem):
    """Paints what lies between `low` and `high`, without outline; NaN is a gap."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self._brushes: tuple[QBrush, ...] = ()
        self._x = self._low = self._high = NONE
        self._rect = QRectF()
        self._bars = PrimitiveArray(QRectF, 4)

    def set_brushes(self, brushes: Sequence[QBrush]) -> None:
        """Paint with these, one over the other."""
        if tuple(brushes) != self._brushes:
            self._brushes = tuple(brushes)
            self.update()

    def set_data(self, x: Floats, low: Floats, high: Floats) -> None:
        """Show this area: arrays of shape `(n,)` in the plot's own coordinates, x rising."""
        self.prepareGeometryChange()
        self._x, self._low, self._high = x, low, high
        known = ~(np.isnan(low) | np.isnan(high))
        self._rect = QRectF()
        if known.any():
            left, bottom = float(x[known][0]), float(low[known].min())
            self._rect = QRectF(left, bottom, float(x[known][-1]) - left, float(high[known].max()) - bottom)
        self.update()

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._rect.isNull():
            return
        on_pixels = painter.paintEngine().type() == QPaintEngine.Type.Raster
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(Qt.PenStyle.NoPen)
        path = None if on_pixels else painter.transform().map(self._path())
        if path is None:
            self._fill_bars(painter)
        painter.resetTransform()  # in pixels: a hatch would be stretched with the axes
        for brush in self._brushes:
            painter.setBrush(brush)
            if path is None:
                painter.drawRects(*self._bars.drawargs())
            else:
                painter.drawPath(path)
        painter.restore()

    def _fill_bars(self, painter: QPainter) -> None:
        """A bar for each pixel column whose middle lies in the area."""
        to_px = painter.transform()
        x = self._x * to_px.m11() + to_px.dx()
        first, last = max(math.floor(x[0]), 0), min(math.ceil(x[-1]), painter.device().width())
        middles = np.arange(first, max(last, first)) + 0.5
        tops, bottoms = (
            np.round(np.interp(middles, x, edge) * to_px.m22() + to_px.dy()) for edge in (self._high, self._low)
        )
        seen = ~(np.isnan(tops) | np.isnan(bottoms))
        self._bars.resize(int(seen.sum()))
        bars = self._bars.ndarray()
        bars[:, 0], bars[:, 1], bars[:, 2] = middles[seen] - 0.5, tops[seen], 1.0
        bars[:, 3] = bottoms[seen] - tops[seen]

    def _path(self) -> QPainterPath:
        """The same as polygons, in the plot's own coordinates."""
        path = QPainterPath()
        known = np.flatnonzero(~(np.isnan(self._low) | np.isnan(self._high)))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            around = (
                np.concatenate((self._x[run], self._x[run][::-1])),
                np.concatenate((self._high[run], self._low[run][::-1])),
            )
            path.addPolygon(pg.functions.arrayToQPolygonF(*around))
        return path
