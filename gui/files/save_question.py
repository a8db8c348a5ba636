"""The question before work that is in no file is closed, or replaced by another workspace. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import push_button

WIDTH_PX = 420


class SaveQuestion(FormDialog):
    """`save_wanted` or `discarded`; neither when everything is to stay."""

    save_wanted = Signal()
    discarded = Signal()

    def __init__(self, title: str, words: str, discard: str, parent: QWidget | None = None) -> None:
        """`words`: what is not saved; `discard`: what Discard does."""
        super().__init__(title, "Save", WIDTH_PX, parent)
        self.set_words(words)
        self.say(discard)
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
