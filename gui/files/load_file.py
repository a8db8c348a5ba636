"""The dialogs that load a file, tensors of it onto a device or a checkpoint into a model, once the engine has said what
is in it. Main thread; the engine reads the file."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from PySide6.QtWidgets import QAbstractItemView, QCheckBox, QComboBox, QWidget

from devexplorer.core.base import bytes_text, count_text, shape_text
from devexplorer.core.files.records import (
    CheckpointComparison,
    CompareCheckpoint,
    FileContents,
    ListFile,
    Load,
    LoadCheckpoint,
)
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import Command
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.file_field import FileField
from devexplorer.gui.objects.arrangement import natural
from devexplorer.gui.widgets import line_edit, push_button
from devexplorer.gui.widgets.table import Cell, Column, RowsModel, RowsTable, TableRow, numbers

WIDTH_PX, TABLE_PX = 660, 220
CHECKPOINTS = "*.safetensors *.pt *.pth *.bin *.ckpt *.th *.tar *.pkl *.index.json"
OPENED = ("file", "folder")
"""A folder can be one checkpoint: the engine says so, or why not."""
Result = TypeVar("Result", FileContents, CheckpointComparison)


class FileQuestionDialog(FormDialog, Generic[Result]):
    """Choose a file, see what the engine says about it, load. `refresh` when the engine has answered."""

    waiting: str
    """Shown until the answer is there."""

    def __init__(
        self, state: State, title: str, kinds: str, table: str, columns: Sequence[Column],
        widths: Sequence[int], parent: QWidget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(title, "Load", WIDTH_PX, parent)
        self._state = state
        self._asked: Command | None = None
        self._answer = state.answer
        self._result: Result | None = None
        self._before: Result | None = self._latest()
        """What was known before this file was asked about; the file may have changed since."""
        self.file = FileField("File", f"{kinds};;All files (*)")
        self.model = RowsModel(columns)
        self.table = RowsTable(self.model, table, widths)
        self.table.setMinimumHeight(TABLE_PX)
        self.add_row("file", self.file)
        self.add_part(self.table, 1)
        self.file.changed.connect(self._ask)

    # --- what a dialog has to say

    def _latest(self) -> Result | None:
        """The newest answer in the state, whatever it is about."""
        raise NotImplementedError

    def _question(self, path: str) -> Command:
        raise NotImplementedError

    def _answers(self, result: Result) -> bool:
        """Whether a result is about what is asked for now."""
        raise NotImplementedError

    def _rows(self, result: Result) -> list[TableRow]:
        raise NotImplementedError

    def _say_result(self, result: Result) -> None:
        raise NotImplementedError

    def _command(self, result: Result) -> Command:
        """What loads the file."""
        raise NotImplementedError

    # --- asking and showing

    def _ask(self) -> None:
        """Ask the engine about the file or folder, if it exists and the question is new."""
        path = self.file.path
        there = path is not None and self.file.look(path).kind in OPENED
        question = self._question(str(path)) if there else None
        if question != self._asked:
            self._asked, self._result = question, None
            self._answer, self._before = self._state.answer, self._latest()
            self.model.set_rows([])
            if question is not None:
                self.command_requested.emit(question)
        self._check()

    def refresh(self) -> None:
        """The engine has answered something."""
        result = self._latest()
        is_new = result is not self._result and result is not self._before
        if result is not None and is_new and self._asked is not None and self._answers(result):
            self._result = result
            self.model.set_rows(self._rows(result))
        self._check()

    def _check(self) -> None:
        path, answer = self.file.path, self._state.answer
        found = None if path is None else self.file.look(path)
        if found is None:
            self.say("Choose a file.", ready=False)
        elif found.kind not in OPENED:
            self.say(found.words, wrong=found.kind != "unknown", ready=False)
        elif self._result is not None:
            self._say_result(self._result)
        elif answer is not None and answer is not self._answer and answer.failed:
            self.say(answer.words, wrong=True)
        else:
            self.say(self.waiting, ready=False)

    def command(self) -> Command | None:
        """See `FormDialog`."""
        return None if self._result is None else self._command(self._result)


class LoadFileDialog(FileQuestionDialog[FileContents]):
    """Choose which tensors of a file to load; `ListFile`, then `Load`."""

    waiting = "The engine is looking into the file…"

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        columns = (Column("name"), Column("shape"), Column("dtype"), numbers("bytes"))
        kinds = f"Tensors ({CHECKPOINTS} *.npy)"
        super().__init__(state, "Load tensors", kinds, "What the file holds", columns, [270, 110, 90], parent)
        self.device = QComboBox()
        self.device.addItems(state.usable_devices)
        self.name = line_edit(placeholder="as in the file")
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.selectionModel().selectionChanged.connect(self._check)
        self.add_row("to device", self.device)
        self.add_row("name", self.name)
        self._check()

    def _latest(self) -> FileContents | None:
        return self._state.part(FilesState).listed

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


class CheckpointDialog(FileQuestionDialog[CheckpointComparison]):
    """The engine compares a file with a model; load all of it, or what fits. `CompareCheckpoint`, then
    `LoadCheckpoint`."""

    waiting = "The engine is comparing…"

    def __init__(self, state: State, target: str, parent: QWidget | None = None) -> None:
        title, kinds = f"Load a checkpoint into {target}", f"Checkpoints ({CHECKPOINTS})"
        columns = [Column(title) for title in ("key", "what", "in the model", "in the file")]
        super().__init__(state, title, kinds, "Keys that do not match", columns, [300, 100, 110], parent)
        self._target = target
        self.strip = line_edit(
            placeholder="nothing", tip="A prefix to take away from the file's keys: module. as DataParallel leaves it"
        )
        self.suggestion = push_button(clicked=self._take_suggestion)
        self.suggestion.hide()
        self.partial = QCheckBox("load what fits and leave the rest")
        self.add_row("take away", self.strip)
        self.add_row("", self.partial)
        self.add_button(self.suggestion)
        self.strip.editingFinished.connect(self._ask)
        self.partial.toggled.connect(self._check)
        self._check()

    def _latest(self) -> CheckpointComparison | None:
        return self._state.part(FilesState).comparison

    def _question(self, path: str) -> CompareCheckpoint:
        return CompareCheckpoint(target=self._target, path=path, strip=self.strip.text().strip())

    def _answers(self, result: CheckpointComparison) -> bool:
        return self._asked == CompareCheckpoint(target=self._target, path=result.path, strip=result.strip)

    def _take_suggestion(self) -> None:
        if self._result is not None and self._result.suggested_strip is not None:
            self.strip.setText(self._result.suggested_strip)
            self._ask()

    def _say_result(self, result: CheckpointComparison) -> None:
        self.suggestion.setVisible(result.suggested_strip is not None)
        self.suggestion.setText(f"Take away “{result.suggested_strip}”")
        counts = (
            (result.missing_count, "missing in the file"), (result.unexpected_count, "unknown to the model"),
            (result.mismatched_count, "of another shape"),
        )  # fmt: skip
        wrong = [f"{count:,} {words}" for count, words in counts if count]
        matching = f"{count_text(result.matching, 'key')} match"
        if not result.matching:
            self.say(f"No key matches: {', '.join(wrong)}.", wrong=True)
        elif wrong and not self.partial.isChecked():
            self.say(f"{matching}; {', '.join(wrong)}. Tick the box to load what fits.", wrong=True)
        else:
            casts = f" {count_text(len(result.casts), 'value')} change their dtype." if result.casts else ""
            self.say(f"{matching}{'; ' if wrong else ''}{', '.join(wrong)}.{casts}")

    def _command(self, result: CheckpointComparison) -> LoadCheckpoint:
        return LoadCheckpoint(
            target=self._target, path=result.path, strip=result.strip, partial=self.partial.isChecked()
        )

    def _rows(self, result: CheckpointComparison) -> list[TableRow]:
        rows = [(item.key, "other shape", shape_text(item.model), shape_text(item.file)) for item in result.mismatched]
        rows += [(key, "missing", "yes", "no") for key in result.missing]
        rows += [(key, "unexpected", "no", "yes") for key in result.unexpected]
        rows += [(key, "cast", "", "") for key in result.casts]
        return [TableRow((row[0], row[1]), tuple(map(Cell, row))) for row in rows]
