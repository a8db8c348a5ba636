"""Two or more stored runs side by side: intervals, what the differences are worth, conditions that were not the same.
Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from PySide6.QtCore import Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QDialog, QFrame, QWidget

from devexplorer.core.base import MISSING, count_text
from devexplorer.core.benchmark.history.compare import Comparison
from devexplorer.core.session import State
from devexplorer.gui.history.intervals import Intervals
from devexplorer.gui.history.rows import device_text, run_colour, when_text
from devexplorer.gui.widgets import EDGE_PX, Role, ScrollArea, current_theme, font, holder, label, splitter, stack, vbox
from devexplorer.gui.widgets.table import ROW_PX, Cell, Column, Index, RowsModel, RowsTable, TableRow

CONDITION_PX, RUN_PX = 172, 210
SIZE_PX = (1040, 420)
SCROLL_PX = 12
"""For the scroll bar below many columns."""
GAP_PX, MOST_PX = 8, 760
ALL_ALIKE = "Everything that is known of these runs was the same: what was asked for and the conditions."


class ConditionsModel(RowsModel):
    """Conditions that differ, a column per run; what differs from the first run is highlighted."""

    def __init__(self) -> None:
        super().__init__((Column("condition"),))

    def show_runs(self, comparison: Comparison) -> None:
        """The columns and rows of this comparison."""
        self.set_columns(
            (Column("what differs"), *(Column(f"#{run.id}  {device_text(run)}") for run in comparison.runs))
        )
        self.set_rows([self._row(differing.label, differing.values) for differing in comparison.differing])

    def _row(self, name: str, values: Sequence[str]) -> TableRow:
        cells = (Cell(value, "" if value != values[0] else "soft", value) for value in values)
        return TableRow(name, (Cell(name, "dim"), *cells))

    def is_different(self, index: Index) -> bool:
        """Whether a cell differs from the first run's; what is not known does not."""
        cells = self._rows[index.row()].cells
        texts = {cells[1].text, cells[index.column()].text}
        return index.column() > 1 and len(texts) > 1 and MISSING not in texts

    def data(self, index: Index, role: int = Qt.ItemDataRole.DisplayRole) -> Any:
        if index.isValid() and self.is_different(index):
            if role == Qt.ItemDataRole.BackgroundRole:
                return QColor(current_theme().selection)
            if role == Qt.ItemDataRole.FontRole:
                return font(Role.STRONG)  # never colour alone
        return super().data(index, role)


class CompareDialog(QDialog):
    """Shows the comparison of the last `show_comparison`; stays beside the main window."""

    def __init__(self, state: State, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self.setWindowTitle("Compare runs")
        self.resize(*SIZE_PX)
        self._state = state
        self.comparison: Comparison | None = None
        """What is on show."""
        self.title = label("", Role.STRONG)
        self.facts = label("", words="dim", wrap=True)
        self.warning = label("", words="warning", wrap=True)
        self.warning.hide()
        self.intervals = Intervals(lambda run: run_colour(run, self._state))
        self.area = ScrollArea(self.intervals, "Medians with intervals")
        self.model = ConditionsModel()
        self.table = RowsTable(self.model, "Conditions that differ", [CONDITION_PX])
        self.table.horizontalHeader().setStretchLastSection(False)
        self.table.setSizeAdjustPolicy(RowsTable.SizeAdjustPolicy.AdjustToContents)
        self.alike = label(ALL_ALIKE, words="dim", wrap=True)
        self.remarks = label("", words="dim", wrap=True)
        self.waiting = label("", words="dim", wrap=True, align=Qt.AlignmentFlag.AlignCenter)
        self._lay_out()

    def _lay_out(self) -> None:
        for words in (self.title, self.facts, self.warning):
            words.setContentsMargins(EDGE_PX, 0, EDGE_PX, 0)
        for words in (self.alike, self.remarks):
            words.setContentsMargins(EDGE_PX, 4, EDGE_PX, 4)
        # The table is as high as its rows; what is left stays empty.
        below = vbox((self.table, 1000), self.alike, None, self.remarks, spacing=4, margins=(0, 4, 0, 0))
        self._below = holder(below)
        self.split = splitter(self.area, self._below, stretches=[1, 0], orientation=Qt.Orientation.Vertical)
        self._shown = QFrame()
        self._shown.setObjectName("panel")
        self._column = vbox(
            self.title,
            self.facts,
            self.warning,
            (self.split, 1),
            spacing=4,
            margins=(0, EDGE_PX, 0, EDGE_PX),
            parent=self._shown,
        )
        self._stack = stack(self.waiting, self._shown)
        vbox(self._stack, margins=GAP_PX, parent=self)

    def wait_for(self, count: int) -> None:
        """Say that so many runs are being compared."""
        self._say(f"Comparing {count_text(count, 'run')}…")

    def show_failure(self, words: str) -> None:
        """Say why they are not."""
        self._say(f"✕ {words}")

    def _say(self, words: str) -> None:
        self.comparison = None
        self.waiting.setText(words)
        self._stack.setCurrentWidget(self.waiting)

    def show_comparison(self, comparison: Comparison) -> None:
        """Show this one; the window grows where that shows more of it."""
        self.comparison = comparison
        runs, first = comparison.runs, comparison.runs[0]
        self.title.setText(f"{count_text(len(runs), comparison.kind + ' run')} side by side")
        self.facts.setText(
            f"Compared with #{first.id}, of {when_text(first.conditions.started_unix_s)} on {_where(comparison)}."
        )
        warnings = comparison.remarks[:1] if comparison.mixed else ()
        rest = comparison.remarks[len(warnings) :]
        self.warning.setText("▲ " + warnings[0] if warnings else "")
        self.warning.setVisible(bool(warnings))
        self.intervals.set_comparison(comparison)
        self.model.show_runs(comparison)
        for place in range(len(runs)):
            self.table.setColumnWidth(1 + place, RUN_PX)
        self.table.setVisible(bool(comparison.differing))
        self.table.setMaximumHeight((1 + len(comparison.differing)) * ROW_PX + SCROLL_PX)
        self.alike.setVisible(not comparison.differing)
        self.remarks.setText(" ".join(rest))
        self.remarks.setVisible(bool(rest))
        self._stack.setCurrentWidget(self._shown)
        self._column.activate()
        heights = [self.intervals.height(), self._below.sizeHint().height()]
        around = self.height() - self.split.height()
        self.resize(self.width(), max(self.height(), min(around + sum(heights), MOST_PX)))
        self.area.setMaximumHeight(heights[0])
        self.split.setSizes(heights)


def _where(comparison: Comparison) -> str:
    first = comparison.runs[0]
    name = first.conditions.device_name
    text = device_text(first)
    return text if not name or name in text else f"{text}, {name}"
