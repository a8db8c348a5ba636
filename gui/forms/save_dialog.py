"""The dialog that asks where to save: the name is ready to be typed over, and its extension is that of the format. Main
thread."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from pathlib import Path

from PySide6.QtCore import QPoint, Qt, QTimer, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QFileDialog, QLineEdit, QToolTip, QWidget

KNOWN = {
    ".csv", ".parquet", ".png", ".svg", ".json", ".html", ".txt", ".py", ".ipynb", ".safetensors", ".pt", ".pickle",
    ".devrec",
}  # fmt: skip
"""Extensions, rather than parts of a name."""
MOST_BYTES = 255
"""Of a name, on the file systems of Linux, macOS and Windows."""
TOO_LONG = f"This name is too long: at most {MOST_BYTES} bytes."


class SaveDialog(QFileDialog):
    """`saved` carries the path. A name with another extension is corrected in its field before a file that is there is
    asked about.

    The desktop's own dialog is not used: it would hand back whatever was typed, and some of them do not ask again about
    the corrected name.
    """

    saved = Signal(object)
    """Where to (Path), with the format's extension."""

    def __init__(
        self, parent: QWidget, title: str, name: str, formats: Mapping[str, str], folder: str = "", *, ask: bool = True
    ) -> None:
        """`name`: to begin with. `formats`: extension without its dot -> what it is; the first is chosen. `ask` before
        replacing a file."""
        super().__init__(
            parent, title, folder, acceptMode=QFileDialog.AcceptMode.AcceptSave, fileMode=QFileDialog.FileMode.AnyFile
        )
        self.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        self.setOption(QFileDialog.Option.DontUseNativeDialog)
        self.setOption(QFileDialog.Option.DontConfirmOverwrite, not ask)
        self._formats = {f"{words} (*.{suffix})": suffix for suffix, words in formats.items()}
        self.setLabelText(QFileDialog.DialogLabel.LookIn, "Save in:")  # Qt says "Look in"
        self.setNameFilters(list(self._formats))
        self.setDefaultSuffix(self.suffix)
        self.selectFile(name)
        self.filterSelected.connect(self._follow_format)
        self.fileSelected.connect(lambda chosen: self.saved.emit(Path(chosen)))

    @property
    def suffix(self) -> str:
        """Of the chosen format, without its dot."""
        return self._formats[self.selectedNameFilter()]

    @property
    def name_field(self) -> QLineEdit:
        """Where the name is typed."""
        field = self.findChild(QLineEdit, "fileNameEdit")
        assert isinstance(field, QLineEdit)
        return field

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QTimer.singleShot(0, self, self.focus_name)  # Qt gives its list of formats the focus first

    def focus_name(self) -> None:
        """Have the name ready to be typed over, all but its extension."""
        field = self.name_field
        field.setFocus(Qt.FocusReason.OtherFocusReason)
        field.setSelection(0, len(Path(field.text()).stem))

    def accept(self) -> None:
        """Correct the name first: Qt asks about the file that the field names."""
        typed = Path(self.name_field.text().strip()).suffix.lower().removeprefix(".")
        chosen = next((words for words, suffix in self._formats.items() if suffix == typed), None)
        if (
            chosen is not None and chosen != self.selectedNameFilter()
        ):  # who types the extension of another format here means that format
            self.selectNameFilter(chosen)
            self.setDefaultSuffix(typed)
        self._correct()
        names = [Path(path).name for path in self.selectedFiles()]  # with the extension that Qt adds
        if any(
            len(name.encode(errors="replace")) > MOST_BYTES for name in names
        ):  # Qt would do nothing, without a word
            field = self.name_field
            QToolTip.showText(field.mapToGlobal(QPoint(0, field.height())), TOO_LONG, field)
            return
        super().accept()

    def _follow_format(self, _format: str) -> None:
        self.setDefaultSuffix(self.suffix)
        self._correct()
        self.focus_name()

    def _correct(self) -> None:
        """A name that has an extension gets the format's; one without any gets it from Qt."""
        field = self.name_field
        name = field.text().strip()
        if name and not os.path.isdir(Path(name)) and Path(name).suffix:  # Qt adds an extension where there is none
            field.setText(named(name, self.suffix, self._formats.values()))


def named(name: str, suffix: str, formats: Iterable[str]) -> str:
    """`name` with the extension of its format, in place of one that is known or that is another format's."""
    typed = Path(name).suffix.lower()
    if not name or typed == f".{suffix}":
        return name
    if typed in KNOWN | {f".{other}" for other in formats}:
        return f"{name[: -len(typed)]}.{suffix}"
    return f"{name}.{suffix}"  # `run-1.5` is a name, not an extension
