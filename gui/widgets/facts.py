"""Two columns of facts. Main thread."""

from __future__ import annotations

import re

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from devexplorer.core.records import Fact
from devexplorer.gui.widgets.layouts import grid
from devexplorer.gui.widgets.panel import label
from devexplorer.gui.widgets.text_block import TextBlock
from devexplorer.gui.widgets.theme import Role, font

GAP_PX = 12
LABELS_SHARE = 0.45
"""Where labels and values do not fit side by side, labels have at least this share and are in several lines."""
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

    @property
    def width_px(self) -> int:
        """Pixels that it takes in one line."""
        return self.fontMetrics().horizontalAdvance(self.text()) + 2


class FactsTable(QWidget):
    """Labels dimmed at the left, values at the right; values can be selected and copied."""

    def __init__(self, *, numbers: bool = False) -> None:
        """`numbers`: the values are numbers, aligned at the right edge."""
        super().__init__()
        self._numbers = numbers
        self._grid = grid(GAP_PX, 4, self)
        self._grid.setColumnStretch(1, 1)
        self._cells: list[tuple[FactName, QLabel | TextBlock]] = []
        self._least_px = 0
        self.facts: tuple[Fact, ...] = ()
        """What is on show."""

    @property
    def label_width(self) -> int:
        """Pixels that the longest label takes in one line."""
        return max((name.width_px for name, _ in self._cells[: len(self.facts)]), default=0)

    @property
    def _labels_px(self) -> int:
        """Values come first: a number that goes on in the next line is misread."""
        values = [
            value.fontMetrics().horizontalAdvance(value.text()) + 2 for _, value in self._cells[: len(self.facts)]
        ]
        room = max(self.width() - GAP_PX, 1)
        wanted = max(room - max(values, default=0), round(LABELS_SHARE * room))
        return max(min(self.label_width, wanted), self._least_px)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        self._share()

    def set_label_width(self, pixels: int) -> None:
        """Let the values begin behind so many pixels: two tables below each other then have one edge."""
        self._least_px = pixels
        self._share()

    def _share(self) -> None:
        width = self._labels_px
        for name, _ in self._cells[: len(self.facts)]:
            name.setFixedWidth(width)

    def set_facts(self, facts: tuple[Fact, ...]) -> None:
        """Show `facts`; labels are kept and get new texts."""
        if facts == self.facts:
            return
        self.facts = facts
        while len(self._cells) < len(facts):
            name = FactName()
            value = _number() if self._numbers else TextBlock()
            self._grid.addWidget(name, len(self._cells), 0, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
            self._grid.addWidget(value, len(self._cells), 1, Qt.AlignmentFlag.AlignTop)
            self._cells.append((name, value))
        for index, (name, value) in enumerate(self._cells):
            name.setVisible(index < len(facts))
            value.setVisible(index < len(facts))
            if index < len(facts):
                name.set_full_text(facts[index].label)
                value.setText(facts[index].value)
        self._share()
        self.setVisible(bool(facts))


def _number() -> QLabel:
    value = label(wrap=True, align=Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight, selectable=True)
    value.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    return value
