"""A question inside a panel: nothing opens over the window, and what is asked about stays in sight. Main thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt
from PySide6.QtGui import QKeyEvent
from PySide6.QtWidgets import QFrame, QSizePolicy

from devexplorer.gui.widgets import EDGE_PX, hbox, label, line_edit, push_button


class Question(QFrame):
    """Hidden until `ask` or `ask_for`; Return says yes, Escape takes it away."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("offer")
        self._then: Callable[[str], None] = lambda _text: None
        self.words = label()
        self.words.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # never widens the window
        self.edit = line_edit()
        self.edit.setMinimumWidth(240)
        self.yes = push_button(clicked=self._answer, look="primary")
        self.no = push_button("Cancel", self.hide)
        hbox((self.words, 1), (self.edit, 1), self.yes, self.no, margins=(EDGE_PX, 6, 6, 6), parent=self)
        self.edit.returnPressed.connect(self._answer)
        self.hide()

    def ask(self, words: str, action: str, then: Callable[[], None]) -> None:
        """Ask whether to do `action`."""
        self._show(words, action, lambda _text: then())
        self.edit.hide()
        self.no.setFocus()  # what cannot be undone is not done by a Return that was meant for something else

    def ask_for(self, words: str, text: str, action: str, then: Callable[[str], None]) -> None:
        """Ask for a text; `text` is the initial one."""
        self._show(words, action, then)
        self.edit.setText(text)
        self.edit.setAccessibleName(words)
        self.edit.show()
        self.edit.selectAll()
        self.edit.setFocus()

    def _show(self, words: str, action: str, then: Callable[[str], None]) -> None:
        self._then = then
        self.words.setText(words)
        self.setAccessibleName(words)
        self.yes.setText(action)
        self.show()

    def _answer(self) -> None:
        self.hide()
        self._then(self.edit.text())

    def keyPressEvent(self, event: QKeyEvent) -> None:
        is_return = event.key() in (Qt.Key.Key_Return, Qt.Key.Key_Enter)
        if event.key() == Qt.Key.Key_Escape or (is_return and self.no.hasFocus()):
            self.hide()
        elif is_return and self.yes.hasFocus():
            self._answer()
        else:
            super().keyPressEvent(event)
