"""A table of texts that gets its new rows as a whole and updates only what changed. Main thread.

Rows are known by a key, so that a table that grows at its top or changes a cell keeps selection and scroll position.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any

from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QColor

from devexplorer.gui.widgets.plain_text import tip
from devexplorer.gui.widgets.theme import Role, font

Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()


@dataclass(frozen=True, slots=True)
class Column:
    """The header of a column: its title, whether the column has numbers, what the title means."""

    title: str
    is_number: bool = False
    tip: str = ""


@dataclass(frozen=True, slots=True)
class Cell:
    """One text, its colour (`#RRGGBB`; empty: the usual one) and its tooltip, which is shown as it is, never as rich
    text."""

    text: str
    colour: str = ""
    tip: str = ""


@dataclass(frozen=True, slots=True)
class TableRow:
    """One row: what it is known by, and one cell per column."""

    key: Hashable
    cells: tuple[Cell, ...]


class RowsModel(QAbstractTableModel):
    """Shows the rows of the last `set_rows`."""

    def __init__(self, columns: Sequence[Column], parent: Any = None) -> None:
        super().__init__(parent)
        self._columns = tuple(columns)
        self._rows: list[TableRow] = []

    @property
    def rows(self) -> list[TableRow]:
        """What is shown, from the top."""
        return list(self._rows)

    def set_columns(self, columns: Sequence[Column]) -> None:
        """Have these columns from now on, without rows."""
        self.beginResetModel()
        self._columns, self._rows = tuple(columns), []
        self.endResetModel()

    def set_rows(self, rows: Sequence[TableRow]) -> None:
        """Show these rows."""
        old, new = [row.key for row in self._rows], [row.key for row in rows]
        added = len(new) - len(old)
        if added > 0 and new[added:] == old:
            self.beginInsertRows(QModelIndex(), 0, added - 1)
            self._rows[:0] = rows[:added]
            self.endInsertRows()
        elif new != old:
            self.beginResetModel()
            self._rows = list(rows)
            self.endResetModel()
        for number, row in enumerate(rows):
            if row != self._rows[number]:
                self._rows[number] = row
                self.dataChanged.emit(self.index(number, 0), self.index(number, len(self._columns) - 1))

    def rowCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self._rows)

    def columnCount(self, parent: Index = _NOWHERE) -> int:
        return 0 if parent.isValid() else len(self._columns)

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if not index.isValid():
            return None
        cell = self._rows[index.row()].cells[index.column()]
        match role:
            case Qt.ItemDataRole.DisplayRole | Qt.ItemDataRole.AccessibleTextRole | Qt.ItemDataRole.EditRole:
                return cell.text
            case Qt.ItemDataRole.ForegroundRole:
                return QColor(cell.colour) if cell.colour else None
            case Qt.ItemDataRole.ToolTipRole:
                return tip(cell.tip) or None
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._alignment(index.column())
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(self._columns):
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                return self._columns[section].title
            case Qt.ItemDataRole.ToolTipRole:
                return self._columns[section].tip or None
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._alignment(section)
            case Qt.ItemDataRole.FontRole:
                return font(Role.LABEL)
        return None

    def _alignment(self, column: int) -> int:
        side = Qt.AlignmentFlag.AlignRight if self._columns[column].is_number else Qt.AlignmentFlag.AlignLeft
        return int(side | Qt.AlignmentFlag.AlignVCenter)
