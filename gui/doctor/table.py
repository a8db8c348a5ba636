"""The table of the doctor's findings: the sentences get their room, columns that the details repeat go where it is
narrow. Main thread."""

from __future__ import annotations

from typing import Final

from PySide6.QtGui import QResizeEvent

from devexplorer.gui.doctor.rows import PATH, PLACE, RULE
from devexplorer.gui.widgets.rows import RowsModel
from devexplorer.gui.widgets.table import CutAtTheStart, RowsTable

_WIDTHS_PX: Final = [130, 220, 160, 112, 0]
"""Of the columns; the last takes what is left."""
PATH_FROM_PX, RULE_FROM_PX = 702, 922
"""From these widths of the table on a column leaves the sentences 300 pixels."""


class FindingsTable(RowsTable):
    """Double-click and Return are `activated`."""

    def __init__(self, model: RowsModel) -> None:
        super().__init__(model, "Findings", _WIDTHS_PX)
        for column in (PATH, PLACE):
            self.setItemDelegateForColumn(column, CutAtTheStart(self))

    def resizeEvent(self, event: QResizeEvent) -> None:
        for column, least in ((PATH, PATH_FROM_PX), (RULE, RULE_FROM_PX)):
            self.setColumnHidden(column, event.size().width() < least)
        super().resizeEvent(event)
