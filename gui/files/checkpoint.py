"""The dialog that shows a checkpoint beside a model and loads it: missing, unexpected and mismatched keys. Main
thread."""

from __future__ import annotations

from PySide6.QtWidgets import QCheckBox, QWidget

from devexplorer.core.base import count_text, shape_text
from devexplorer.core.records import CompareCheckpoint, Comparison, LoadCheckpoint
from devexplorer.core.session import State
from devexplorer.gui.files.file_question import FileQuestionDialog
from devexplorer.gui.widgets import line_edit, push_button
from devexplorer.gui.widgets.table import Cell, Column, TableRow

WIDTH_PX = 660
KINDS = "Checkpoints (*.safetensors *.pt *.pth *.bin *.ckpt *.th *.tar *.pkl *.index.json);;All files (*)"
_COLUMNS = (Column("key"), Column("what"), Column("in the model"), Column("in the file"))


class CheckpointDialog(FileQuestionDialog[Comparison]):
    """The engine compares a file with a model; load all of it, or what fits. `CompareCheckpoint`, then
    `LoadCheckpoint`."""

    waiting = "The engine is comparing…"

    def __init__(self, state: State, target: str, parent: QWidget | None = None) -> None:
        title = f"Load a checkpoint into {target}"
        super().__init__(state, title, WIDTH_PX, KINDS, "Keys that do not match", _COLUMNS, [300, 100, 110], parent)
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

    def _latest(self) -> Comparison | None:
        return self._state.comparison

    def _question(self, path: str) -> CompareCheckpoint:
        return CompareCheckpoint(target=self._target, path=path, strip=self.strip.text().strip())

    def _answers(self, result: Comparison) -> bool:
        return self._asked == CompareCheckpoint(target=self._target, path=result.path, strip=result.strip)

    def _take_suggestion(self) -> None:
        if self._result is not None and self._result.suggested_strip is not None:
            self.strip.setText(self._result.suggested_strip)
            self._ask()

    def _say_result(self, result: Comparison) -> None:
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

    def _command(self, result: Comparison) -> LoadCheckpoint:
        return LoadCheckpoint(
            target=self._target, path=result.path, strip=result.strip, partial=self.partial.isChecked()
        )

    def _rows(self, result: Comparison) -> list[TableRow]:
        rows = [(item.key, "other shape", shape_text(item.model), shape_text(item.file)) for item in result.mismatched]
        rows += [(key, "missing", "yes", "no") for key in result.missing]
        rows += [(key, "unexpected", "no", "yes") for key in result.unexpected]
        rows += [(key, "cast", "", "") for key in result.casts]
        return [TableRow((row[0], row[1]), tuple(map(Cell, row))) for row in rows]
