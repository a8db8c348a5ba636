"""One answer of the engine as a column: its title, its words, the ways out that take one click. It scrolls where it is
low. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QVBoxLayout

from devexplorer.core.records import Answer, Offer
from devexplorer.gui.widgets import EDGE_PX, ElidedButton, Role, ScrollColumn, label, set_look, vbox

WIDTH_PX = 340


class OfferButtons(QVBoxLayout):
    """A button for each way out that an answer offers."""

    command_requested = Signal(object)

    def __init__(self, *, primary: bool = False) -> None:
        """`primary`: emphasise the first."""
        super().__init__()
        self.setSpacing(6)
        self._primary = primary
        self._offers: tuple[Offer, ...] = ()
        self.buttons: list[ElidedButton] = []

    def show_offers(self, offers: tuple[Offer, ...]) -> None:
        """Show these."""
        if offers == self._offers:
            return
        self._offers = offers
        for button in self.buttons:
            self.removeWidget(button)
            button.hide()
            button.deleteLater()
        self.buttons = [ElidedButton(offer.label) for offer in offers]
        for button, offer in zip(self.buttons, offers, strict=True):
            button.clicked.connect(lambda _checked, offer=offer: self.command_requested.emit(offer.command))
            self.addWidget(button, 0, Qt.AlignmentFlag.AlignLeft)
            button.show()  # now, not when Qt comes to it: until then what is around is squeezed
        if self._primary and offers:
            self.buttons[0].setProperty("look", "primary")


class AnswerView(ScrollColumn):
    """Everything is shown as plain text, whatever it looks like."""

    command_requested = Signal(object)
    """The command of an offer whose button was clicked."""

    def __init__(self, name: str) -> None:
        super().__init__(name, WIDTH_PX)
        self.title = label(role=Role.STRONG, wrap=True, selectable=True)
        self.words = label(words="soft", wrap=True, selectable=True)
        self.offers = OfferButtons()
        self.offers.command_requested.connect(self.command_requested)
        self._answer: Answer | None = None
        column = vbox(self.title, self.words, self.offers, None, spacing=6, margins=(EDGE_PX, 4, 8, 4))
        self.set_content(column)

    def show_answer(self, answer: Answer, *, ready: bool) -> None:
        """Show it; `ready`: its offers can be taken now."""
        if answer != self._answer:
            self._answer = answer
            self.title.setText(f"✕ {answer.title}" if answer.failed else answer.title)
            set_look(self.title, "error" if answer.failed else "")
            self.words.setText(answer.words)
            self.offers.show_offers(answer.offers)
            self.verticalScrollBar().setValue(0)
        for button in self.offers.buttons:
            button.setEnabled(ready)
