"""The dialog that shows a checkpoint beside a model and loads it: missing, unexpected and mismatched keys. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QWidget

from devexplorer.core.base.formats import count_text, shape_text
from devexplorer.core.records.laboratory import CompareCheckpoint, Comparison, LoadCheckpoint
from devexplorer.core.session.state import State
from devexplorer.gui.widgets.file_field import FileField, is_file
from devexplorer.gui.widgets.form_dialog import FormDialog
from devexplorer.gui.widgets.layouts import line_edit, push_button
from devexplorer.gui.widgets.rows import Cell, Column, RowsModel, TableRow
from devexplorer.gui.widgets.table import RowsTable
from devexplorer.gui.widgets.theme import Theme

WIDTH_PX, TABLE_PX = 660, 220
KINDS = "Checkpoints (*.safetensors *.pt *.pth *.bin)"
_COLUMNS = (Column("key"), Column("what"), Column("in the model"), Column("in the file"))


class CheckpointDialog(FormDialog):
    """Name a file: the engine compares; then load all, or what fits. `refresh` when the engine has answered."""

    command_requested = Signal(object)
    """`CompareCheckpoint`, then `LoadCheckpoint`."""

    def __init__(self, state: State, theme: Theme, target: str, parent: QWidget | None = None) -> None:
        super().__init__(f"Load a checkpoint into {target}", "Load", WIDTH_PX, parent)
        self._state, self._target, self._theme = state, target, theme
        self._answer = state.answer
        self._asked: tuple[str, str] | None = None
        self._comparison: Comparison | None = None
        self._before = state.comparison
        """What was known before this one was asked for: the file or the model may have changed since."""
        self.file = FileField("File", KINDS)
        self.strip = line_edit(
            placeholder="nothing", tip="A prefix to take away from the file's keys: module. as DataParallel leaves it"
        )
        self.suggestion = push_button(clicked=self._take_suggestion)
        self.suggestion.hide()
        self.partial = QCheckBox("load what fits and leave the rest")
        self.model = RowsModel(_COLUMNS, self)
        self.table = RowsTable(self.model, "Keys that do not match", [300, 100, 110])
        self.table.setMinimumHeight(TABLE_PX)
        self.add_row("file", self.file)
        self.add_row("take away", self.strip)
        self.add_row("", self.partial)
        self.add_part(self.table, 1)
        self.add_button(self.suggestion)
        self.file.changed.connect(self._compare)
        self.strip.editingFinished.connect(self._compare)
        self.partial.toggled.connect(self._check)
        self.accept_button.clicked.connect(self._accept)
        self._check()

    def _compare(self) -> None:
        path = self.file.path
        wanted = None if path is None else (str(path), self.strip.text().strip())
        if path is not None and is_file(path) and wanted is not None and wanted != self._asked:
            self._asked, self._comparison = wanted, None
            self._answer, self._before = self._state.answer, self._state.comparison
            self.model.set_rows([])
            self.command_requested.emit(CompareCheckpoint(target=self._target, path=wanted[0], strip=wanted[1]))
        self._check()

    def refresh(self) -> None:
        """The engine has answered something."""
        found = self._state.comparison
        news = found is not None and found is not self._comparison and found is not self._before
        if found is not None and news and (found.path, found.strip) == self._asked:
            self._comparison = found
            self.model.set_rows(_rows(found))
            self.suggestion.setVisible(found.suggested_strip is not None)
            self.suggestion.setText(f"Take away “{found.suggested_strip}”")
        self._check()

    def _take_suggestion(self) -> None:
        if self._comparison is not None and self._comparison.suggested_strip is not None:
            self.strip.setText(self._comparison.suggested_strip)
            self._compare()

    def _check(self) -> None:
        path, answer, found = self.file.path, self._state.answer, self._comparison
        if path is None:
            self.say("Choose a file.", ready=False)
        elif not is_file(path):
            self.say(f"There is no file {path}.", wrong=True)
        elif found is not None:
            self._say_comparison(found)
        elif answer is not None and answer is not self._answer and answer.failed:
            self.say(answer.words, wrong=True)
        else:
            self.say("The engine is comparing…", ready=False)

    def _say_comparison(self, found: Comparison) -> None:
        counts = (
            (found.missing_count, "missing in the file"), (found.unexpected_count, "unknown to the model"),
            (found.mismatched_count, "of another shape"),
        )  # fmt: skip
        wrong = [f"{count:,} {words}" for count, words in counts if count]
        matching = f"{count_text(found.matching, 'key')} match"
        if not found.matching:
            self.say(f"No key matches: {', '.join(wrong)}.", wrong=True)
        elif wrong and not self.partial.isChecked():
            self.say(f"{matching}; {', '.join(wrong)}. Tick the box to load what fits.", wrong=True)
        else:
            casts = f" {count_text(len(found.casts), 'value')} change their dtype." if found.casts else ""
            self.say(f"{matching}{'; ' if wrong else ''}{', '.join(wrong)}.{casts}")

    def _accept(self) -> None:
        if self._comparison is not None:
            found = self._comparison
            self.command_requested.emit(
                LoadCheckpoint(
                    target=self._target, path=found.path, strip=found.strip, partial=self.partial.isChecked()
                )
            )
            self.accept()


def _rows(found: Comparison) -> list[TableRow]:
    rows = [(one.key, "other shape", shape_text(one.model), shape_text(one.file)) for one in found.mismatched]
    rows += [(key, "missing", "yes", "no") for key in found.missing]
    rows += [(key, "unexpected", "no", "yes") for key in found.unexpected]
    rows += [(key, "cast", "", "") for key in found.casts]
    return [TableRow((key, what), (Cell(key), Cell(what), Cell(model), Cell(file))) for key, what, model, file in rows]
