"""The selected span as a band over a plot. Main thread only."""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtGui import QColor

from devexplorer.gui.plots.curve_item import straight_pen
from devexplorer.gui.widgets import current_theme, theme_changed

FILL_ALPHA, EDGE_ALPHA = 0.16, 0.8


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
