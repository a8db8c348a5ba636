"""The look that the tables of the bottom tabs share: compact rows, quiet header, nothing to edit. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QAbstractItemModel, QModelIndex, QPersistentModelIndex, Qt
from PySide6.QtGui import QPainter, QResizeEvent
from PySide6.QtWidgets import (
    QAbstractItemView,
    QHeaderView,
    QStyle,
    QStyledItemDelegate,
    QStyleOptionViewItem,
    QTableView,
    QWidget,
)

from devexplorer.gui.widgets.layouts import LEFT
from devexplorer.gui.widgets.rows import RowsModel
from devexplorer.gui.widgets.theme import Role, font

ROW_PX, PAD_PX = 24, 12
LEAST_ROWS = 2


class Padded(QStyledItemDelegate):
    """Room left and right of each text, so that a column of numbers does not touch the words behind it."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        super().initStyleOption(option, index)
        left = PAD_PX - 3 if index.column() == 0 else -3  # in line with the header; the style brings 3 of its own
        option.rect = option.rect.adjusted(left, 0, -PAD_PX, 0)

    def paint(
        self, painter: QPainter, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex
    ) -> None:
        if option.state & QStyle.StateFlag.State_Selected:  # across the whole cell, or the row would be a row of boxes
            painter.fillRect(option.rect, option.palette.highlight())
        super().paint(painter, option, index)


class CutAtTheStart(Padded):
    """For paths, whose end matters most."""

    def initStyleOption(self, option: QStyleOptionViewItem, index: QModelIndex | QPersistentModelIndex) -> None:
        super().initStyleOption(option, index)
        option.textElideMode = Qt.TextElideMode.ElideLeft


class RowsTable(QTableView):
    """A table view; `selected_key` is for a `RowsModel`."""

    def __init__(
        self,
        model: QAbstractItemModel,
        name: str,
        widths: Sequence[int],
        parent: QWidget | None = None,
        *,
        stretched: int | None = None,
    ) -> None:
        """`widths` in pixels, one per column. The last column takes what is left, or the one that is `stretched`, which
        keeps its width at least."""
        super().__init__(parent)
        self._widths, self._stretched = tuple(widths), stretched
        self.setModel(model)
        self.setAccessibleName(name)
        self.setItemDelegate(Padded(self))
        self.setShowGrid(False)
        self.setSelectionBehavior(QAbstractItemView.SelectionBehavior.SelectRows)
        self.setSelectionMode(QAbstractItemView.SelectionMode.SingleSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.NoEditTriggers)
        self.setTabKeyNavigation(False)
        self.setWordWrap(False)
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

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        if self._stretched is not None:
            others = sum(
                width
                for column, width in enumerate(self._widths)
                if column != self._stretched and not self.isColumnHidden(column)
            )
            self.setColumnWidth(self._stretched, max(self._widths[self._stretched], self.viewport().width() - others))

    def select_key(self, key: object) -> bool:
        """Select the row with this key and scroll to it; False: it is not there."""
        model = self.model()
        assert isinstance(model, RowsModel)
        row = next((number for number, row in enumerate(model.rows) if row.key == key), None)
        if row is not None:
            self.selectRow(row)
            self.scrollTo(model.index(row, 0))
        return row is not None

    @property
    def selected_key(self) -> object | None:
        """Key of the selected row."""
        model = self.model()
        chosen = self.selectionModel().selectedRows()
        assert isinstance(model, RowsModel)
        return model.rows[chosen[0].row()].key if chosen else None
