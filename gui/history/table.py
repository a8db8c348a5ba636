"""The table of stored runs: several can be chosen, tags are edited in place. Main thread."""

from __future__ import annotations

from collections.abc import Iterable

from PySide6.QtCore import QItemSelection, QItemSelectionModel, QRect, Qt
from PySide6.QtGui import QKeyEvent, QKeySequence, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QAbstractItemView, QApplication, QLineEdit, QStyleOptionViewItem, QWidget

from devexplorer.core.records import StoredRun
from devexplorer.gui.history.rows import COLUMNS, TAGS, WIDTHS, HistoryModel
from devexplorer.gui.widgets import current_theme, paint_chip, paint_chips
from devexplorer.gui.widgets.table import PAD_PX, Index, Padded, RowsTable

STRETCHED = {3: 4, 13: 1}
"""Columns that take of the room that is left, and how many parts of it; the tags take the rest."""
GIVES_UP = tuple(map([column.title for column in COLUMNS].index, ("W", "MHz", "°C", "% of best", "kind", "noise %")))
"""Columns that a narrow window goes without, the first of them first."""
TAGS_PX = 72
"""Of the tags at least."""


class _Tags(Padded):
    """Tags as chips; a line to type in while they are edited."""

    def createEditor(self, parent: QWidget, _option: QStyleOptionViewItem, _index: Index) -> QWidget:
        editor = QLineEdit(parent, placeholderText="tag, another tag")
        editor.setAccessibleName("Tags")
        editor.setTextMargins(0, -4, 0, -4)  # the stylesheet's padding is for fields outside tables
        return editor

    def updateEditorGeometry(self, editor: QWidget, option: QStyleOptionViewItem, _index: Index) -> None:
        editor.setGeometry(option.rect)

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        model, text = index.model(), index.data()
        if not text or not isinstance(model, HistoryModel):
            return False
        painter.setClipRect(cell)
        theme = current_theme()
        pen = QPen(theme.border_strong)
        paint_chips(
            painter, cell.adjusted(0, 0, -PAD_PX, 0), model.runs[index.row()].tags,
            lambda box, tag: paint_chip(painter, box, tag, pen, theme.card, "text"),
        )  # fmt: skip
        return True


class HistoryTable(RowsTable):
    """Rows are runs, known by their numbers."""

    def __init__(self, model: HistoryModel) -> None:
        super().__init__(model, "Stored benchmark runs", [*WIDTHS, TAGS_PX], gives_up=GIVES_UP)
        self.setColumnWidth(TAGS, TAGS_PX)
        self._model = model
        self.tags = _Tags()
        self.setItemDelegateForColumn(TAGS, self.tags)
        self.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.setEditTriggers(QAbstractItemView.EditTrigger.DoubleClicked | QAbstractItemView.EditTrigger.EditKeyPressed)
        self.setHorizontalScrollMode(QAbstractItemView.ScrollMode.ScrollPerPixel)

    @property
    def chosen(self) -> tuple[StoredRun, ...]:
        """The selected runs, from the top."""
        return tuple(self._model.runs[row] for row in self.selected_rows)

    def choose(self, ids: Iterable[int]) -> None:
        """Select the runs with these numbers, those that are listed, and bring the first of them into sight."""
        wanted = set(ids)
        rows = [row for row, run in enumerate(self._model.runs) if run.id in wanted]
        chosen = QItemSelection()
        for row in rows:
            chosen.select(self._model.index(row, 0), self._model.index(row, TAGS))
        self.selectionModel().select(chosen, QItemSelectionModel.SelectionFlag.ClearAndSelect)
        if rows:
            self.selectionModel().setCurrentIndex(
                self._model.index(rows[0], 0), QItemSelectionModel.SelectionFlag.NoUpdate
            )
            self.scrollTo(self._model.index(rows[0], 0))

    def edit_tags(self) -> None:
        """Edit the tags of the current row in place."""
        index = self._model.index(self.currentIndex().row(), TAGS)
        if index.isValid():
            self.scrollTo(index)
            self.edit(index)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy) and self.chosen:
            lines = ["\t".join(column.title or "unit" for column in COLUMNS)]
            lines += ["\t".join(cell.text for cell in self._model.row(row).cells) for row in self.selected_rows]
            QApplication.clipboard().setText("\n".join(lines))
        elif event.key() == Qt.Key.Key_F2:
            self.edit_tags()
        else:
            super().keyPressEvent(event)

    def resizeEvent(self, event: QResizeEvent) -> None:
        """Share out what the columns leave of the width."""
        super().resizeEvent(event)
        shown = (width for column, width in enumerate(WIDTHS) if not self.isColumnHidden(column))
        spare = self.viewport().width() - sum(shown) - TAGS_PX
        parts = sum(STRETCHED.values()) + 3
        for column, share in STRETCHED.items():
            self.setColumnWidth(column, WIDTHS[column] + max(spare, 0) * share // parts)
