"""Two columns of facts. Main thread."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QLabel, QSizePolicy, QWidget

from devexplorer.core.records import Fact
from devexplorer.gui.widgets.layouts import grid
from devexplorer.gui.widgets.panel import ShrinkingLabel, label
from devexplorer.gui.widgets.text_block import TextBlock

LABEL_AT_MOST_PX, LABEL_SHARE = 190, 0.62
"""A label that is longer, or would take a larger share of the width, is cut short: the values need room too."""


class FactsTable(QWidget):
    """Labels dimmed at the left, values at the right; values can be selected and copied."""

    def __init__(self, *, numbers: bool = False) -> None:
        """`numbers`: the values are numbers, aligned at the right edge."""
        super().__init__()
        self._numbers = numbers
        self._grid = grid(12, 4, self)
        self._grid.setColumnStretch(1, 1)
        self._cells: list[tuple[ShrinkingLabel, QLabel | TextBlock]] = []
        self.facts: tuple[Fact, ...] = ()
        """What is on show."""

    @property
    def label_width(self) -> int:
        """Pixels that the longest label takes."""
        widths = (name.sizeHint().width() for name, _ in self._cells[: len(self.facts)])
        return min(max(widths, default=0), self._label_at_most)

    @property
    def _label_at_most(self) -> int:
        return min(LABEL_AT_MOST_PX, max(round(LABEL_SHARE * self.width()), 1))

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        for name, _ in self._cells:
            name.setMaximumWidth(self._label_at_most)

    def set_label_width(self, pixels: int) -> None:
        """Let the values begin behind so many pixels: two tables below each other then have one edge."""
        self._grid.setColumnMinimumWidth(0, pixels)

    def set_facts(self, facts: tuple[Fact, ...]) -> None:
        """Show `facts`; labels are kept and get new texts."""
        if facts == self.facts:
            return
        self.facts = facts
        while len(self._cells) < len(facts):
            name = ShrinkingLabel(words="dim")
            value = _number() if self._numbers else TextBlock()
            self._grid.addWidget(name, len(self._cells), 0, Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignLeft)
            self._grid.addWidget(value, len(self._cells), 1)
            self._cells.append((name, value))
        for index, (name, value) in enumerate(self._cells):
            name.setMaximumWidth(self._label_at_most)
            name.setVisible(index < len(facts))
            value.setVisible(index < len(facts))
            if index < len(facts):
                name.set_full_text(facts[index].label)
                value.setText(facts[index].value)
        self.setVisible(bool(facts))


def _number() -> QLabel:
    value = label(wrap=True, align=Qt.AlignmentFlag.AlignTop | Qt.AlignmentFlag.AlignRight, selectable=True)
    value.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)
    return value
