"""What a plan says about one card: its parts with their bytes, what would help with numbers, what the figures rest on. Main thread."""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import Qt, Signal
from PySide6.QtWidgets import QFrame, QGridLayout, QHBoxLayout, QLabel, QPushButton, QScrollArea, QVBoxLayout, QWidget

from devexplorer.core.formats import bytes_text, sentence
from devexplorer.core.records.planner import Fit, FitReport, Help
from devexplorer.gui.item_models.fit_rows import PARTS
from devexplorer.gui.panels.fit_bars import Swatch
from devexplorer.gui.panels.panel import EDGE_PX, label
from devexplorer.gui.theme import Role, Theme

LEAST_PX = 300
USABLE = ("bfloat16", "autocast", "checkpointing", "sgd", "half-batch", "two-cards")
"""Helps that the form can be set to."""


class _Parts(QWidget):
    """A swatch, a name and a number for each part."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        grid = QGridLayout(self)
        grid.setContentsMargins(0, 0, 0, 0)
        grid.setHorizontalSpacing(8)
        grid.setVerticalSpacing(3)
        grid.setColumnStretch(1, 1)
        self.swatches: list[Swatch] = []
        self.numbers: dict[str, QLabel] = {}
        for row, part in enumerate(PARTS):
            swatch = Swatch(part.key, theme)
            name, number = label(part.name, words="soft"), label()
            name.setToolTip(part.meaning)
            number.setAlignment(Qt.AlignmentFlag.AlignRight)
            number.setTextInteractionFlags(Qt.TextInteractionFlag.TextSelectableByMouse)
            for column, widget in enumerate((swatch, name, number)):
                grid.addWidget(widget, row, column)
            self.swatches.append(swatch)
            self.numbers[part.key] = number

    def show_fit(self, fit: Fit) -> None:
        """The numbers of this card, or of all of them together."""
        for part in PARTS:
            size = getattr(fit.bytes, part.key)
            self.numbers[part.key].setText(bytes_text(size))
            self.numbers[part.key].setToolTip(f"{size:,} bytes")


class _HelpRow(QFrame):
    """One thing that would help, and the button that sets the form to it."""

    def __init__(self, found: Help, use: Callable[[Help], object]) -> None:
        super().__init__()
        title = label(found.title, wrap=True)
        words = label(found.words, Role.LABEL, "dim", wrap=True)
        self.button = QPushButton("Use")
        self.button.setProperty("look", "quiet")
        self.button.setToolTip("Set the form to this and plan again")
        self.button.setVisible(found.key in USABLE)
        self.button.clicked.connect(lambda _checked: use(found))
        row = QHBoxLayout(self)
        row.setContentsMargins(0, 2, 0, 2)
        row.setSpacing(8)
        column = QVBoxLayout()
        column.setSpacing(1)
        column.addWidget(title)
        column.addWidget(words)
        row.addLayout(column, 1)
        row.addWidget(self.button, 0, Qt.AlignmentFlag.AlignTop)


class FitDetails(QScrollArea):
    """`use_requested` carries a `Help` that shall be tried, `helps_requested` asks what would help on this card."""

    use_requested = Signal(object)
    helps_requested = Signal()

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self.setAccessibleName("The chosen card in detail")
        self.title = label(role=Role.STRONG, wrap=True)
        self.verdict = label(words="soft", wrap=True)
        self._parts = _Parts(theme)
        self.helps_title = label("What would help", Role.STRONG)
        self.helps_button = QPushButton("What would help on this card?")
        self.helps_button.clicked.connect(self.helps_requested)
        self.rows: list[_HelpRow] = []
        self._helps_column = QVBoxLayout()
        self._helps_column.setSpacing(4)
        self.rests_title = label("What the figures rest on", Role.STRONG)
        self.rests = label(role=Role.LABEL, words="dim", wrap=True)
        inside = QWidget()
        inside.setObjectName("scrolled")
        column = QVBoxLayout(inside)
        column.setContentsMargins(EDGE_PX, 4, EDGE_PX, 8)
        column.setSpacing(6)
        for widget in (self.title, self.verdict, self._parts):
            column.addWidget(widget)
        column.addSpacing(4)
        column.addWidget(self.helps_title)
        column.addLayout(self._helps_column)
        column.addWidget(self.helps_button, 0, Qt.AlignmentFlag.AlignLeft)
        column.addSpacing(4)
        column.addWidget(self.rests_title)
        column.addWidget(self.rests)
        column.addStretch(1)
        self.setFrameShape(QFrame.Shape.NoFrame)
        self.setHorizontalScrollBarPolicy(Qt.ScrollBarPolicy.ScrollBarAlwaysOff)
        self.setWidgetResizable(True)
        self.setWidget(inside)
        self.setMinimumWidth(LEAST_PX)
        self._shown: tuple[Fit, tuple[Help, ...] | None, FitReport] | None = None

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        for swatch in self._parts.swatches:
            swatch.set_theme(theme)

    def show_fit(self, fit: Fit, report: FitReport, helps: tuple[Help, ...] | None) -> None:
        """Show a card of a report; `helps` is None where nobody has asked yet what would help there."""
        if self._shown == (fit, helps, report):
            return
        self._shown = (fit, helps, report)
        self.title.setText(f"{fit.gpu}, simulated")
        self.verdict.setText(_verdict(fit))
        self._parts.show_fit(fit)
        for row in self.rows:
            row.hide()
            row.deleteLater()
        self.rows = [_HelpRow(found, self.use_requested.emit) for found in helps or ()]
        for row in self.rows:
            self._helps_column.addWidget(row)
        self.helps_button.setVisible(helps is None)
        self.helps_title.setVisible(bool(helps))
        self.rests_title.setVisible(bool(report.assumptions))
        self.rests.setText("\n".join(f"• {one}" for one in report.assumptions))


def _verdict(fit: Fit) -> str:
    total, capacity = fit.bytes.total, fit.capacity_bytes
    if not fit.fits:
        return sentence(fit.reason) or f"It needs {bytes_text(total)}, and there are {bytes_text(capacity)}."
    words = f"{bytes_text(total)} of {bytes_text(capacity)}; {bytes_text(capacity - total)} are left."
    if len(fit.cards) > 1:
        shares = ", ".join(bytes_text(card.bytes.total) for card in fit.cards)
        words += f" Split over {len(fit.cards)} cards, in their order: {shares}."
    return words
