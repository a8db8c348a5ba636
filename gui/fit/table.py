"""The table of the cards of a plan: the bar takes the room that is left, and no column is out of sight in a narrow
window. Main thread."""

from __future__ import annotations

from PySide6.QtGui import QResizeEvent

from devexplorer.gui.fit.rows import BATCH, CAPACITY, CARD, COLUMNS, FITS, MEMORY, RATE, STEP, TOTAL
from devexplorer.gui.widgets.rows import RowsModel
from devexplorer.gui.widgets.table import RowsTable

_WIDTHS = {CARD: 190, MEMORY: 126, TOTAL: 78, CAPACITY: 64, FITS: 58, BATCH: 90, STEP: 100, RATE: 126}
_ALL_FROM_PX = sum(_WIDTHS.values())
"""Narrower, only the bar and the details show the card's memory."""


class CardsTable(RowsTable):
    """A row for each card; the bar takes the room that is left."""

    def __init__(self, model: RowsModel) -> None:
        super().__init__(model, "Cards", [_WIDTHS[column] for column in range(len(COLUMNS))], stretched=MEMORY)

    def resizeEvent(self, event: QResizeEvent) -> None:
        self.setColumnHidden(CAPACITY, event.size().width() < _ALL_FROM_PX)
        super().resizeEvent(event)
