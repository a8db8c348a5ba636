"""Two columns of facts. Main thread.

A value that can be selected takes 1 to 2 ms to make: many of them appear a few in a turn of the event loop.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

from PySide6.QtCore import Qt, QTimer
from PySide6.QtGui import QFontMetrics, QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from devexplorer.core.records import Fact
from devexplorer.gui.widgets.layouts import grid
from devexplorer.gui.widgets.panel import TextBlock, label
from devexplorer.gui.widgets.theme import Role, font

GAP_PX = 12
LABELS_SHARE = 0.45
"""Where labels and values do not fit side by side, labels have at least this share and are in several lines."""
MADE_AT_ONCE, FILLED_AT_ONCE = 1, 8
"""Rows that are made, or that have been made and get new texts, in one turn."""
_BREAKS = re.compile(r"[._/:-]|[^\W_]{16}")
"""After these a name may go on in the next line: a path has no spaces."""
_BREAK = "\u200b"


class FactName(QLabel):
    """A label in as many lines as it needs; `full_text` is without the marks where it may be broken."""

    def __init__(self) -> None:
        super().__init__(textFormat=Qt.TextFormat.PlainText, wordWrap=True)
        self.setFont(font(Role.TEXT))
        self.setProperty("words", "dim")
        self.full_text = ""

    def set_full_text(self, text: str) -> None:
        """Show `text`."""
        if text != self.full_text:
            self.full_text = text
            self.setAccessibleName(text)
            self.setText(_BREAKS.sub(rf"\g<0>{_BREAK}", text))


class FactsTable(QWidget):
    """Labels dimmed at the left, values at the right; values can be selected and copied."""

    def __init__(self, *, numbers: bool = False) -> None:
        """`numbers`: the values are numbers, aligned at the right edge."""
        super().__init__()
        self._numbers = numbers
        self._grid = grid(GAP_PX, 4, self)
        self._grid.setColumnStretch(1, 1)
        self._cells: list[tuple[FactName, QLabel | TextBlock]] = []
        self._filled = 0
        """Rows that are shown."""
        self._more = QTimer(self, interval=0)
        self._more.timeout.connect(self._fill)
        self.facts: tuple[Fact, ...] = ()
        """What is shown, or on its way."""

    @property
    def _labels_px(self) -> int:
        """Values come first: a number that goes on in the next line is misread."""
        room = max(self.width() - GAP_PX, 1)
        wanted = max(room - self._widest(fact.value for fact in self.facts), round(LABELS_SHARE * room))
        return min(self._widest(fact.label for fact in self.facts), wanted)

    def _widest(self, texts: Iterable[str]) -> int:
        metrics = QFontMetrics(font(Role.TEXT))
        return max((metrics.horizontalAdvance(text) + 2 for text in texts), default=0)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        width = self._labels_px
        for name, _ in self._cells[: self._filled]:
            name.setFixedWidth(width)

    def set_facts(self, facts: tuple[Fact, ...]) -> None:
        """Show `facts`; labels are kept and get new texts."""
        if facts == self.facts:
            return
        self.facts, self._filled = facts, 0
        for cells in self._cells[len(facts) :]:
            for cell in cells:
                cell.hide()
        self._fill()
        self.setVisible(bool(facts))

    def _fill(self) -> None:
        """Show the next rows; the others in the next turn."""
        made = len(self._cells)
        end = min(max(min(made, self._filled + FILLED_AT_ONCE), self._filled + MADE_AT_ONCE), len(self.facts))
        self._make(end)
        width = self._labels_px
        for (name, value), fact in zip(self._cells[self._filled : end], self.facts[self._filled : end], strict=True):
            name.set_full_text(fact.label)
            name.setFixedWidth(width)
            if isinstance(value, TextBlock):  # what has lines of its own is laid out: brackets stand below each other
                value.setFont(font(Role.CODE if "\n" in fact.value else Role.TEXT))
            value.setText(fact.value)
            name.show()
            value.show()
        self._filled = end
        if end < len(self.facts):
            self._more.start()
        else:
            self._more.stop()

    def _make(self, count: int) -> None:
        for row in range(len(self._cells), count):
            name, value = FactName(), _number() if self._numbers else TextBlock()
            self._grid.addWidget(name, row, 0, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
            self._grid.addWidget(value, row, 1, Qt.AlignmentFlag.AlignTop)
            self._cells.append((name, value))


def _number() -> QLabel:
    value = label(wrap=True, align=Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight, selectable=True)
    value.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    return value
