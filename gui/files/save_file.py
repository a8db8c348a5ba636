"""The dialog that saves objects to a file. Main thread; nothing blocks."""

from __future__ import annotations

from pathlib import Path

from PySide6.QtCore import Signal
from PySide6.QtWidgets import QCheckBox, QComboBox, QWidget

from devexplorer.core.base import bytes_text, count_text, object_name
from devexplorer.core.files.records import Save
from devexplorer.core.session import State
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.forms.far_side import THIS_MACHINE, FarSide
from devexplorer.gui.forms.file_field import FileField
from devexplorer.gui.widgets import label
from devexplorer.gui.widgets.form_fields import Choice

WIDTH_PX = 520
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
        super().__init__("Save all tensors" if not targets else f"Save {_things(targets)}", "Save", WIDTH_PX, parent)
        self._state, self._targets, self._far = state, targets, far
        self.machine = Choice("Machine", [(True, "" if far is None else far.name, ""), (False, THIS_MACHINE, "")])
        self.form_choice = QComboBox()
        one_model = len(targets) == 1 and ":" not in targets[0] and self._kind(targets[0]) == "model"
        for form, (words, _) in FORMS.items():
            if (form == "safetensors" or targets) and (form != "module" or one_model):
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

    def _kind(self, name: str) -> str | None:
        snapshot = self._state.objects.get(name)
        return None if snapshot is None else snapshot.kind

    def _what(self) -> str:
        names = set(map(object_name, self._targets)) or set(self._state.objects)
        size = sum(
            sum(self._state.objects[name].bytes_by_device.values()) for name in names if name in self._state.objects
        )
        parts = any(":" in target for target in self._targets)
        what = _things(self._targets) if self._targets else count_text(len(names), "object")
        return what if parts else f"{what}, {bytes_text(size)}"

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
        return (
            path
            if path is None or path.suffix in _SUFFIXES or self.file.look(path).kind == "folder"
            else path.with_name(path.name + self._suffix)
        )

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


def _things(targets: tuple[str, ...]) -> str:
    return targets[0] if len(targets) == 1 else count_text(len(targets), "object")
