"""The question before code of the user's runs: what will be run, from where. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QCheckBox, QWidget

from devexplorer.core.isolation.model_source import WhatRuns
from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import Role, label

WIDTH_PX = 520


class TrustDialog(FormDialog):
    """`allowed` carries whether the folder is not to be asked about again; `always`: why that is no choice."""

    allowed = Signal(object)
    """Whether to remember it (bool)."""

    def __init__(self, code: WhatRuns, parent: QWidget | None = None, *, always: str = "") -> None:
        super().__init__("Run this code?", "Run it", WIDTH_PX, parent)
        self.set_words(code.words)
        self.add_row("folder", label(code.folder, role=Role.CODE, wrap=True))
        self.remember = QCheckBox("do not ask again for this folder")
        if not always:
            self.add_row("", self.remember)
        self.say(always or "It never runs in the window's process, so it cannot affect the window.")
        self.cancel_button.setDefault(True)  # an Enter too many runs nothing

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.cancel_button.setFocus()

    def _accept(self) -> None:
        self.allowed.emit(self.remember.isChecked())
        self.accept()
