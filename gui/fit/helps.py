"""What would make a model smaller on one card: a line for each way with its figures, and the button that uses it. Main
thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QLabel, QWidget

from devexplorer.core.base import MISSING, bytes_text
from devexplorer.core.records import FitReport, Help
from devexplorer.gui.fit.ranges import step_range
from devexplorer.gui.widgets import RIGHT, ElidedLabel, Role, grid, label, push_button

USABLE = ("bfloat16", "autocast", "checkpointing", "sgd", "half-batch", "two-cards")
"""Helps that the form can be set to."""
USE = "Set the form to this and plan again"
UNTRIED = "Not worked out for want of time:"
NOTHING_HELPS = "Nothing was found that would make it noticeably smaller."
_TITLE, _TAKES, _BATCH, _USE = range(4)


class HelpLine:
    """The widgets of one help, in a row of the grid."""

    def __init__(self, found: Help, use: Callable[[Help], object]) -> None:
        self.title = ElidedLabel()
        self.title.set_full_text(found.title)
        self.takes = label(
            f"{'✓' if found.fits else '✕'} {bytes_text(found.total_bytes)}", words="" if found.fits else "error"
        )
        self.batch = label(MISSING if found.largest_batch is None else f"{found.largest_batch:,}", words="soft")
        self.button = push_button("Use", lambda _checked: use(found), look="quiet", tip=USE, name=f"Use: {found.title}")
        self.button.setVisible(found.key in USABLE)
        for number in (self.takes, self.batch):
            number.setAlignment(RIGHT)
        for text in (self.title, self.takes, self.batch):
            text.setToolTip(words_of(found))
            text.setAccessibleDescription(words_of(found))

    @property
    def widgets(self) -> tuple[QWidget, ...]:
        """From left to right."""
        return self.title, self.takes, self.batch, self.button


def words_of(found: Help) -> str:
    """The whole sentence, with the largest batch and the time of a step."""
    fits = "It would fit." if found.fits else "It would not fit even so."
    step = f" A step would take {step_range(found)} (simulated)." if found.step_seconds is not None else ""
    batch = "" if found.largest_batch is None else f" Largest batch: {found.largest_batch:,}."
    return f"{found.words.rstrip('.')}. {fits}{batch}{step}"


class HelpsView(QWidget):
    """`use_requested` carries a `Help` to try, `helps_requested` asks what would help."""

    use_requested = Signal(object)
    helps_requested = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.lines: list[HelpLine] = []
        self.ask_button = push_button("What would help on this card?", self.helps_requested)
        self.nothing = label(NOTHING_HELPS, words="dim", wrap=True)
        self._ready, self._narrow = True, False
        takes = _head("takes (simulated)", "On the fullest card, simulated; ✓: it would fit")
        batch = _head("batch", "The largest batch that would fit")
        self._heads = (label("What would help", Role.STRONG), takes, batch)
        self._grid = grid(10, 0, self)
        self._grid.setColumnStretch(_TITLE, 1)
        for column, head in enumerate(self._heads):
            self._grid.addWidget(head, 0, column)
        self._grid.addWidget(self.nothing, 1, 0, 1, 4)
        self._grid.addWidget(self.ask_button, 2, 0, 1, 4, Qt.AlignmentFlag.AlignLeft)

    def show_helps(self, asked: FitReport | None) -> None:
        """Show those of a report; None before the question was asked."""
        helps = None if asked is None else asked.helps
        for line in self.lines:
            for widget in line.widgets:
                widget.hide()
                widget.deleteLater()
        self.lines = [HelpLine(result, self.use_requested.emit) for result in helps or ()]
        for row, line in enumerate(self.lines, 3):
            for column, widget in enumerate(line.widgets):
                self._grid.addWidget(widget, row, column)
        self._show_columns()
        self.nothing.setVisible(asked is not None and (not asked.helps or bool(asked.untried)))
        self.nothing.setText(
            NOTHING_HELPS if asked is None or not asked.untried else f"{UNTRIED} {', '.join(asked.untried)}."
        )
        self.ask_button.setVisible(helps is None)
        self.set_ready(self._ready)

    def set_narrow(self, narrow: bool) -> None:
        """Whether there is no room for the largest batches; the tips have them."""
        if narrow != self._narrow:
            self._narrow = narrow
            self._show_columns()

    def _show_columns(self) -> None:
        for column, head in enumerate(self._heads):
            head.setVisible(bool(self.lines) and not (self._narrow and column == _BATCH))
        for line in self.lines:
            line.batch.setHidden(self._narrow)

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self._ready = ready
        for button in (self.ask_button, *(line.button for line in self.lines)):
            button.setEnabled(ready)


def _head(words: str, meaning: str) -> QLabel:
    return label(words, Role.LABEL, "dim", tip=meaning, align=RIGHT)
