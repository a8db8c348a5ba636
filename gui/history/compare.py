"""Two or more stored runs side by side: medians with their middle 60 % as intervals on one axis, what the differences
are worth, conditions that were not the same. Main thread.

One quantity has an axis in its unit; several (copies of many sizes) share one of ratios to the first run. The axis does
not begin at 0: intervals show differences, not amounts, and it is never narrower than 4 %, so that noise does not look
like a difference.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from PySide6.QtCore import QPointF, QRect, QRectF, Qt
from PySide6.QtGui import QColor, QContextMenuEvent, QPainter, QPen
from PySide6.QtWidgets import QDialog, QFrame, QWidget

from devexplorer.core.base import MISSING, count_text, joined, number_text, rate_texts
from devexplorer.core.benchmark.kind import Figure, title
from devexplorer.core.history.compare import ComparedCell as Compared
from devexplorer.core.history.compare import Comparison, DifferenceVerdict
from devexplorer.core.records import StoredRun
from devexplorer.core.session import State
from devexplorer.gui.history.rows import device_text, run_colour, when_text
from devexplorer.gui.widgets import (
    EDGE_PX,
    ROW_PX,
    Cell,
    Colour,
    Column,
    Figures,
    Index,
    Padded,
    Role,
    RowsModel,
    RowsTable,
    TableRow,
    colour_of,
    current_theme,
    font,
    label,
    number_texts,
    numbers,
    offer_menu,
    stack,
    vbox,
)

CONDITION_PX, RUN_PX = 172, 210
SIZE_PX = (1200, 420)
SCROLL_PX = 12
"""For the scroll bar below many columns."""
GAP_PX, MOST_PX = 8, 760
ALL_ALIKE = "Everything that is known of these runs was the same: the request and the conditions."
MEASURED, INTERVAL, WORDS = 1, 2, 5
WIDTHS = [164, 250, 170, 124, 180, 240]
BAR_PX = 8
LEAST_SPAN = 0.04
LOG_FROM = 8.0
"""Ratios further apart than this are on a logarithmic axis."""
NAMES = {"speedup": "speed-up"}
"""Of quantities that their unit does not name."""


class ComparedEntry(NamedTuple):
    """One quantity of one run, and the first run's."""

    run: StoredRun
    cell: Compared
    first: Figure
    what: str

    @property
    def figure(self) -> Figure:
        """What was measured."""
        return self.cell.figure

    @property
    def name(self) -> str:
        """The run and its device."""
        return f"#{self.run.id}  {device_text(self.run, (self.figure,))}"

    @property
    def tip(self) -> str:
        """Everything about it."""
        spread, run = self.figure.spread, self.run
        lines = [
            f"#{run.id}  {title(run.result.spec)}",
            f"{device_text(run, (self.figure,))}  {run.conditions.device_name}".strip(),
            when_text(run.conditions.started_unix_s),
            f"{self.median}, middle 60 % from {number_text(spread.p20)} to {number_text(spread.p80)}",
            self.ratio,
            self.cell.words,
        ]
        return joined("\n", *lines)

    @property
    def median(self) -> str:
        """With its unit."""
        return " ".join(rate_texts(self.figure.unit, self.figure.spread.median))

    @property
    def ratio(self) -> str:
        """To the first run, `× 1.031 (1.028 to 1.034)`."""
        difference, interval = self.cell.difference, self.cell.interval
        if difference is None:
            return ""
        return f"× {difference.ratio:.3f}" + (f" ({interval})" if interval else "")


class Axis(NamedTuple):
    """Of all intervals."""

    low: float
    high: float
    is_log: bool
    unit: str

    def share(self, value: float) -> float:
        """Where a value is: 0 at the left end, 1 at the right."""
        if self.is_log:
            return math.log(value / self.low) / math.log(self.high / self.low)
        return (value - self.low) / (self.high - self.low)


class IntervalCells(Padded):
    """Paints the middle 60 % of a run as a bar with a mark at its median, before those of the first run; hollow and
    dashed where it is simulated."""

    def __init__(self, table: Intervals, colour: Callable[[StoredRun], Colour]) -> None:
        super().__init__(table)
        self._table, self._colour = table, colour

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        entry = self._table.entries[index.row()]
        colour, simulated = QColor(colour_of(self._colour(entry.run))), entry.figure.simulated
        low, middle, high = self._table.places(entry, entry.figure, cell)
        first_low, first_middle, first_high = self._table.places(entry, entry.first, cell)
        top, height, y = cell.top(), cell.height(), cell.center().y() + 0.5
        band = QColor(current_theme().text)
        band.setAlphaF(0.08)
        painter.fillRect(QRectF(first_low, top, max(first_high - first_low, 1), height), band)
        pen = QPen(current_theme().dim)
        pen.setDashPattern([2, 3])
        painter.setPen(pen)
        painter.drawLine(QPointF(first_middle, top), QPointF(first_middle, top + height))
        fill, pen, mark = QColor(colour), QPen(colour), QPen(colour, 3)
        fill.setAlphaF(0.0 if simulated else 0.35)
        mark.setCapStyle(Qt.PenCapStyle.FlatCap)
        if simulated:
            pen.setDashPattern([4, 3])
            mark.setDashPattern([1.2, 0.8])
        painter.setPen(pen)
        painter.setBrush(fill)
        painter.drawRect(QRectF(low, y - BAR_PX / 2, max(high - low, 1), BAR_PX))
        painter.setPen(mark)
        painter.drawLine(QPointF(middle, y - BAR_PX), QPointF(middle, y + BAR_PX))
        return True


