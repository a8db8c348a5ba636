"""The dialogs that save objects to a file, and that load a file: tensors of it onto a device or a checkpoint into a
model, once the engine has said what is in it. Main thread; the engine reads and writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QAbstractItemView, QCheckBox, QComboBox, QWidget

from devexplorer.core.base import bytes_text, count_text, object_name, objects_text, shape_text
from devexplorer.core.files.records import (
    CheckpointComparison,
    CompareCheckpoint,
    FileContents,
    ListFile,
    Load,
    LoadCheckpoint,
    Save,
)
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import Command
from devexplorer.core.session import State
from devexplorer.core.session.arrangement import natural
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.far_side import THIS_MACHINE, FarSide
from devexplorer.gui.forms.file_field import FileField
from devexplorer.gui.widgets import (
    Cell,
    Choice,
    Column,
    RowsTable,
    TableRow,
    label,
    line_edit,
    numbers,
    push_button,
)

SAVE_PX = 520
FORMS = {
    "safetensors": ("safetensors: tensors and nothing else", ".safetensors"),
    "pt": (".pt: state dicts and tensors, with torch.save", ".pt"),
    "module": (".pt: a whole model with torch.save, which needs its class to load", ".pt"),
}
"""Forms of `Save`, in words, with their suffixes."""
_SUFFIXES = {suffix for _, suffix in FORMS.values()}


class SaveFileDialog(FormDialog):
    """`targets` as in `Save`: empty for the whole workspace."""

    here_wanted = Signal(object, object)
    """The machine shown is another one, and the file is for this one: the `Save`, and where to (Path)."""

    def __init__(
        self, state: State, targets: tuple[str, ...], parent: QWidget | None = None, far: FarSide | None = None
    ) -> None:
        """`far`: the machine shown, when that is another one."""
        title = f"Save {objects_text(targets)}" if targets else "Save all tensors"
        super().__init__(title, "Save", SAVE_PX, parent)
        self._state, self._targets, self._far = state, targets, far
        self.machine = Choice("Machine", [(True, "" if far is None else far.name, ""), (False, THIS_MACHINE, "")])
        self.form_choice = QComboBox()
        kinds = [item.kind for name, item in state.objects.items() if (name,) == targets]
        for form, (words, _) in FORMS.items():
            if form == "safetensors" or (form == "pt" and targets) or kinds == ["model"]:
                self.form_choice.addItem(words, form)
        self.file = FileField(
            "Save", "", save=lambda: {self._suffix.removeprefix("."): FORMS[self.form_choice.currentData()][0]}
        )
        self.file.suggested = targets[0].replace(":", ".") if len(targets) == 1 else "workspace"
        self.overwrite = QCheckBox("replace the existing file")
        self.add_row("what", label(self._what(), wrap=True))
        if far is not None:
            self.add_row("machine", self.machine)
        self.add_row("file", self.file)
        self.add_row("Format", self.form_choice)
        self.add_row("", self.overwrite)
        self.machine.currentIndexChanged.connect(self._follow_machine)
        self.form_choice.currentIndexChanged.connect(self._follow_format)
        self.file.changed.connect(self._check)
        self.overwrite.toggled.connect(self._check)
        self._check()

    def _what(self) -> str:
        names = set(map(object_name, self._targets)) or set(self._state.objects)
        size = 0
        for name, item in self._state.objects.items():
            if name in names:
                size += sum(item.bytes_by_device.values())
        what = objects_text(self._targets or tuple(names))
        if any(":" in target for target in self._targets):
            return what
        return f"{what}, {bytes_text(size)}"

    @property
    def _suffix(self) -> str:
        """Of the chosen format."""
        return FORMS[self.form_choice.currentData()][1]

    @property
    def _here(self) -> bool:
        """Whether the file is for this machine, and another one writes it."""
        return self._far is not None and not self.machine.value

    def _follow_machine(self) -> None:
        self.file.set_side(None if self._here else self._far)

    def _follow_format(self) -> None:
        """The typed name's extension follows the format."""
        path = self.file.path
        if path is not None and path.suffix in _SUFFIXES and path.suffix != self._suffix:
            self.file.set_path(self.file.edit.text().strip().removesuffix(path.suffix) + self._suffix)
        self._check()

    def _path(self) -> Path | None:
        """With the format's extension where none was typed; `model-1.5` has none."""
        path = self.file.path
        if path is not None and path.suffix not in _SUFFIXES and self.file.look(path).kind != "folder":
            path = path.with_name(path.name + self._suffix)
        return path

    def _check(self) -> None:
        path = self._path()
        found = None if path is None else self.file.look(path)
        there = found is not None and found.kind == "file"
        self.form.setRowVisible(self.overwrite, there)
        if path is None or found is None:
            self.say("Choose a file.", ready=False)
        elif found.kind == "folder":
            self.say(f"{path} is a folder; name a file in it.", wrong=True)
        elif path.suffix != self._suffix:
            self.say(
                f"The format is {self._suffix}: name it {path.stem}{self._suffix}, or choose another format.",
                wrong=True,
            )
        elif found.kind == "unknown":
            self.say(found.words, ready=False)
        elif not self.file.has_folder(path.parent):
            self.say(f"There is no folder {path.parent}.", wrong=True)
        elif there and not self.overwrite.isChecked():
            self.say(
                f"{path.name} exists; tick the box to replace it. The file is replaced only after a complete write.",
                wrong=True,
            )
        elif self.form_choice.currentData() == "module":
            self.say(
                "Loading such a file needs the model's class and runs code: a state dict is better. DevExplorer will"
                " not open it."
            )
        else:
            where = "" if self._far is None else f" on {self.file.machine}"
            self.say(f"Saves to {path.name}{where}; a file there is replaced only after a complete write.")

    def _accept(self) -> None:
        path, command = self._path(), self.command()
        if not self._here:
            super()._accept()
        elif path is not None and command is not None:
            self.accept()
            self.here_wanted.emit(command, path.absolute())

    def command(self) -> Save | None:
        """See `FormDialog`."""
        path, form = self._path(), self.form_choice.currentData()
        if path is None:
            return None
        return Save(targets=self._targets, path=str(path), form=form, overwrite=self.overwrite.isChecked())


