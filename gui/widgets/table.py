"""Tables: rows of texts that get their new rows as a whole and update only what changed, and the look that the tables
of the bottom tabs share. Main thread.

Rows are known by a key, so that a table that grows at its top or changes a cell keeps selection and scroll position.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from typing import Any, Literal

import msgspec
from PySide6.QtCore import QAbstractTableModel, QModelIndex, QPersistentModelIndex, QRect, Qt, Signal
from PySide6.QtGui import QColor, QMouseEvent, QPainter, QPaintEvent, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QScrollBar,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
)

from devexplorer.core.base import MISSING
from devexplorer.gui.widgets.layouts import LEFT
from devexplorer.gui.widgets.theme import Colour, Role, colour_of, current_theme, font

ROW_PX, PAD_PX = 24, 12
LEAST_ROWS = 2
LEAST_LAST_PX = 100
Index = QModelIndex | QPersistentModelIndex
_NOWHERE = QModelIndex()


class Column(msgspec.Struct, frozen=True):
    """The header of a column: its title, what the title means, whether the column has numbers."""

    title: str
    tip: str = ""
    is_number: bool = False


def numbers(title: str, tip: str = "") -> Column:
    """The header of a column of numbers."""
    return Column(title, tip, is_number=True)


class Cell(msgspec.Struct, frozen=True):
    """One text, its colour (a tone, or the palette index of a device; empty: the usual one) and its tooltip, which is
    shown as it is, never as rich text."""

    text: str
    colour: Colour | Literal[""] = ""
    tip: str = ""


class TableRow(msgspec.Struct, frozen=True):
    """One row: what it is known by, and one cell per column."""

    key: Hashable
    cells: tuple[Cell, ...]


class RowsModel(QAbstractTableModel):
    """Shows the rows of the last `set_rows`, and in its header by which column they are sorted."""

    _sorted: tuple[int, Qt.SortOrder] = (-1, Qt.SortOrder.AscendingOrder)

    def __init__(self, columns: Sequence[Column]) -> None:
        super().__init__()
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
                colour = "dim" if cell.colour == "" and cell.text == MISSING else cell.colour
                return None if colour == "" else QColor(colour_of(colour))
            case Qt.ItemDataRole.ToolTipRole:
                return cell.tip or None
            case Qt.ItemDataRole.TextAlignmentRole:
                return self._alignment(index.column())
        return None

    def headerData(self, section: int, orientation: Qt.Orientation, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if orientation != Qt.Orientation.Horizontal or not 0 <= section < len(self._columns):
            return None
        match role:
            case Qt.ItemDataRole.DisplayRole:
                column, order = self._sorted
                arrow = " ↓" if order == Qt.SortOrder.DescendingOrder else " ↑"
                return self._columns[section].title + arrow * (section == column)
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

    def set_sorted(self, column: int, order: Qt.SortOrder) -> None:
        """The rows are sorted by this column; -1: by none."""
        if (column, order) != self._sorted:
            self._sorted = (column, order)
            self.headerDataChanged.emit(Qt.Orientation.Horizontal, 0, self.columnCount() - 1)


class Padded(QStyledItemDelegate):
    """Room left and right of each text, so that a column of numbers does not touch the words behind it. Subclasses
    paint the cells that are more than a text."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: Index) -> None:
        super().initStyleOption(option, index)
        view, before = option.widget, range(index.column())
        is_first = not before or (isinstance(view, QTableView) and all(map(view.isColumnHidden, before)))
        left = PAD_PX - 3 if is_first else -3  # in line with the header; the style brings 3 of its own
        option.rect = option.rect.adjusted(left, 0, 3 - PAD_PX, 0)

    def paint(self, painter: QPainter, option: QStyleOptionViewItem, index: Index) -> None:
        painter.save()
        if option.state & QStyle.StateFlag.State_Selected:  # across the whole cell, or the row would be a row of boxes
            painter.fillRect(option.rect, option.palette.highlight())
        if not self.paint_cell(painter, QRect(option.rect), index):
            super().paint(painter, option, index)
        painter.restore()

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        """Paint a cell on its background; False: it is a text like any other."""
        return False


