"""The dialog that shows what a file of tensors holds and loads some of it onto a device. Main thread; the engine reads
the file."""

from __future__ import annotations

from PySide6.QtCore import QItemSelectionModel
from PySide6.QtWidgets import QAbstractItemView, QComboBox, QWidget

from devexplorer.core.base import bytes_text, count_text, shape_text
from devexplorer.core.records import FileContents, ListFile, Load
from devexplorer.core.session import State
from devexplorer.gui.files.file_question import FileQuestionDialog
from devexplorer.gui.objects.visible import natural
from devexplorer.gui.widgets import line_edit
from devexplorer.gui.widgets.table import Cell, Column, TableRow, numbers

WIDTH_PX = 620
KINDS = "Tensors (*.safetensors *.pt *.pth *.bin *.ckpt *.th *.tar *.pkl *.npy *.index.json);;All files (*)"
_COLUMNS = (Column("name"), Column("shape"), Column("dtype"), numbers("bytes"))


class LoadFileDialog(FileQuestionDialog[FileContents]):
    """Choose which tensors of a file to load; `ListFile`, then `Load`."""

    waiting = "The engine is looking into the file…"

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(
            state, "Load tensors", WIDTH_PX, KINDS, "What the file holds", _COLUMNS, [270, 110, 90], parent
        )
        self.device = QComboBox()
        self.device.addItems(state.usable_devices)
        self.name = line_edit(placeholder="as in the file")
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.selectionModel().selectionChanged.connect(self._check)
        self.add_row("to device", self.device)
        self.add_row("name", self.name)
        self._check()

    def _latest(self) -> FileContents | None:
        return self._state.file

    def _question(self, path: str) -> ListFile:
        return ListFile(path=path, sent_from=self.file.sent_from)

    def _answers(self, result: FileContents) -> bool:
        return self._asked == self._question(result.path)

    def _rows(self, result: FileContents) -> list[TableRow]:
        entries = sorted(result.entries, key=lambda entry: natural(entry.key))
        return [
            TableRow(
                item.key, (Cell(item.key), Cell(shape_text(item.shape)), Cell(item.dtype), Cell(f"{item.bytes:,}"))
            )
            for item in entries
        ]

    def _chosen(self) -> tuple[str, ...]:
        return tuple(self.model.rows[index.row()].cells[0].text for index in self.table.selectionModel().selectedRows())

    def _say_result(self, result: FileContents) -> None:
        chosen = set(self._chosen())
        listed = [entry for entry in result.entries if not chosen or entry.key in chosen]
        size = sum(entry.bytes for entry in listed) if chosen or len(listed) == result.count else result.bytes
        if chosen:
            what = f"{count_text(len(chosen), 'tensor')} of {result.count:,}"
        else:
            what = "its one tensor" if result.count == 1 else f"all {result.count:,} tensors"
        saved = f" They were on {result.saved_on} when they were saved." if result.saved_on else ""
        self.say(f"Loads {what}, {bytes_text(size)}.{saved}")

    def _command(self, result: FileContents) -> Load:
        name = self.name.text().strip() or None
        return Load(
            path=result.path,
            entries=self._chosen(),
            device=self.device.currentText(),
            name=name,
            sent_from=self.file.sent_from,
        )

    def choose(self, *keys: str) -> None:
        """Choose these entries."""
        flags = QItemSelectionModel.SelectionFlag.Select | QItemSelectionModel.SelectionFlag.Rows
        for number, row in enumerate(self.model.rows):
            if row.key in keys:
                self.table.selectionModel().select(self.model.index(number, 0), flags)