WIDTH_PX, TABLE_PX = 660, 220
CHECKPOINTS = "*.safetensors *.pt *.pth *.bin *.ckpt *.th *.tar *.pkl *.index.json"
OPENED = ("file", "folder")
"""A folder can be one checkpoint: the engine says so, or why not."""


class FileQuestionDialog(FormDialog):
    """Choose a file, see what the engine says about it, load. `refresh` when the engine has answered."""

    waiting: str
    """Shown until the answer is there."""
    latest: str
    """The field of `FilesState` that has the newest answer, whatever it is about."""

    def __init__(
        self, state: State, title: str, kinds: str, table: str, columns: Sequence[Column],
        widths: Sequence[int], parent: QWidget | None = None,
    ) -> None:  # fmt: skip
        super().__init__(title, "Load", WIDTH_PX, parent)
        self._state = state
        self._asked: Any = None
        self._answer = state.answer
        self._result: Any = None
        self._before = self._latest()
        """What was known before this file was asked about; the file may have changed since."""
        self.file = FileField("File", f"{kinds};;All files (*)")
        self.table = RowsTable(columns, table, widths)
        self.table.setMinimumHeight(TABLE_PX)
        self.add_row("file", self.file)
        self.add_part(self.table, 1)
        self.file.changed.connect(self._ask)

    def _latest(self) -> Any:
        return getattr(self._state.part(FilesState), self.latest)

    # --- what a dialog has to say

    def _question(self, path: str) -> Command:
        raise NotImplementedError

    def _rows(self, result: Any) -> list[TableRow]:
        raise NotImplementedError

    def _say_result(self, result: Any) -> None:
        raise NotImplementedError

    def _command(self, result: Any) -> Command:
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
            self.table.set_rows([])
            if question is not None:
                self.command_requested.emit(question)
        self._check()

    def refresh(self) -> None:
        """The engine has answered something."""
        result = self._latest()
        if result is not None and result is not self._before and self._asked is not None:
            asked = (self._asked.path, getattr(self._asked, "strip", ""))
            if result is not self._result and (result.path, getattr(result, "strip", "")) == asked:
                self._result = result
                self.table.set_rows(self._rows(result))
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


class LoadFileDialog(FileQuestionDialog):
    """Choose which tensors of a file to load; `ListFile`, then `Load`."""

    waiting = "The engine is looking into the file…"
    latest = "listed"

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        columns = (Column("name"), Column("shape"), Column("dtype"), numbers("bytes"))
        kinds = f"Tensors ({CHECKPOINTS} *.npy)"
        super().__init__(state, "Load tensors", kinds, "What the file holds", columns, [270, 110, 90], parent)
        self.device = QComboBox()
        self.device.addItems(state.usable_devices)
        self.name = line_edit(placeholder="as in the file")
        self.table.setSelectionMode(QAbstractItemView.SelectionMode.ExtendedSelection)
        self.table.selected.connect(self._check)
        self.add_row("to device", self.device)
        self.add_row("name", self.name)
        self._check()

    def _question(self, path: str) -> ListFile:
        return ListFile(path=path, sent_from=self.file.sent_from)

    def _rows(self, result: FileContents) -> list[TableRow]:
        rows = []
        for item in sorted(result.entries, key=lambda entry: natural(entry.key)):
            cells = (item.key, shape_text(item.shape), item.dtype, f"{item.bytes:,}")
            rows.append(TableRow(item.key, tuple(map(Cell, cells))))
        return rows

    def _chosen(self) -> tuple[str, ...]:
        return tuple(self.table.rows[index.row()].cells[0].text for index in self.table.selectionModel().selectedRows())

    def _say_result(self, result: FileContents) -> None:
        chosen = set(self._chosen())
        listed = [entry for entry in result.entries if not chosen or entry.key in chosen]
        size = sum(entry.bytes for entry in listed) if chosen or len(listed) == result.count else result.bytes
        what = f"all {result.count:,} tensors"
        if chosen:
            what = f"{count_text(len(chosen), 'tensor')} of {result.count:,}"
        elif result.count == 1:
            what = "its one tensor"
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


class CheckpointDialog(FileQuestionDialog):
    """The engine compares a file with a model; load all of it, or what fits. `CompareCheckpoint`, then
    `LoadCheckpoint`."""

    waiting = "The engine is comparing…"
    latest = "comparison"

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

    def _question(self, path: str) -> CompareCheckpoint:
        return CompareCheckpoint(target=self._target, path=path, strip=self.strip.text().strip())

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
            self.say(f"{'; '.join([matching, *wrong])}.{casts}")

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
