"""One line across the window for what concerns all of it: a lost engine, unsaved settings, an unexpected error. Main
thread."""

from __future__ import annotations

from PySide6.QtCore import QTimer, Signal
from PySide6.QtGui import QHideEvent, QShowEvent
from PySide6.QtWidgets import QFrame, QToolTip

from devexplorer.gui.widgets.icons import Sign
from devexplorer.gui.widgets.layouts import hbox, holder, push_button, vbox
from devexplorer.gui.widgets.panel import label
from devexplorer.gui.widgets.theme import Role, Tone

MOST_TEXT = 300
"""Characters; the log has the rest."""
PASSING_MS = 8000
"""How long a hint stays: time enough to read it twice."""
OFFER_MS = 60_000
"""How long one with a button stays: nothing else on the screen offers the same."""


class Banner(QFrame):
    """Hidden until `say`; a later message replaces the earlier one, so that a storm of errors stays one line."""

    dismissed = Signal(str)
    """The user has closed it; what it was about."""
    action_chosen = Signal(str)
    """The user has clicked the button for what it is about."""

    def __init__(self) -> None:
        super().__init__()
        self.setObjectName("banner")
        self.about = ""
        """What the present message is about, for who wants to change or hide it."""
        self._is_error = False
        self._icon = Sign()
        self.words = label("", Role.TEXT, wrap=True)
        self.aside = label("", Role.TEXT, "soft", wrap=True)
        """A hint that passes while there is an alarm."""
        self.aside.hide()
        self.close_button = push_button("Dismiss", self._dismiss, look="quiet")
        self.action_button = push_button(clicked=lambda: self.action_chosen.emit(self.about), parent=self, look="quiet")
        self.action_button.hide()
        texts = vbox(self.words, self.aside, spacing=2)
        hbox(self._icon, (holder(texts), 1), self.action_button, self.close_button, margins=(12, 4, 8, 4), parent=self)
        self.passing = QTimer(self, singleShot=True, interval=PASSING_MS)
        self.passing.timeout.connect(self._pass)
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
        a button beside it; `dismiss`: of the one that closes it. An alarm stays: what passes is shown below it."""
        line = " ".join(text.split())
        shown = line if len(line) <= MOST_TEXT else f"{line[:MOST_TEXT]}… (all of it is in the log)"
        if passing and not action and self._is_error and self.about and not self.isHidden():
            self.aside.setText(shown)
            self.aside.show()
            self.passing.start(PASSING_MS)
            return
        if not (error and self._is_error and about == self.about):  # the figure of an alarm is renewed all the time
            self.aside.hide()
            self.passing.stop()
        self._is_error, self.about = error, about
        kind: Tone = "error" if error else "warning"
        self._icon.show_icon("" if passing else kind, kind)  # a hint warns of nothing
        self._icon.setVisible(not passing)
        self.action_button.setText(action)
        self.close_button.setText(dismiss)
        self.action_button.setVisible(bool(action))
        if shown != self.words.text():
            self.words.setText(shown)
        self.setAccessibleDescription(line)
        self.show()
        if passing:
            self.passing.start(OFFER_MS if action else PASSING_MS)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        QToolTip.hideText()  # what it is about moves away below it

    def hideEvent(self, event: QHideEvent) -> None:
        super().hideEvent(event)
        QToolTip.hideText()

    def _pass(self) -> None:
        """Not under the mouse: the click on its way to a button here would fall on what moves up."""
        if self.underMouse():
            self.passing.start(PASSING_MS)
        elif self._is_error:
            self.aside.hide()
        else:
            self.hide()

    def _dismiss(self) -> None:
        self.aside.hide()
        self.hide()
        self.dismissed.emit(self.about)
