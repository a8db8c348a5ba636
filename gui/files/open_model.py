"""The dialog that opens a model of the user's own: a Python file, a notebook, a module, transformers, torchvision. Main
thread; nothing is run here."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QComboBox, QWidget

from devexplorer.core.base import BadInput, sentence
from devexplorer.core.files.records import OpenModel
from devexplorer.core.isolation.model_classes import Candidate
from devexplorer.core.isolation.model_source import CODE_SUFFIXES, describe, file_of
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.file_field import FileField
from devexplorer.gui.widgets import ROW_PX, Cell, Column, RowsTable, TableRow, line_edit, spin_box

WIDTH_PX = 560
KINDS = {
    "file": "a Python file or notebook: a class or function in it",
    "module": "a Python module that can be imported",
    "transformers": "transformers: a configuration, random weights",
    "torchvision": "torchvision: by name, random weights",
}
"""Where models come from, in words."""
DTYPES = ("as built", "float32", "float16", "bfloat16", "float64")
TYPES = ("bert", "gpt2", "llama", "t5", "vit", "distilbert", "roberta", "whisper")
"""Model types that are offered; any other can be typed."""
FACTORY = "enter the class or function that creates the model"
CHOOSE = "choose a class or function of the file"
CHOOSE_IN_MODULE = "choose a class or function of the module"


_COLUMNS = (Column("name"), Column("what"), Column("needs", "Arguments without a default"))
_ROWS_SHOWN, _LINES = 4, 5
"""Rows of the table, and lines of the message: what is chosen moves no button."""


class OpenModelDialog(FormDialog):
    """Say what, from where; `command_requested` carries the command."""

    file_chosen = Signal(object)
    """What is in this Python file (Path)? Whoever answers calls `show_candidates`."""

    def __init__(self, state: State, recent: tuple[OpenModel, ...] = (), parent: QWidget | None = None) -> None:
        """`recent`: what was opened last; choosing one fills in all that was chosen then."""
        super().__init__("Open a model", "Open", WIDTH_PX, parent)
        self._state = state
        self.recent = QComboBox()
        self.recent.addItem("choose a recent model", None)
        for command in recent:
            self.recent.addItem(command.source, command)
        self.kind = QComboBox()
        for kind, words in KINDS.items():
            self.kind.addItem(words, kind)
        self.file = FileField("Python file", "Python (*.py *.ipynb)")
        self.table = RowsTable(_COLUMNS, "Models in the file", [190, 80])
        self.table.setFixedHeight((_ROWS_SHOWN + 1) * ROW_PX + 4)
        self._listed: Path | None = None
        self._asked = False
        """Whether what is in it was asked for: that it is there can become known later."""
        self._found: dict[str, Candidate] = {}
        self._guess = ""
        """What was filled in as options, which another choice replaces."""
        self.module = line_edit(placeholder="package.module")
        self.folder = FileField("Folder", "", folder=True)
        self.factory = line_edit(placeholder="MyModel, or make_model: called without arguments")
        self.type = QComboBox(editable=True)
        self.type.addItems(TYPES)
        self.type.setToolTip("A model type, or the path of a config.json")
        self.vision = line_edit(placeholder="resnet50")
        self.options = line_edit(placeholder="n_layer=2 n_embd=64 cfg=@config.yaml")
        self.inputs = line_edit(placeholder="found out when it runs; or 2x16:int64, 4x12")
        self.name = line_edit(placeholder="automatic")
        self.device = QComboBox()
        self.device.addItems(state.usable_devices or ["cpu"])
        self.dtype = QComboBox()
        self.dtype.addItems(DTYPES)
        self.seed = spin_box(0, 2**31 - 1)
        self._rows: dict[str, tuple[QWidget, ...]] = {
            "file": (self.file, self.table, self.factory, self.options),
            "module": (self.module, self.table, self.factory, self.folder, self.options),
            "transformers": (self.type, self.options),
            "torchvision": (self.vision, self.options),
        }
        rows: list[tuple[str, QWidget]] = [
            ("recent", self.recent), ("from", self.kind), ("file", self.file), ("models in it", self.table),
            ("module", self.module), ("folder", self.folder), ("type", self.type), ("model", self.vision),
            ("class or function", self.factory), ("options", self.options), ("inputs", self.inputs),
            ("name", self.name), ("device", self.device), ("dtype", self.dtype), ("seed", self.seed),
        ]  # fmt: skip
        for words, field in rows:
            self.add_row(words, field)
        self.form.setRowVisible(self.recent, bool(recent))
        for edit in (self.module, self.factory, self.vision, self.options, self.inputs, self.name):
            edit.textChanged.connect(self._check)
        for box in (self.kind, self.type):
            box.currentTextChanged.connect(self._check)
        for changed in (self.file.changed, self.folder.changed, self.module.textChanged, self.kind.currentTextChanged):
            changed.connect(self._look)
        for file in (self.file, self.folder):
            file.changed.connect(self._check)
        self.recent.currentIndexChanged.connect(self._take_recent)
        self.table.selected.connect(self._take_candidate)
        self.table.activated.connect(self.accept_button.click)
        self.message.setMinimumHeight(_LINES * self.message.fontMetrics().lineSpacing())
        self.kind.setCurrentIndex(self.kind.findData("module"))
        self.setMinimumHeight(self.sizeHint().height())  # of most rows: another choice moves no button
        self.kind.setCurrentIndex(0)
        self._check()

    def show_file(self, path: Path) -> None:
        """Have this Python file chosen; its class or function is to be named."""
        self.kind.setCurrentIndex(self.kind.findData("file"))
        self.file.set_path(str(path))

    def show_choices(self, command: OpenModel) -> None:
        """Have the fields say what was chosen then; a device that is gone stays as it is."""
        self._show_source(command.source, command.folder)
        self.inputs.setText(command.inputs)
        self.device.setCurrentText(command.device)
        self.dtype.setCurrentText(command.dtype or DTYPES[0])
        self.seed.setValue(command.seed)

    def _take_recent(self) -> None:
        if (command := self.recent.currentData()) is not None:
            self.show_choices(command)

    def _show_source(self, source: str, folder: str) -> None:
        """As `source` gives it."""
        target, _, rest = source.partition(":")
        source, _, given = source.partition("?")
        if target in ("transformers", "torchvision"):
            name, _, options = rest.partition("?")
            self.kind.setCurrentIndex(self.kind.findData(target))
            self.type.setCurrentText(name) if target == "transformers" else self.vision.setText(name)
            self.options.setText(options.replace("&", " "))
            return
        target, _, factory = source.rpartition(":")
        is_path = target.endswith(CODE_SUFFIXES)
        self.kind.setCurrentIndex(self.kind.findData("file" if is_path else "module"))
        self.file.set_path(str(Path(folder, target)) if is_path else "")
        self.module.setText("" if is_path else target)
        self.folder.set_path("" if is_path else folder)
        self.factory.setText(factory)
        self.options.setText(given.replace("&", " "))

    # --- what is in the file

    def _look(self) -> None:
        """Ask what is in a file or a module that was chosen."""
        if self.kind.currentData() == "module":
            path = self._module_file()
            is_code = path is not None
        else:
            path = self.file.path
            is_code = path is not None and path.suffix in CODE_SUFFIXES and self.file.look(path).kind == "file"
        if path == self._listed and (self._asked or not is_code):
            return
        self._listed, self._asked, self._found = path, is_code, {}
        self.table.set_rows([])
        if is_code:
            self.file_chosen.emit(path)

    def _module_file(self) -> Path | None:
        """Of a module on this machine, where it can be found."""
        if self.file.is_far:
            return None
        folder = "" if self.folder.path is None else str(self.folder.path)
        return file_of(self.module.text().strip(), folder)

    def show_candidates(self, path: Path, found: Sequence[Candidate]) -> None:
        """What is in this file; the only one, or the only one that needs nothing, is chosen, if nothing was typed."""
        if path != self._listed:
            return
        self._found = {item.name: item for item in found}
        self.table.set_rows([_row(item) for item in found])
        ready = [item.name for item in found if len(item.guesses) == len(item.needs) or len(found) == 1]
        typed = self.factory.text().strip()
        if typed in self._found or (not typed and len(ready) == 1):
            self.table.select_key(typed or ready[0])
        self._check()

    def _take_candidate(self) -> None:
        guess = ""
        if isinstance(name := self.table.selected_key, str) and name in self._found:
            self.factory.setText(name)
            guess = " ".join(self._found[name].guesses)
        if self.options.text() in ("", self._guess):
            self.options.setText(guess)
            self._guess = guess

    def _missing(self) -> str:
        """What the chosen class or function needs and was not given."""
        item = self._found.get(self.factory.text().strip())
        if item is None or self.kind.currentData() not in ("file", "module"):
            return ""
        given = {part.partition("=")[0] for part in _options(self.options.text())}
        return ", ".join(f"{name}=…" for name in item.needs if name not in given)

    def source(self) -> tuple[str, str]:
        """Source and folder of `OpenModel`, from the fields; `BadInput` when something is missing."""
        kind, factory = self.kind.currentData(), self.factory.text().strip()
        options = f"?{'&'.join(given)}" if (given := _options(self.options.text())) else ""
        if kind == "file":
            path = self.file.path
            if path is None:
                raise _Missing("choose a Python file")
            found = self.file.look(path)
            if found.kind == "unknown":
                raise _Missing(found.words)
            if found.kind != "file":
                raise BadInput(found.words.rstrip("."))
            path = path.absolute()  # a relative one would be looked for in its own folder
            return f"{path}:{_needed(factory, CHOOSE if self._found else FACTORY)}{options}", str(path.parent)
        if kind == "module":
            module = _needed(self.module.text().strip(), "enter the module: package.module")
            folder = "" if self.folder.path is None else str(self.folder.path)
            return f"{module}:{_needed(factory, CHOOSE_IN_MODULE if self._found else FACTORY)}{options}", folder
        name = self.type.currentText() if kind == "transformers" else self.vision.text()
        return f"{kind}:{_needed(name.strip(), 'choose a model')}{options}", ""

    def _check(self) -> None:
        self._show_rows()  # no lower for fewer rows: the buttons stay where they are
        self._say_what_runs()

    def _say_what_runs(self) -> None:
        if not self._is_filled():
            self.say("Choose a model.", ready=False)
            return
        try:
            source, folder = self.source()
            runs = describe(source, folder, self.file.machine)
            name = self.name.text().strip()
            if name in self._state.objects:
                raise BadInput(f"there is a '{name}' already; choose another name")
        except _Missing as error:  # not typed yet, which is no error
            self.say(sentence(error.findings[0]), ready=False)
            return
        except BadInput as error:
            self.say(sentence(error.findings[0]), wrong=True)
            return
        if missing := self._missing():
            self.say(f"{self.factory.text().strip()} needs {missing} in Options. {runs.words}", warning=True)
        else:
            self.say(runs.words)

    def _show_rows(self) -> None:
        """Show the fields of the chosen kind."""
        wanted = self._rows.get(self.kind.currentData(), ())
        fields = {field for fields in self._rows.values() for field in fields}
        for field in sorted(fields, key=wanted.__contains__):  # hidden first: all of them at once have no room
            if self.form.isRowVisible(field) != (field in wanted):
                self.form.setRowVisible(field, field in wanted)

    def _is_filled(self) -> bool:
        """Whether anything was typed: an empty form has nothing wrong in it yet."""
        fields = (self.file.edit, self.module, self.vision, self.factory)
        return self.kind.currentData() == "transformers" or any(field.text().strip() for field in fields)

    def command(self) -> OpenModel:
        """See `FormDialog`."""
        source, folder = self.source()
        dtype = self.dtype.currentText()
        return OpenModel(
            source=source,
            folder=folder,
            name=self.name.text().strip() or None,
            device=self.device.currentText(),
            dtype=None if dtype == DTYPES[0] else dtype,
            seed=self.seed.value(),
            inputs=self.inputs.text().strip(),
        )


def _row(item: Candidate) -> TableRow:
    what = "class" if item.is_class else "function"
    return TableRow(item.name, (Cell(item.name), Cell(what, "dim"), Cell(", ".join(item.needs), "dim")))


def _options(text: str) -> list[str]:
    return [part for part in re.split(r"[\s,&]+", text.strip()) if part]


class _Missing(BadInput):
    """A field that has to be filled in is still empty."""


def _needed(text: str, otherwise: str) -> str:
    if not text:
        raise _Missing(otherwise)
    return text
