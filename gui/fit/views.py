"""What is shown beside the cards of a plan: one card's memory and helps, its roofline, its curve over the batch, every
card side by side, or published steps. Main thread.

The tabs have no line of their own: the page puts them at the end of the line above the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QStackedWidget, QTabBar, QWidget

from devexplorer.core.base import MISSING, bytes_text, number_text, range_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import BatchPoint, Fit, FitReport
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.fit.details import LEAST_PX, FitDetails
from devexplorer.gui.fit.published import PublishedSteps
from devexplorer.gui.fit.rows import NO_POWER, efficiency_tip, has_step, rate_range
from devexplorer.gui.fit.step_roofline import StepRoofline, step_figures
from devexplorer.gui.plots.curves import MEMORY_UNITS, Unit
from devexplorer.gui.widgets import (
    EDGE_PX,
    PAD_PX,
    Cell,
    Choice,
    Column,
    ElidedLabel,
    EmptyState,
    Figures,
    Index,
    Padded,
    Role,
    RowsModel,
    RowsTable,
    TableRow,
    current_theme,
    hbox,
    holder,
    label,
    lay_out,
    number_texts,
    numbers,
    offer_menu,
    vbox,
)

TIME_UNITS = (Unit("s", 1.0), Unit("ms", 1e-3), Unit("µs", 1e-6))
RATE_UNITS = (Unit("samples/s", 1.0),)
BESIDE_FROM_PX = 560
"""From this width on the curves are side by side."""
LOW_PX, LEAST_CURVE_PX = 120, 56
"""In a lower place the choice is beside the curves, and the note in its tooltip."""
ASK = "Work out the curve"
WAITING = "A plan is under way."
SENTENCE = (
    "The step is traced at up to ten batches, from 1 to more than {gpu} holds: its time and memory by batch size."
)
SERVED = "The curve is about a step of training or inference; this plan is about generating text."
NO_CURVE = "{gpu} has no curve: the model could not be divided over these cards."


class BatchCurves(QStackedWidget):
    """`empty.chosen` asks for those of the card shown."""

    def __init__(self) -> None:
        super().__init__()
        self.empty = EmptyState("", ASK)
        self.what = Choice("Shown by batch size", [("time", "step time", ""), ("rate", "samples/s", "")])
        self.what.currentIndexChanged.connect(self._draw)
        self.time = SizeCurve("Step time by batch size, simulated", TIME_UNITS)
        self.rate = SizeCurve("Samples per second by batch size, simulated", RATE_UNITS)
        self.memory = SizeCurve("Memory by batch size, simulated", MEMORY_UNITS)
        self.note = ElidedLabel(Role.LABEL, "dim")
        for curve in (self.time, self.rate, self.memory):
            curve.setMinimumHeight(LEAST_CURVE_PX)
        self._both = vbox((self.time, 1), (self.rate, 1), (self.memory, 1), spacing=4)
        head = hbox(self.what, (self.note, 1))
        self._parts = vbox(head, (self._both, 1), spacing=2, margins=(EDGE_PX, 2, EDGE_PX, 0))
        self._shown = holder(self._parts)
        self.addWidget(self.empty)
        self.addWidget(self._shown)
        self._gpu = ""
        self._points: tuple[BatchPoint, ...] = ()

    def show_fit(self, fit: Fit, asked: FitReport | None) -> None:
        """Of this card; `asked`: the report with its curve, None before the question was asked."""
        if fit.serving is not None:
            text = SERVED
        elif asked is None:
            text = SENTENCE
        else:
            text = NO_CURVE
        self.empty.sentence.setText(text.format(gpu=fit.gpu))
        self.empty.button.setVisible(asked is None and fit.serving is None)
        points = asked.curve if asked is not None else ()
        self.setCurrentWidget(self._shown if points else self.empty)
        if (fit.gpu, points) != (self._gpu, self._points):
            self._gpu, self._points = fit.gpu, points
            self._draw()

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self.empty.button.setEnabled(ready)
        self.empty.button.setToolTip("" if ready else WAITING)

    def _draw(self) -> None:
        timed = [point for point in self._points if point.step_seconds is not None]
        rates = self.what.value == "rate"
        self.time.setVisible(not rates)
        self.rate.setVisible(rates)
        for curve in (self.time, self.rate, self.memory):
            curve.set_axis("batch", "{:,.0f}".format)
        self.time.set_curves([_series("time", [_time(point) for point in timed])])
        self.rate.set_curves([_series("rate", [_rate(point) for point in timed])])
        memory = [(float(point.batch), *[float(point.total_bytes)] * 3) for point in self._points]
        capacity = self._points[0].capacity_bytes if self._points else 0
        guide = (float(capacity), f"capacity {bytes_text(capacity)}") if capacity else None
        self.memory.set_curves([_series("memory", memory)], guide)  # type: ignore[arg-type]  # four numbers each
        beyond = [point for point in self._points if not point.fits]
        what = f"; a batch of {beyond[-1].batch:,} does not fit" if beyond else ""
        self.note.set_full_text(f"{self._gpu}, simulated: the bars are the ranges expected of a real card{what}.")
        self.what.setToolTip(self.note.full_text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        low = event.size().height() < LOW_PX
        self.note.setVisible(not low)
        lay_out(self._parts, beside=low)
        lay_out(self._both, beside=low or event.size().width() >= BESIDE_FROM_PX)


def _series(name: str, points: list[tuple[float, float, float, float]]) -> Series:
    return Series(name, "soft", tuple(points), simulated=True)


def _time(point: BatchPoint) -> tuple[float, float, float, float]:
    middle, low, high = point.step_seconds, point.step_seconds_low, point.step_seconds_high
    assert middle is not None
    assert low is not None
    assert high is not None
    return float(point.batch), middle, low, high


def _rate(point: BatchPoint) -> tuple[float, float, float, float]:
    batch, middle, low, high = _time(point)
    return batch, batch / middle, batch / high, batch / low


BAR_PX = 8
MEASURES = (
    ("energy", "samples/J", "By the datasheet's power limit; a card that waits draws less"),
    ("rate", "samples/s", "Samples of the batch in a second of the simulated step"),
)
DOES_NOT_FIT = "does not fit"
NO_LIMIT, NO_SAMPLES = "no power limit known", "generates text, no samples"
_FIGURES = ("middle", "low", "high")


class CardRange(NamedTuple):
    """One card."""

    gpu: str
    middle: float | None
    low: float | None
    high: float | None
    text: str
    """The range, or why there is none."""
    tip: str


def card_ranges(fits: Sequence[Fit], measure: str) -> list[CardRange]:
    """The best first; cards without a figure last, with the reason."""
    result = []
    for fit in fits:
        if measure == "rate":
            figures = fit.samples_per_s, fit.samples_per_s_low, fit.samples_per_s_high
        else:
            figures = fit.samples_per_joule, fit.samples_per_joule_low, fit.samples_per_joule_high
        if not fit.fits:
            why = DOES_NOT_FIT
        elif has_step(fit):
            why = NO_LIMIT
        else:
            why = NO_SAMPLES
        text = range_text(number_text(figures[1]), number_text(figures[2]))
        tip = f"{fit.gpu}: {rate_range(fit)} samples/s, simulated. {efficiency_tip(fit)}"
        result.append(CardRange(fit.gpu, *figures, f"{MISSING}  {why}" if text == MISSING else text, tip))
    return sorted(result, key=lambda item: -(item.middle or 0.0))


class RangeBars(Padded):
    """Paints the ranges of the cards on one scale, each with its middle marked."""

    rows: Sequence[CardRange] = ()

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        row = self.rows[index.row()]
        if row.middle is not None and row.low is not None and row.high is not None:
            theme, room = current_theme(), QRectF(cell).adjusted(0, 0, -PAD_PX, 0)
            scale = room.width() / max(other.high or 0.0 for other in self.rows)
            box = QRectF(room.left() + row.low * scale, room.center().y() - BAR_PX / 2, 0, BAR_PX)
            box.setWidth(max((row.high - row.low) * scale, 2))
            fill = QColor(theme.soft)
            fill.setAlphaF(0.45)
            painter.fillRect(box, fill)
            pen = QPen(QColor(theme.soft), 1)
            pen.setDashPattern([3, 2])
            painter.setPen(pen)
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
            x = room.left() + row.middle * scale
            painter.setPen(QPen(QColor(theme.text), 2))
            painter.drawLine(QPointF(x, box.top() - 2), QPointF(x, box.bottom() + 2))
        return True


class Efficiency(QWidget):
    """A row for each card of a plan: its name, the range as a bar, the numbers; and what they are measured in."""

    def __init__(self) -> None:
        super().__init__()
        self.setAccessibleName("Cards side by side, simulated")
        self.measure = Choice("What the cards are compared by", MEASURES)
        self.model = RowsModel((Column("card"), Column("range"), numbers("figures")))
        self.table = RowsTable(self.model, self.accessibleName(), (140, 100, 140), stretched=1, named=(0,))
        self.table.horizontalHeader().hide()
        self.bars = RangeBars(self.table)
        self.table.setItemDelegateForColumn(1, self.bars)
        self.note = label(role=Role.LABEL, words="dim", wrap=True)
        self._fits: Sequence[Fit] = ()
        top = hbox(self.measure, (self.note, 1), margins=(EDGE_PX, 2, EDGE_PX, 0))
        vbox(top, (self.table, 1), spacing=4, parent=self)
        self.measure.currentIndexChanged.connect(self._draw)

    def show_fits(self, fits: Sequence[Fit]) -> None:
        """Compare these."""
        if fits is not self._fits:
            self._fits = fits
            self._draw()

    def _draw(self) -> None:
        energy = self.measure.value == "energy"
        rows = self.bars.rows = card_ranges(self._fits, self.measure.value)
        self.model.set_rows([TableRow(row.gpu, _cells(row)) for row in rows])
        self.table.viewport().update()
        unknown = [fit.gpu for fit in self._fits if fit.board_power_w is None]
        why = f" {NO_POWER}" if len(unknown) == len(self._fits) == 1 and energy else ""
        at = "at the datasheet's power limit, simulated" if energy else "simulated"
        self.note.setText(f"{at}; bars: the ranges expected of real cards.{why}")

    def figures(self) -> Figures | None:
        """What the bars show."""
        shown = self.bars.rows
        columns = zip(*(number_texts(getattr(row, name) for row in shown) for name in _FIGURES), strict=True)
        both = zip(shown, columns, strict=True)
        rows = [(row.gpu, *values, row.text if row.middle is None else "") for row, values in both]
        unit = f"{self.measure.currentText()} simulated"
        return Figures(("Card", unit, "from", "to", "Remark"), rows) if rows else None

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_menu(self, event)


def _cells(row: CardRange) -> tuple[Cell, ...]:
    """The name without the maker, which says nothing here."""
    name = row.gpu.removeprefix("NVIDIA ").removeprefix("AMD ")
    return Cell(name, tip=row.tip), Cell("", tip=row.tip), Cell(row.text, "dim" if row.middle is None else "", row.tip)


VIEWS = (
    ("Memory", "Parts of the memory, what would help, the assumptions"),
    ("Roofline", "The step by class of operation, under the card's memory bandwidth and computing rates"),
    ("Batch", "Time and memory by batch size"),
    ("Efficiency", "Every card side by side: samples per joule and per second"),
    ("Published", "Published steps: prediction against measurement"),
)
MEMORY, ROOFLINE, BATCH, EFFICIENCY, PUBLISHED = range(5)


class FitViews(QStackedWidget):
    """`tabs` chooses the view."""

    view_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.tabs = QTabBar(expanding=False, drawBase=False, usesScrollButtons=True)
        self.tabs.setElideMode(Qt.TextElideMode.ElideNone)
        self.tabs.setAccessibleName("What is shown beside the cards")
        self.details, self.roofline, self.curves = FitDetails(), StepRoofline(), BatchCurves()
        self.efficiency, self.published = Efficiency(), PublishedSteps()
        for widget in (self.details, self.roofline, self.curves, self.efficiency, self.published):
            self.addWidget(widget)
        for index, (name, meaning) in enumerate(VIEWS):
            self.tabs.addTab(name)
            self.tabs.setTabToolTip(index, meaning)
        self.setMinimumWidth(LEAST_PX)
        self.tabs.currentChanged.connect(self._on_chosen)

    def minimumSizeHint(self) -> QSize:
        """A low page shows less of a view; a view that is not shown asks for no room."""
        return QSize(LEAST_PX, 0)

    def _on_chosen(self, index: int) -> None:
        if index == PUBLISHED:
            self.published.fill()
        self.setCurrentIndex(index)
        self.view_changed.emit()

    @property
    def needs_no_plan(self) -> bool:
        """Whether there is something to see and to do before the first plan."""
        return self.currentIndex() == PUBLISHED

    @property
    def is_picture(self) -> bool:
        """Whether it needs width to be read in a low page."""
        return self.currentIndex() in (ROOFLINE, BATCH, EFFICIENCY)

    def show_report(self, fits: Sequence[Fit], report: FitReport) -> None:
        """A plan, whose cards are `fits`."""
        self.efficiency.show_fits(fits)
        self.published.show_report(report)

    def show_card(self, fit: Fit, report: FitReport, curve: FitReport | None, profile: Profile | None) -> None:
        """One card of it; `curve`: the report with its curve, `profile`: the card's, None where there are several
        kinds."""
        self.roofline.set_figures(None if profile is None else step_figures(fit, report.spec, profile))
        self.curves.show_fit(fit, curve)

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self.curves.set_ready(ready)
        self.published.set_ready(ready)
