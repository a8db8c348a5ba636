"""The numbers of a picture in a table, to read, with a screen reader too, and to copy. Main thread."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from PySide6.QtGui import QGuiApplication, QKeyEvent, QKeySequence
from PySide6.QtWidgets import QAbstractItemView, QDialog, QWidget

from devexplorer.core.base import MISSING
from devexplorer.gui.widgets.figures import Figures, Tabled
from devexplorer.gui.widgets.form_fields import Choice
from devexplorer.gui.widgets.layouts import hbox, push_button, vbox
from devexplorer.gui.widgets.panel import EDGE_PX, label, show_text
from devexplorer.gui.widgets.picture import text_width
from devexplorer.gui.widgets.table import PAD_PX, Cell, Column, RowsTable, TableRow
from devexplorer.gui.widgets.theme import Role

SIZE_PX, MOST_COLUMN_PX = (760, 520), 320


class FiguresDialog(QDialog):
    """The table of one of `pictures`, by what they are called. Ctrl+C copies the selected rows, or all of them."""

    def __init__(self, pictures: Mapping[str, Tabled], parent: QWidget) -> None:
        super().__init__(parent)
        self.resize(*SIZE_PX)
        self.choice = Choice("Plot", [(picture, name, "") for name, picture in pictures.items()])
        self.choice.setVisible(len(pictures) > 1)
        self.choice.activated.connect(self.refresh)
        self.table = RowsTable([], "", [])
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.horizontalHeader().setStretchLastSection(False)
        self.note = label("", words="dim", wrap=True)
        self.refresh_button = push_button("Refresh", self.refresh, tip="Take what the plot shows now")
        self.copy_button = push_button("Copy", self.copy, tip="Copy the table for a spreadsheet (Ctrl+C)")
        self.close_button = push_button("Close", self.accept)
        buttons = (self.refresh_button, self.copy_button, self.close_button)
        for button in buttons:
            button.setAutoDefault(False)
        vbox(self.choice, (self.table, 1), self.note, hbox(None, *buttons), margins=EDGE_PX, parent=self)
        self._titles: tuple[str, ...] = ()
        self.refresh()
        self.table.setFocus()

    def refresh(self) -> None:
        """Take what the plot shows now."""
        shown: Figures = self.choice.value.figures() or Figures((), ())
        name = self.choice.currentText()
        self.setWindowTitle(f"Table: {name}")
        self.table.setAccessibleName(f"Values of {name}")
        self._titles = shown.columns
        columns = list(zip(*shown.rows, strict=True)) or [()] * len(shown.columns)
        self.table.rows_model.set_columns(
            [Column(title, is_number=_are_numbers(texts)) for title, texts in zip(shown.columns, columns, strict=True)]
        )
        self.table.set_rows([TableRow(at, tuple(map(Cell, texts))) for at, texts in enumerate(shown.rows)])
        for at, texts in enumerate(columns):
            width = max(text_width(self._titles[at]), text_width(max(texts, key=len, default=""), Role.TEXT))
            self.table.setColumnWidth(at, min(width, MOST_COLUMN_PX) + 3 * PAD_PX)
        show_text(self.note, shown.note)

    def copy(self) -> None:
        """Put the selected rows, or all, on the clipboard: tabs between cells, the titles first."""
        chosen, rows = self.table.selected_rows, self.table.rows
        lines = [[cell.text.replace(MISSING, "") for cell in rows[at].cells] for at in chosen or range(len(rows))]
        QGuiApplication.clipboard().setText("".join("\t".join(line) + "\n" for line in (self._titles, *lines)))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        if event.matches(QKeySequence.StandardKey.Copy):
            self.copy()
        else:
            super().keyPressEvent(event)


def _are_numbers(texts: Iterable[str]) -> bool:
    try:
        return bool([float(text) for text in texts if text != MISSING])
    except ValueError:
        return False