class Intervals(RowsTable):
    """Shows the comparison of the last `set_comparison`; as high as its rows are."""

    def __init__(self, colour: Callable[[StoredRun], Colour]) -> None:
        """`colour` of a run's device."""
        super().__init__((), "Medians with intervals", WIDTHS, stretched=INTERVAL, named=(WORDS,))
        self._colour = colour
        self.entries: list[ComparedEntry] = []
        self.axis = Axis(0.0, 1.0, False, "")
        self._is_ratio = False
        self._cells = IntervalCells(self, colour)
        self.setItemDelegateForColumn(INTERVAL, self._cells)
        self.setSizeAdjustPolicy(RowsTable.SizeAdjustPolicy.AdjustToContents)

    def set_comparison(self, comparison: Comparison) -> None:
        """Show this one."""
        self._is_ratio = len(comparison.rows) > 1
        self.entries = []
        for row in comparison.rows:
            first = row.cells[0]
            for run, cell in zip(comparison.runs, row.cells, strict=True):
                if cell is not None and first is not None:
                    what = title(run.result.spec)
                    if self._is_ratio:
                        what = row.label or NAMES.get(first.figure.quantity, row.unit)
                    self.entries.append(ComparedEntry(run, cell, first.figure, what))
        self.axis = self._new_axis(comparison)
        low, high, unit = rate_texts(self.axis.unit, self.axis.low, self.axis.high)
        columns = (
            Column("run"),
            Column("measured"),
            Column(f"{low} to {high} {unit}", "The median, and the middle 60 % as a bar"),
            numbers("median"),
            Column("times the first run", "In brackets the 95 % interval"),
            Column("in words"),
        )
        self.rows_model.set_columns(columns)
        self.set_rows([self._row(number, entry) for number, entry in enumerate(self.entries)])
        self.setColumnHidden(MEASURED, len({entry.what for entry in self.entries}) == 1)
        for column, width in enumerate(WIDTHS):
            self.setColumnWidth(column, width)
        self._share()
        self.setMaximumHeight((1 + len(self.entries)) * ROW_PX + SCROLL_PX)

    def _new_axis(self, comparison: Comparison) -> Axis:
        low = min(entry.figure.spread.p20 / self._scale(entry) for entry in self.entries)
        high = max(entry.figure.spread.p80 / self._scale(entry) for entry in self.entries)
        unit = "× the first" if self._is_ratio else comparison.rows[0].unit
        if low > 0 and high / low > LOG_FROM:
            return Axis(low / 1.3, high * 1.3, True, unit)
        room = max(0.08 * (high - low), (LEAST_SPAN * high - (high - low)) / 2, 1e-12)
        return Axis(max(low - room, 0.0), high + room, False, unit)

    def _scale(self, entry: ComparedEntry) -> float:
        """What figures are divided by for the axis."""
        return (entry.first.spread.median or 1.0) if self._is_ratio else 1.0

    def places(self, entry: ComparedEntry, figure: Figure, cell: QRect) -> tuple[float, float, float]:
        """Left end, median and right end of an interval in a cell, in pixels."""
        spread, scale = figure.spread, self._scale(entry)
        shares = (self.axis.share(value / scale) for value in (spread.p20, spread.median, spread.p80))
        low, middle, high = (round(cell.left() + share * (cell.width() - GAP_PX)) + 0.5 for share in shares)
        return low, middle, high

    def _row(self, number: int, entry: ComparedEntry) -> TableRow:
        tip, spread, verdict = entry.tip, entry.figure.spread, entry.cell.verdict
        is_clear = verdict in (DifferenceVerdict.CLEAR, DifferenceVerdict.SMALL, DifferenceVerdict.APART)
        words = entry.cell.words or ("the others are compared with this" if entry.figure is entry.first else "")
        return TableRow(
            number,
            (
                Cell(entry.name, self._colour(entry.run), tip),
                Cell(entry.what, "dim", tip),
                Cell(f"{number_text(spread.p20)} to {number_text(spread.p80)}", tip=tip),
                Cell(entry.median, tip=tip),
                Cell(entry.ratio, "soft", tip),
                Cell(words, "" if is_clear else "dim", tip),
            ),
        )

    def figures(self) -> Figures | None:
        """What it shows as numbers."""
        rows: list[tuple[str, ...]] = []
        for entry in self.entries:
            spread, change = entry.figure.spread, entry.cell.difference
            medians = number_texts((spread.median, spread.p20, spread.p80))
            ratio = MISSING if change is None else f"{change.ratio:.3f}"
            rows.append((entry.name, entry.what, *medians, entry.figure.unit, ratio, entry.cell.words))
        titles = ("Run", "Measured", "Median", "p20", "p80", "Unit", "Times the first run", "In words")
        return Figures(titles, rows) if rows else None

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_menu(self, event)


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
        """What is shown."""
        self.title = label("", Role.STRONG)
        self.facts = label("", words="dim", wrap=True)
        self.warning = label("", words="warning", wrap=True)
        self.warning.hide()
        self.intervals = Intervals(lambda run: run_colour(run, self._state))
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
        self._shown = QFrame()
        self._shown.setObjectName("panel")
        vbox(
            self.title,
            self.facts,
            self.warning,
            (self.intervals, 1000),  # the tables are as high as their rows; what is left stays empty
            (self.table, 1000),
            self.alike,
            None,
            self.remarks,
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
        self.resize(self.width(), max(self.height(), min(self.sizeHint().height(), MOST_PX)))


def _where(comparison: Comparison) -> str:
    first = comparison.runs[0]
    name = first.conditions.device_name
    text = device_text(first)
    return text if not name or name in text else f"{text}, {name}"
