"""One answer of the engine as a column: its title, its words, the ways out that take one click. It scrolls where it is
low. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QPushButton, QSizePolicy

from devexplorer.core.records.messages import Answer, Offer
from devexplorer.gui.widgets.layouts import ScrollArea, push_button, vbox
from devexplorer.gui.widgets.panel import EDGE_PX, label, set_look
from devexplorer.gui.widgets.theme import Role

WIDTH_PX = 340


class AnswerView(ScrollArea):
    """Everything is shown as plain text, whatever it looks like."""

    command_requested = Signal(object)
    """The command of an offer whose button was clicked."""

    def __init__(self, name: str) -> None:
        super().__init__(name=name)
        self.title = label(role=Role.STRONG, wrap=True, selectable=True)
        self.words = label(words="soft", wrap=True, selectable=True)
        self.buttons: list[QPushButton] = []
        self._answer: Answer | None = None
        self._column = vbox(self.title, self.words, None, spacing=6, margins=(EDGE_PX, 4, 8, 4))
        self.set_content(self._column)
        self.setMinimumWidth(WIDTH_PX)
        self.setSizePolicy(QSizePolicy.Policy.Preferred, QSizePolicy.Policy.Ignored)

    def sizeHint(self) -> QSize:
        return QSize(WIDTH_PX, 60)

    def minimumSizeHint(self) -> QSize:
        return QSize(WIDTH_PX, 40)

    def show_answer(self, answer: Answer, *, ready: bool) -> None:
        """Show it; `ready`: its offers can be taken now."""
        if answer != self._answer:
            self._answer = answer
            self.title.setText(f"✕ {answer.title}" if answer.failed else answer.title)
            set_look(self.title, "error" if answer.failed else "")
            self.words.setText(answer.words)
            self._offer(answer.offers)
            self.verticalScrollBar().setValue(0)
        for button in self.buttons:
            button.setEnabled(ready)

    def _offer(self, offers: tuple[Offer, ...]) -> None:
        for button in self.buttons:
            button.hide()
            button.deleteLater()
        self.buttons = []
        for offer in offers:
            button = push_button(offer.label, lambda _checked, offer=offer: self.command_requested.emit(offer.command))
            self._column.insertWidget(self._column.count() - 1, button, 0, Qt.AlignmentFlag.AlignLeft)
            self.buttons.append(button)
