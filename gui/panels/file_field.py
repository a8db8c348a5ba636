"""A line for the path of a file, with a button that opens the system's way to choose one. Main thread; nothing blocks."""

from __future__ import annotations

import os.path
from pathlib import Path

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFileDialog, QHBoxLayout, QLineEdit, QPushButton, QWidget


class FileField(QWidget):
    """`changed` tells every edit; `path` is what stands there, None when empty."""

    changed = Signal()

    def __init__(self, title: str, kinds: str, *, save: bool = False, folder: bool = False, parent: QWidget | None = None) -> None:
        """`kinds` as Qt writes them: `Tensors (*.safetensors *.pt)`."""
        super().__init__(parent)
        self._title, self._kinds, self._save, self._folder = title, kinds, save, folder
        self.edit = QLineEdit()
        self.edit.setAccessibleName(title)
        self.edit.setPlaceholderText("path")
        self.edit.textChanged.connect(self.changed)
        self.button = QPushButton("Choose…")
        self.button.setAccessibleName(f"Choose: {title}")
        self.button.setAutoDefault(False)
        self.button.clicked.connect(self._choose)
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 0, 0, 0)
        row.setSpacing(8)
        row.addWidget(self.edit, 1)
        row.addWidget(self.button)
        self.setFocusProxy(self.edit)

    @property
    def path(self) -> Path | None:
        """What stands there, `~` resolved where it stands for a home."""
        text = self.edit.text().strip()
        return Path(os.path.expanduser(text)) if text else None  # Path's own raises at each letter of ~somebody

    def set_path(self, path: str) -> None:
        """Have this one chosen."""
        self.edit.setText(path)

    def _choose(self) -> None:
        dialog = QFileDialog(self, self._title, str(self.path.parent) if self.path else "", f"{self._kinds};;All files (*)")
        dialog.setAttribute(Qt.WidgetAttribute.WA_DeleteOnClose)
        if self._folder:
            dialog.setFileMode(QFileDialog.FileMode.Directory)
        elif self._save:
            dialog.setAcceptMode(QFileDialog.AcceptMode.AcceptSave)
            dialog.setFileMode(QFileDialog.FileMode.AnyFile)
            dialog.setOption(QFileDialog.Option.DontConfirmOverwrite)  # the form says that there is one, and asks
        else:
            dialog.setFileMode(QFileDialog.FileMode.ExistingFile)
        dialog.fileSelected.connect(self.edit.setText)
        dialog.open()


def is_file(path: Path) -> bool:
    """Whether there is a file: no for what cannot be asked, a name that is too long or in a folder of somebody else's."""
    return os.path.isfile(path)


def is_folder(path: Path) -> bool:
    """The same for a folder."""
    return os.path.isdir(path)
