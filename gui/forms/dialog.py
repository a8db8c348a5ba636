"""The look of dialogs with a form: rows of a label and a field, one line that says what is wrong, two buttons.
Main thread."""

from __future__ import annotations

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QDialog, QFormLayout, QLabel, QLayout, QPushButton, QSizePolicy, QVBoxLayout, QWidget

from devexplorer.core.records import Command
from devexplorer.gui.widgets import (
    EDGE_PX,
    Sign,
    hbox,
    holder,
    label,
    push_button,
    put_in_order,
    reading_order,
    set_look,
    severity_tone,
    vbox,
)

MARGIN_PX = 16
MESSAGE_LINES = 2
"""Kept for the message: while a value is typed it changes with each letter, and the buttons stay where they are."""
TORCH_WORDS = ("dtype",)
_SIGN_PX = 16


class FormDialog(QDialog):
    """Subclasses add rows with `add_row`, parts with `add_part`, and say with `say` what the fields come to.

    Tab goes down the rows; the first field has the focus, Enter accepts once that is possible, Esc closes.
    """

    command_requested = Signal(object)
    """What the fields come to, or what has to be known first: for the engine."""

    def __init__(self, title: str, accept: str, width_px: int, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle(title)
        self.setMinimumWidth(width_px)
        self.first: QWidget | None = None
        """What has the focus at first; None: the first field."""
        self.form = QFormLayout(
            horizontalSpacing=EDGE_PX,
            verticalSpacing=8,
            fieldGrowthPolicy=QFormLayout.FieldGrowthPolicy.AllNonFixedFieldsGrow,
        )
        self.words = label(wrap=True)
        self.words.hide()
        self.message = label(wrap=True, align=Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
        self.message.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Minimum)
        self.message.setMinimumHeight(MESSAGE_LINES * self.message.fontMetrics().lineSpacing())
        self._sign = Sign(size=_SIGN_PX)
        self.accept_button = push_button(accept, self._accept, look="primary")
        self.accept_button.setDefault(True)
        self.cancel_button = push_button("Cancel", self.reject)
        self.cancel_button.setAutoDefault(False)
        note = hbox((self._sign, 0, Qt.AlignmentFlag.AlignTop), (self.message, 1))
        self._buttons = hbox(None, self.cancel_button, self.accept_button)
        self._parts = QVBoxLayout()
        self._parts.setSpacing(8)
        column = vbox(
            self.words,
            self.form,
            (self._parts, 1),
            note,
            self._buttons,
            spacing=EDGE_PX,
            margins=MARGIN_PX,
            parent=self,
        )
        column.insertStretch(column.count() - 1, 0)  # takes what a shorter message leaves: the rows keep their places

    def command(self) -> Command | None:
        """What the fields come to; None: something is wrong or missing."""
        raise NotImplementedError

    def _accept(self) -> None:
        """Send what the fields come to, and close."""
        command = self.command()
        if command is not None:
            self.command_requested.emit(command)
            self.accept()

    def set_words(self, words: str) -> None:
        """What it is about, above the rows."""
        self.words.setText(words)
        self.words.show()

    def add_row(self, words: str, field: QWidget) -> QLabel:
        """A field behind its label, which begins with a capital unless it is a name of torch's."""
        name = label(words if words in TORCH_WORDS else words[:1].upper() + words[1:], words="dim")
        name.setBuddy(field)
        if not field.accessibleName():
            field.setAccessibleName(words)
        self.form.addRow(name, field)
        return name

    def add_part(self, part: QWidget | QLayout, stretch: int = 0) -> None:
        """Something below the rows."""
        self._parts.addWidget(part if isinstance(part, QWidget) else holder(part), stretch)

    def add_button(self, button: QPushButton) -> None:
        """Another button, left of the two."""
        button.setAutoDefault(False)
        self._buttons.insertWidget(0, button)

    def say(self, words: str, *, wrong: bool = False, ready: bool = True, warning: bool = False) -> None:
        """What the fields come to; `wrong`: why it cannot be accepted; not `ready`: what is still needed; `warning`:
        what to think of before accepting."""
        sign = ""
        if wrong:
            sign = "error"
        elif warning:
            sign = "warning"
        self._sign.setVisible(bool(sign))
        if sign:
            self._sign.show_icon(sign, severity_tone(sign))
        self.message.setText(words)
        set_look(self.message, sign or "dim")
        acceptable = ready and not wrong
        self.accept_button.setEnabled(acceptable)
        self.accept_button.setToolTip("" if acceptable else words)
        self._make_room()

    def fit(self) -> None:
        """Be as high as what is shown: rows have come or gone."""
        self._make_room(shrink=True)

    def _make_room(self, *, shrink: bool = False) -> None:
        """Be high enough for every line of the message: Qt's own smallest size takes no account of wrapped lines."""
        layout = self.layout()
        if layout is None or not self.isVisible():
            return
        layout.activate()
        needed = layout.totalHeightForWidth(self.width())
        if needed > self.height() or shrink:
            self.resize(self.width(), needed)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        put_in_order(self)
        usable = (widget for widget in reading_order(self) if widget.isVisibleTo(self) and widget.isEnabled())
        first = self.first if self.first is not None else next(usable, None)
        if first is not None:
            first.setFocus(Qt.FocusReason.TabFocusReason)
        self._make_room()
