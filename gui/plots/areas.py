"""A filled area between two curves: the span from lowest to highest reading of each bin, a part of a stack. Main thread only."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QPainter, QPainterPath
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from devexplorer.gui.plots.curves import Floats


class AreaItem(QGraphicsItem):
    """Paints what lies between `low` and `high`; NaN is a gap. Plain and without outline, which is what makes it cheap."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self._brushes: tuple[QBrush, ...] = ()
        self._path = QPainterPath()
        self._rect = QRectF()

    def set_brushes(self, brushes: Sequence[QBrush]) -> None:
        """Paint with these, one over the other."""
        if tuple(brushes) != self._brushes:
            self._brushes = tuple(brushes)
            self.update()

    def set_data(self, x: Floats, low: Floats, high: Floats) -> None:
        """Show this area: arrays of shape `(n,)` in the plot's own coordinates."""
        self.prepareGeometryChange()
        self._path = QPainterPath()
        known = np.flatnonzero(~(np.isnan(low) | np.isnan(high)))
        if len(known):
            for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
                around = np.concatenate((x[run], x[run][::-1])), np.concatenate((high[run], low[run][::-1]))
                self._path.addPolygon(pg.functions.arrayToQPolygonF(*around))
        self._rect = self._path.boundingRect()
        self.update()

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._path.isEmpty():
            return
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(Qt.PenStyle.NoPen)
        # In pixels: a hatch would be stretched with the axes.
        path = painter.transform().map(self._path)
        painter.save()
        painter.resetTransform()
        for brush in self._brushes:
            painter.setBrush(brush)
            painter.drawPath(path)
        painter.restore()
