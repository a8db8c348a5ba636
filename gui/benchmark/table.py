"""The tables of runs on the Benchmark tab: one column takes the room that is left. Main thread."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent

from devexplorer.gui.widgets.rows import RowsModel
from devexplorer.gui.widgets.table import ROW_PX, RowsTable


class RunsTable(RowsTable):
    """Columns of numbers stand on both sides of one of words, so that it is not the last one that is stretched."""

    def __init__(self, model: RowsModel, name: str, widths: list[int], words: int) -> None:
        """`words`: number of the column that takes the room, `widths[words]` pixels at least."""
        super().__init__(model, name, widths)
        self._words, self._widths = words, list(widths)
        self.horizontalHeader().setStretchLastSection(False)
        self.setMinimumHeight(2 * ROW_PX + 8)
        self.setHorizontalScrollMode(self.ScrollMode.ScrollPerPixel)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        others = sum(
            width for at, width in enumerate(self._widths) if at != self._words and not self.isColumnHidden(at)
        )
        self.setColumnWidth(self._words, max(self._widths[self._words], self.viewport().width() - others))