class CutAtTheStart(Padded):
    """For paths, whose end matters most."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: Index) -> None:
        super().initStyleOption(option, index)
        option.textElideMode = Qt.TextElideMode.ElideLeft


class Gutter(QScrollBar):
    """Keeps its room where there is nothing to scroll: no column moves when rows come."""

    def paintEvent(self, event: QPaintEvent) -> None:
        if self.maximum() > self.minimum():
            super().paintEvent(event)


def keep_gutter(view: QAbstractItemView) -> None:
    """Have room for its vertical scroll bar at all times."""
    view.setVerticalScrollBar(Gutter())
    view.setVerticalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOn)


def press_in_place(view: QAbstractItemView, press: Callable[[QMouseEvent], None], event: QMouseEvent) -> None:
    """Qt would scroll to a row that is half in sight a moment after a click on it."""
    view.setAutoScroll(False)
    press(event)
    view.setAutoScroll(True)


class RowsTable(QTableView):
    """A table view."""

    selected = Signal()
    """Other rows are selected."""

    most_measured = 500
    """Rows from the top whose texts say how wide a named column is."""

    def __init__(
        self,
        model: RowsModel | Sequence[Column],
        name: str,
        widths: Sequence[int],
        *,
        stretched: int | None = None,
        gives_up: Sequence[int] = (),
        named: Sequence[int] = (),
    ) -> None:
        """`model`, or its columns.

        `widths` in pixels, one per column. The last column takes what is left, or the one that is `stretched`, which
        keeps its width at least; before it, those that are `named` take what their texts need. Where there is no room
        for all, the table goes without some of those that it `gives_up`, the last of them is wanted most; what is left
        without them is cut short in the last column."""
        super().__init__(showGrid=False, wordWrap=False)
        keep_gutter(self)
        self._widths, self._stretched, self._gives_up = tuple(widths), stretched, tuple(gives_up)
        self._named = tuple(named)
        self.rows_model = model = model if isinstance(model, RowsModel) else RowsModel(model)
        self.setModel(model)
        self.selectionModel().selectionChanged.connect(self.selected)
        if named:
            model.modelReset.connect(self._share)
            model.rowsInserted.connect(self._share)  # as the first rows come
        self.setAccessibleName(name)
        self.setItemDelegate(Padded(self))
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.setMinimumHeight((1 + LEAST_ROWS) * ROW_PX)
        if stretched is not None:  # in a narrow window the table scrolls sideways, which takes room of its rows
            self.setMinimumHeight(2 * ROW_PX + 8)
            self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)
        self.verticalHeader().hide()
        self.verticalHeader().setSectionResizeMode(QHeaderView.ResizeMode.Fixed)
        self.verticalHeader().setDefaultSectionSize(ROW_PX)
        header = self.horizontalHeader()
        header.setFont(font(Role.LABEL))
        header.setFixedHeight(ROW_PX)
        header.setHighlightSections(False)
        header.setStretchLastSection(stretched is None)
        header.setMinimumSectionSize(40)
        header.setDefaultAlignment(LEFT)
        for column, width in enumerate(widths):
            self.setColumnWidth(column, width)
        if gives_up and stretched is None:
            self.setColumnWidth(len(widths) - 1, LEAST_LAST_PX)  # Qt stretches it from here on, and never shrinks it

    def set_rows(self, rows: Sequence[TableRow]) -> None:
        """Show these rows."""
        self.rows_model.set_rows(rows)

    @property
    def rows(self) -> list[TableRow]:
        """What is shown, from the top."""
        return self.rows_model.rows

    def mousePressEvent(self, event: QMouseEvent) -> None:
        press_in_place(self, super().mousePressEvent, event)

    def sort_by_clicks(self, clicked: Callable[[], object]) -> None:
        """A click on a title sorts by that column, the third one by none; `clicked` arranges the rows."""
        header = self.horizontalHeader()
        header.setSectionsClickable(True)
        header.setSortIndicatorShown(
            False
        )  # Qt's arrow covers the title of a narrow column: the model writes one behind it
        header.setSortIndicatorClearable(True)
        header.setSortIndicator(-1, Qt.SortOrder.AscendingOrder)
        header.sortIndicatorChanged.connect(lambda _column, _order: clicked())

    def show_sorted(self) -> tuple[int, bool]:
        """Say in the header by which column the rows are sorted; returns it (-1: by none), and whether downwards."""
        header = self.horizontalHeader()
        column, order = header.sortIndicatorSection(), header.sortIndicatorOrder()
        self.rows_model.set_sorted(column, order)
        return column, order == Qt.SortOrder.DescendingOrder

    def resizeEvent(self, event: QResizeEvent) -> None:
        room = event.size().width() - sum(self._widths) + sum(self._widths[column] for column in self._gives_up)
        for column in reversed(self._gives_up):
            has_room = self._widths[column] <= room
            self.setColumnHidden(column, not has_room)
            room -= self._widths[column] * has_room
        if self._stretched is not None and self._stretched in self._gives_up:
            self.horizontalHeader().setStretchLastSection(self.isColumnHidden(self._stretched))
        super().resizeEvent(event)
        self._share()

    def _share(self) -> None:
        """Give what room there is beyond the least to the names, as far as they need it, then to the stretched."""
        widths, model = self._widths, self.model()
        shown = [column for column in range(len(widths)) if not self.isColumnHidden(column)]
        spare = max(self.viewport().width() - sum(widths[column] for column in shown), 0)
        for column in self._named:
            if column in shown:
                names = (
                    str(model.index(row, column).data()) for row in range(min(model.rowCount(), self.most_measured))
                )
                needed = max(map(self.fontMetrics().horizontalAdvance, names), default=0) + 2 * PAD_PX + 8
                extra = min(max(needed - widths[column], 0), spare)
                self.setColumnWidth(column, widths[column] + extra)
                spare -= extra
        if self._stretched in shown:
            self.setColumnWidth(self._stretched, widths[self._stretched] + spare)

    def paintEvent(self, event: QPaintEvent) -> None:
        super().paintEvent(event)
        if self.hasFocus():
            current = self.currentIndex()
            where = self.viewport().rect()
            if current.isValid():
                where.setTop(self.rowViewportPosition(current.row()))
                where.setHeight(self.rowHeight(current.row()))
            painter = QPainter(self.viewport())
            painter.setPen(current_theme().focus)
            painter.drawRect(where.adjusted(0, 0, -1, -1))
            painter.end()

    def select_key(self, key: object) -> bool:
        """Select the row with this key and scroll to it; False: it is not there."""
        row = next((number for number, row in enumerate(self.rows) if row.key == key), None)
        if row is not None:
            self.selectRow(row)
            self.scrollTo(self.rows_model.index(row, 0))
        return row is not None

    @property
    def selected_key(self) -> object | None:
        """Key of the selected row."""
        chosen = self.selected_rows
        return self.rows[chosen[0]].key if chosen else None

    @property
    def selected_rows(self) -> list[int]:
        """Numbers of the selected rows, from the top."""
        return sorted(index.row() for index in self.selectionModel().selectedRows())
