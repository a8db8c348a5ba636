"""The dialog that shows what a file of tensors holds and loads some of it onto a device. Main thread; the engine reads
the file."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import QItemSelectionModel, Signal
from PySide6.QtWidgets import QAbstractItemView, QComboBox, QWidget

from devexplorer.core.base.formats import bytes_text, count_text, shape_text
from devexplorer.core.records.laboratory import FileContents, ListFile, Load
from devexplorer.core.session.state import State
from devexplorer.gui.objects.visible import natural
from devexplorer.gui.widgets.file_field import FileField, is_file
from devexplorer.gui.widgets.form_dialog import FormDialog
from devexplorer.gui.widgets.layouts import line_edit
from devexplorer.gui.widgets.rows import Cell, Column, RowsModel, TableRow
from devexplorer.gui.widgets.table import RowsTable
from devexplorer.gui.widgets.theme import Theme

WIDTH_PX, TABLE_PX = 620, 220
KINDS = "Tensors (*.safetensors *.pt *.pth *.bin *.npy)"
_COLUMNS = (Column("name"), Column("shape"), Column("dtype"), Column("bytes", is_number=True))


class LoadFileDialog(FormDialog):
    """Name a file: it is looked into; choose what to load. `refresh` when the engine has answered."""

    command_requested = Signal(object)
    """`ListFile`, then `Load`."""

    def __init__(self, state: State, theme: Theme, path: Path | None = None, parent: QWidget | None = None) -> None:
        super().__init__("Load tensors", "Load", WIDTH_PX, parent)
        self._state = state
        self._asked: str | None = None
        self._answer = state.answer
        self._contents: FileContents | None = None
        self._before = state.file
        """What was known of a file before this one was asked about: it may have been written anew since."""
        self.file = FileField("File", KINDS)
        self.device = QComboBox()
        self.device.addItems(state.usable_devices)
        self.name = line_edit(placeholder="as in the file")
        self.model = RowsModel(_COLUMNS, self)
        self.table = RowsTable(self.model, "What the file holds", [270, 110, 90])
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.setMinimumHeight(TABLE_PX)
        self.table.selectionModel().selectionChanged.connect(self._check)
        self.add_row("file", self.file)
        self.add_row("to device", self.device)
        self.add_row("name", self.name)
        self.add_part(self.table, 1)
        self.file.changed.connect(self._look)
        self.accept_button.clicked.connect(self._accept)
        if path is not None:
            self.file.set_path(str(path))
        self._check()

    def _look(self) -> None:
        """Ask what is in the file, once it is there."""
        path = self.file.path
        self._contents = None
        self.model.set_rows([])
        if path is not None and is_file(path):
            self._asked, self._answer, self._before = str(path), self._state.answer, self._state.file
            self.command_requested.emit(ListFile(path=str(path)))
        self._check()

    def refresh(self) -> None:
        """The engine has answered something."""
        contents = self._state.file
        news = contents is not None and contents is not self._contents and contents is not self._before
        if contents is not None and news and contents.path == self._asked and self._is_current():
            self._contents = contents
            rows = [
                TableRow(one.key, (Cell(one.key), Cell(shape_text(one.shape)), Cell(one.dtype), Cell(f"{one.bytes:,}")))
                for one in sorted(contents.entries, key=lambda one: natural(one.key))
            ]
            self.model.set_rows(rows)
        self._check()

    def _is_current(self) -> bool:
        return self.file.path is not None and str(self.file.path) == self._asked

    def _chosen(self) -> tuple[str, ...]:
        return tuple(self.model.rows[index.row()].cells[0].text for index in self.table.selectionModel().selectedRows())

    def _check(self) -> None:
        path, answer = self.file.path, self._state.answer
        if path is None:
            self.say("Choose a file.", ready=False)
        elif not is_file(path):
            self.say(f"There is no file {path}.", wrong=True)
        elif self._contents is not None:
            self._say_contents(self._contents)
        elif answer is not None and answer is not self._answer and answer.failed:
            self.say(answer.words, wrong=True)
        else:
            self.say("The engine is looking into the file…", ready=False)

    def _say_contents(self, contents: FileContents) -> None:
        chosen = set(self._chosen())
        listed = [one for one in contents.entries if not chosen or one.key in chosen]
        size = sum(one.bytes for one in listed) if chosen or len(listed) == contents.count else contents.bytes
        if chosen:
            what = f"{count_text(len(chosen), 'tensor')} of {contents.count:,}"
        else:
            what = "its one tensor" if contents.count == 1 else f"all {contents.count:,} tensors"
        saved = f" They were on {contents.saved_on} when they were saved." if contents.saved_on else ""
        self.say(f"Loads {what}, {bytes_text(size)}.{saved}")

    def _accept(self) -> None:
        if self._contents is not None:
            name = self.name.text().strip() or None
            self.command_requested.emit(
                Load(path=self._contents.path, entries=self._chosen(), device=self.device.currentText(), name=name)
            )
            self.accept()

    def choose(self, *keys: str) -> None:
        """Choose these entries."""
        flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
        for number, row in enumerate(self.model.rows):
            if row.key in keys:
                self.table.selectionModel().select(self.model.index(number, 0), flags)
