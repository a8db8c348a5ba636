"""What ssh asks, word for word, and the field or the buttons that answer it. Main thread; no answer is kept."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QLineEdit

from devexplorer.core.records.ssh import Prompt, PromptKind
from devexplorer.gui.widgets import EDGE_PX, Role, TextBlock, hbox, label, line_edit, push_button, show_text, vbox

HEADINGS: dict[PromptKind, str] = {
    "password": "Password",
    "passphrase": "Passphrase of a key",
    "code": "Code",
    "host key": "Is this the right machine?",
    "confirmation": "Confirmation",
    "notice": "ssh says",
}
YES: dict[PromptKind, str] = {"host key": "It is, connect", "confirmation": "Allow"}
"""Kinds of prompts that are answered with yes or no, and what yes means."""
NEVER_KEPT = "The answer goes to ssh and is not stored."
NOT_ACCEPTED = "The last answer was not accepted."
ABOUT_KEYS = (
    "Compare the fingerprint with one that the administrator of that machine has given you. ssh remembers the key in"
    " ~/.ssh/known_hosts."
)


class PromptBox(QFrame):
    """`answered` carries the text; None: the user refuses."""

    answered = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("offer")
        self.heading = label("", Role.STRONG)
        self.text = TextBlock(Role.CODE)
        self.note = label("", words="dim", wrap=True)
        self.field = line_edit(name="Answer")
        self.field.returnPressed.connect(self._send)
        self.send_button = push_button("Send", self._send, look="primary")
        self.refuse_button = push_button("No", lambda: self._answer(None))
        for button in (self.send_button, self.refuse_button):
            button.setAutoDefault(False)
        vbox(
            self.heading,
            self.text,
            self.note,
            hbox((self.field, 8), None, self.refuse_button, self.send_button),
            margins=EDGE_PX,
            parent=self,
        )
        self._kind: PromptKind = "notice"
        self._number = -1

    def ask(self, prompt: Prompt, *, again: bool = False) -> None:
        """Show this prompt, with an empty field; `again`: what was answered before was not accepted."""
        if prompt.number == self._number and self.isVisible():
            return
        self._number, self._kind = prompt.number, prompt.kind
        yes = YES.get(prompt.kind)
        is_typed = yes is None and prompt.kind != "notice"
        self.heading.setText(HEADINGS[prompt.kind])
        self.text.setText(prompt.text.strip())
        about = ABOUT_KEYS if prompt.kind == "host key" else NEVER_KEPT if is_typed else ""
        show_text(self.note, f"{NOT_ACCEPTED} {about}" if again and is_typed else about)
        self.field.clear()
        self.field.setEchoMode(QLineEdit.EchoMode.Password)
        self.field.setAccessibleName(HEADINGS[prompt.kind])
        self.field.setVisible(is_typed)
        self.send_button.setVisible(prompt.kind != "notice")
        self.send_button.setText(yes or "Send")
        self.refuse_button.setVisible(yes is not None)
        self.setAccessibleName(prompt.text)
        self.show()
        # an Enter too many accepts nothing
        first = self.field if is_typed else self.refuse_button
        first.setFocus(Qt.FocusReason.OtherFocusReason)

    def clear(self) -> None:
        """Nothing is asked."""
        self._number = -1
        self.field.clear()
        self.hide()

    def _send(self) -> None:
        self._answer("yes" if self._kind in YES else self.field.text())

    def _answer(self, text: str | None) -> None:
        self.clear()
        self.answered.emit(text)
