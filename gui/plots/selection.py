"""The selected span as a band over a plot. One item per plot, in pixels. Main thread only."""

from __future__ import annotations

from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from devexplorer.gui.widgets.theme import DARK, Theme

FILL_ALPHA, EDGE_ALPHA = 0.16, 0.8


class SelectionItem(QGraphicsItem):
    """Paints the band below the curves. Coordinates are the view box's pixels."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.setZValue(-60)
        self._rect = QRectF()
        self._edges: tuple[float, float] | None = None
        self._accent = QColor(DARK.accent)

    @property
    def edges(self) -> tuple[float, float] | None:
        """Left and right edge in pixels; None: nothing is selected."""
        return self._edges

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._accent = QColor(theme.accent)
        self.update()

    def show_band(self, rect: QRectF, edges: tuple[float, float] | None) -> None:
        """Show a band between these heights and edges; those may lie outside of `rect`."""
        if edges is not None:
            edges = round(edges[0]), round(edges[1])
        if (rect, edges) != (self._rect, self._edges):
            self.prepareGeometryChange()
            self._rect, self._edges = rect, edges
            self.update()

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._edges is None:
            return
        left, right = self._edges
        band = QRectF(left, 0, max(right - left, 1.0), self._rect.height()).intersected(self._rect)
        painter.fillRect(band, _with_alpha(self._accent, FILL_ALPHA))
        for edge in self._edges:
            if 0 <= edge <= self._rect.width():
                painter.fillRect(QRectF(edge, 0, 1, self._rect.height()), _with_alpha(self._accent, EDGE_ALPHA))


def _with_alpha(colour: QColor, alpha: float) -> QColor:
    shade = QColor(colour)
    shade.setAlphaF(alpha)
    return shade
