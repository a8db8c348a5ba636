"""The question before a window is closed with work that is in no file. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import push_button

WIDTH_PX = 420


class CloseQuestion(FormDialog):
    """`save_wanted` or `discarded`; neither when the window is to stay."""

    save_wanted = Signal()
    discarded = Signal()

    def __init__(self, words: str, parent: QWidget | None = None) -> None:
        super().__init__("Save before closing?", "Save", WIDTH_PX, parent)
        self.set_words(words)
        self.say("Discard closes the window without saving.")
        self.discard_button = push_button("Discard", self._discard)
        self.add_button(self.discard_button)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.accept_button.setFocus()

    def _accept(self) -> None:
        self.accept()
        self.save_wanted.emit()

    def _discard(self) -> None:
        self.accept()
        self.discarded.emit()
