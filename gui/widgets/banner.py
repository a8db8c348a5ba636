"""One line in the status bar for what concerns all of the window: a hint, a lost engine, an unexpected error. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.gui.widgets.icons import Sign
from devexplorer.gui.widgets.layouts import hbox, push_button
from devexplorer.gui.widgets.panel import ElidedLabel, set_look
from devexplorer.gui.widgets.theme import Role, Tone, font

MOST_TEXT = 300
"""Characters, of which the tooltip has all; the log has the rest."""
PASSING_MS = 8000
"""How long a hint stays: time enough to read it twice."""
OFFER_MS = 60_000
"""How long one with a button stays: nothing else on the screen offers the same."""


class Banner(QWidget):
    """Hidden until `say`; a later message replaces the earlier one, so that a storm of errors stays one line."""

    dismissed = Signal(str)
    """The user has closed it; what it was about."""
    action_chosen = Signal(str)
    """The user has clicked the button for what it is about."""
    shown = Signal(int)
    """It has a message now (1), or none any more (0)."""

    def __init__(self) -> None:
        super().__init__()
        self.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # no message needs room
        self.about = ""
        """What the present message is about, for who wants to change or hide it."""
        self._icon = Sign()
        self.words = ElidedLabel()
        self.close_button = push_button("Dismiss", self._dismiss, look="quiet")
        self.action_button = push_button(clicked=lambda: self.action_chosen.emit(self.about), look="quiet")
        for button in (self.action_button, self.close_button):
            button.setFont(font(Role.LABEL))
        # The buttons first: they keep their place whatever the words are.
        hbox(self.close_button, self.action_button, self._icon, (self.words, 1), parent=self)
        self.passing = QTimer(self, singleShot=True, interval=PASSING_MS)
        self.passing.timeout.connect(self.clear)
        self.hide()

    def say(
        self,
        text: str,
        *,
        error: bool = False,
        passing: bool = False,
        about: str = "",
        action: str = "",
        dismiss: str = "Dismiss",
    ) -> None:
        """Show one message; a passing one hides after `PASSING_MS`, with a button after `OFFER_MS`. `action`: words of
        a button beside it; `dismiss`: of the one that closes it."""
        line = " ".join(text.split())
        shown = line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}… (all of it is in the log)"
        self.about = about
        kind: Tone = "error" if error else "warning"
        self._icon.show_icon("" if passing else kind, kind)  # a hint warns of nothing
        self._icon.setVisible(not passing)
        self.action_button.setText(action)
        self.close_button.setText(dismiss)
        self.action_button.setVisible(bool(action))
        self.words.set_full_text(shown)
        set_look(self.words, "error" if error else "")
        self.show()
        self.shown.emit(1)
        if passing:
            self.passing.start(OFFER_MS if action else PASSING_MS)
        else:
            self.passing.stop()

    @property
    def is_fresh_offer(self) -> bool:
        """Whether the hand may be on its way to the button, and should not hit another."""
        return not self.isHidden() and self.passing.remainingTime() > OFFER_MS - PASSING_MS

    def clear(self) -> None:
        """Take the message away."""
        self.hide()
        self.shown.emit(0)

    def _dismiss(self) -> None:
        self.clear()
        self.dismissed.emit(self.about)
