"""The questions before work that is in no file is closed, or replaced by another workspace. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QWidget

from devexplorer.gui.forms.dialog import FormDialog
from devexplorer.gui.widgets import push_button

WIDTH_PX = 420
MOST_NAMED = 8


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


class LossQuestion(FormDialog):
    """Everything is saved that a file can hold: `accepted` where the rest may go."""

    def __init__(self, title: str, accept: str, lost: Sequence[str], parent: QWidget | None = None) -> None:
        super().__init__(title, accept, WIDTH_PX, parent)
        named = [*lost[:MOST_NAMED], *([f"{len(lost) - MOST_NAMED:,} more"] if len(lost) > MOST_NAMED else [])]
        self.set_words("\n".join(["These would be lost:", *(f"• {phrase}" for phrase in named)]))
        self.say("A workspace file cannot hold them; everything else is saved.", warning=True)
        self.cancel_button.setDefault(True)  # an Enter too many loses nothing

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.cancel_button.setFocus()

    def _accept(self) -> None:
        self.accept()
