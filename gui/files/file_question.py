"""What the dialogs that load a file share: they ask the engine about it and show the answer. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Generic, TypeVar

from PySide6.QtWidgets import QWidget

from devexplorer.core.records import Command, Comparison, FileContents
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.file_field import FileField
from devexplorer.gui.widgets.table import Column, RowsModel, RowsTable, TableRow

TABLE_PX = 220
OPENED = ("file", "folder")
"""A folder can be one checkpoint: the engine says so, or why not."""
Result = TypeVar("Result", FileContents, Comparison)


class FileQuestionDialog(FormDialog, Generic[Result]):
    """Choose a file, see what the engine says about it, load. `refresh` when the engine has answered."""

    waiting: str
    """Shown until the answer is there."""

    def __init__(
        self, state: State, title: str, width_px: int, kinds: str, table: str, columns: Sequence[Column],
        widths: Sequence[int], parent: QWidget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(title, "Load", width_px, parent)
        self._state = state
        self._asked: Command | None = None
        self._answer = state.answer
        self._result: Result | None = None
        self._before: Result | None = self._latest()
        """What was known before this file was asked about; the file may have changed since."""
        self.file = FileField("File", kinds)
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
