"""What is shown beside the cards of a plan: one card's memory and helps, its roofline, its curve over the batch, every
card side by side, or published steps. Main thread; the file of these is read on a thread of its own.

The tabs have no line of their own: the page puts them at the end of the line above the table.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QColor, QContextMenuEvent, QPainter, QPen, QResizeEvent
from PySide6.QtWidgets import QComboBox, QStackedWidget, QTabBar, QWidget

from devexplorer.core.base import MISSING, bytes_text, number_text, range_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.messages import samples_text
from devexplorer.core.planner.published_steps import PublishedStep, fitted_to, published, rates_of, spec_of
from devexplorer.core.planner.records import BatchPoint, Fit, FitReport, FitSpec
from devexplorer.gui.actions.context import InBackground
from devexplorer.gui.charts.size_curve import Series, SizeCurve
from devexplorer.gui.fit.details import LEAST_PX, FitDetails
from devexplorer.gui.fit.rows import NO_POWER, efficiency_tip, has_step
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
    RowsTable,
    ScrollArea,
    TableRow,
    current_theme,
    hbox,
    holder,
    label,
    lay_out,
    number_texts,
    numbers,
    offer_menu,
    push_button,
    vbox,
)

COLUMNS = (
    Column("model"),
    Column("card"),
    Column("precision"),
    Column("step"),
    numbers("batch"),
    numbers("samples/s", "As published: measured, not simulated; tokens/s of a model that generates"),
    Column("fitted", "Whether the cost model was fitted to this row: then its prediction is no test"),
)
_MODEL, _CARD = 0, 1
BESIDE_BELOW_PX = 190
LIST_BESIDE_FROM_PX = 1200
"""In a lower or a wider place what is chosen is beside the list."""
_WIDTHS = (92, 150, 118, 70, 46, 74, 48)
_GIVES_UP = (6, 3, 2, 4)
EVERY_MODEL, EVERY_CARD = "every model", "every card"
READING = "Reading the published steps…"
CHOOSE = "Choose a published step, and plan it to see the prediction beside the measurement."
FITTED = "The cost model was fitted to this row, so it is no test of the prediction."
NOT_FITTED = "The cost model has not seen this row."


class PublishedChoice(NamedTuple):
    """A published row that can be planned."""

    row: PublishedStep
    spec: FitSpec
    cells: tuple[Cell, ...]


def plannable_steps() -> list[PublishedChoice]:
    """All of them, as the list has them. Any thread."""
    steps = []
    for row in published():
        spec = spec_of(row)
        if spec is not None:
            tip = f"{row.model} on {row.card}, {row.precision} {row.step}, batch {row.batch}\n{row.caveat}"
            rate, fitted = number_text(float(row.samples_per_s)), "yes" if fitted_to(row) else "no"
            texts = row.model, row.profile, row.precision, row.step, f"{int(row.batch):,}", rate, fitted
            steps.append(PublishedChoice(row, spec, tuple(Cell(text, tip=tip) for text in texts)))
    return sorted(steps, key=lambda step: [cell.text for cell in step.cells[:4]])


class PublishedSteps(QWidget):
    """`step_chosen` carries the `FitSpec` of a row to plan."""

    step_chosen = Signal(object)
    in_background: InBackground
    """How the file is read; the tab sets it."""

    def __init__(self) -> None:
        super().__init__()
        self._steps: list[PublishedChoice] = []
        self._asked = False
        """Whether the file is read, or being read."""
        self._found: dict[int, Fit] = {}
        """Predictions by the place of their row."""
        self._ready = True
        self.model = Choice("Model of the published steps")
        self.card = Choice("Card of the published steps")
        self.table = RowsTable(
            COLUMNS, "Published steps", _WIDTHS, stretched=_CARD, gives_up=_GIVES_UP, named=(_MODEL,)
        )
        self.plan_button = push_button(
            "Check fit", self._plan, look="primary", name="Check whether the chosen published step fits"
        )
        self.compared = label(READING, wrap=True, selectable=True)
        self.about = label(role=Role.LABEL, words="dim", wrap=True, selectable=True)
        for choice in (self.model, self.card):
            choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            choice.setMinimumContentsLength(10)
            choice.currentIndexChanged.connect(self._filter)
        self.table.selected.connect(self._show)
        self.table.activated.connect(lambda _index: self._plan())
        below = ScrollArea(
            vbox(self.compared, self.about, None, spacing=2, margins=(EDGE_PX, 0, EDGE_PX, 4)), "The chosen step"
        )
        top = hbox(self.model, self.card, None, self.plan_button, margins=(EDGE_PX, 2, EDGE_PX, 0))
        self._both = vbox((self.table, 3), (below, 2), spacing=4)
        vbox(top, (self._both, 1), spacing=4, parent=self)
        self._offer([])

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        lay_out(self._both, beside=self.height() < BESIDE_BELOW_PX or self.width() >= LIST_BESIDE_FROM_PX)

    def fill(self) -> None:
        """Read the steps that can be planned, once."""
        if not self._asked:
            self._asked = True
            self.in_background("published", plannable_steps, self._offer)

    def _offer(self, steps: list[PublishedChoice]) -> None:
        self._steps = steps
        models, cards = {step.row.model for step in steps}, {step.row.profile for step in steps}
        self.model.offer([("", EVERY_MODEL, ""), *((name, name, "") for name in sorted(models))])
        self.card.offer([("", EVERY_CARD, ""), *((name, name, "") for name in sorted(cards))])
        self._filter()

    def _filter(self) -> None:
        model, card = self.model.value, self.card.value
        rows = []
        for index, step in enumerate(self._steps):
            if model in ("", None, step.row.model) and card in ("", None, step.row.profile):
                rows.append(TableRow(index, step.cells))
        self.table.set_rows(rows)
        self._show()

    def show_report(self, report: FitReport) -> None:
        """Keep the prediction, if this is the plan of a published step."""
        wanted = _plain(report.spec)
        for index, step in enumerate(self._steps):
            if _plain(step.spec) == wanted:
                self._found[index] = report.fits[0]
        self._show()

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self._ready = ready
        self.plan_button.setEnabled(ready and self._chosen is not None)

    @property
    def _chosen(self) -> int | None:
        key = self.table.selected_key
        return key if isinstance(key, int) else None

    def _show(self) -> None:
        self.set_ready(self._ready)
        index = self._chosen
        if index is None:
            self.compared.setText(CHOOSE if self._steps else READING)
            self.about.setText("")
            return
        row = self._steps[index].row
        measured = f"Measured {number_text(float(row.samples_per_s))} {row.unit}"
        self.compared.setText(f"{measured}. {_verdict(row, self._found.get(index))}")
        facts = [f"{row.model} ({row.input}) on {row.card}.", FITTED if fitted_to(row) else NOT_FITTED]
        if row.apart:
            facts.append(f"Set apart from the fit: {row.apart}.")
        if row.caveat:
            facts.append(f"Caveat: {row.caveat}.")
        self.about.setText(f"{' '.join(facts)}\n{row.source}")

    def _plan(self) -> None:
        index = self._chosen
        if index is not None and self._ready:
            self.step_chosen.emit(self._steps[index].spec)


def _verdict(row: PublishedStep, fit: Fit | None) -> str:
    """The prediction against the measurement; what to do where there is none."""
    if fit is None:
        return "Not planned yet."
    rate, low, high = rates_of(fit)
    if rate is None or low is None or high is None:
        return f"Predicted (simulated): it does not fit {fit.gpu}, though it did when it was measured."
    measured = float(row.samples_per_s)
    where = "inside"
    if measured > high:
        where = "above"
    elif measured < low:
        where = "below"
    return (
        f"Predicted {range_text(number_text(low), number_text(high))} {row.unit} (simulated): the measurement is"
        f" {where} this range; prediction over measurement {rate / measured:.2f}."
    )


def _plain(spec: FitSpec) -> FitSpec:
    """Without what changes nothing of the step."""
    return replace(spec, folder="", search=True, options=False, curve=False, patience_seconds=0.0)


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
        text = SENTENCE if asked is None else NO_CURVE
        if fit.serving is not None:
            text = SERVED
        self.empty.sentence.setText(text.format(gpu=fit.gpu))
        self.empty.button.setVisible(text is SENTENCE)
        points = () if asked is None else asked.curve
        self.setCurrentWidget(self._shown if points else self.empty)
        if (fit.gpu, points) != (self._gpu, self._points):
            self._gpu, self._points = fit.gpu, points
            self._draw()

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self.empty.button.setEnabled(ready)
        self.empty.button.setToolTip("" if ready else WAITING)

    def _draw(self) -> None:
        rates = self.what.value == "rate"
        self.time.setVisible(not rates)
        self.rate.setVisible(rates)
        time, rate, memory, beyond = [], [], [], ""
        guide = None
        for point in self._points:
            batch, nbytes, capacity = float(point.batch), float(point.total_bytes), point.capacity_bytes
            memory.append((batch, nbytes, nbytes, nbytes))
            guide = float(capacity), f"capacity {bytes_text(capacity)}"
            middle, low, high = point.step_seconds, point.step_seconds_low, point.step_seconds_high
            if middle is not None and low is not None and high is not None:
                time.append((batch, middle, low, high))
                rate.append((batch, batch / middle, batch / high, batch / low))
            if not point.fits:
                beyond = f"; a batch of {point.batch:,} does not fit"
        for curve, name, points, line in (
            (self.time, "time", time, None),
            (self.rate, "rate", rate, None),
            (self.memory, "memory", memory, guide),
        ):
            curve.set_axis("batch", "{:,.0f}".format)
            curve.set_curves([Series(name, "soft", tuple(points), simulated=True)], line)
        self.note.set_full_text(f"{self._gpu}, simulated: the bars are the ranges expected of a real card{beyond}.")
        self.what.setToolTip(self.note.full_text)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        low = event.size().height() < LOW_PX
        self.note.setVisible(not low)
        lay_out(self._parts, beside=low)
        lay_out(self._both, beside=low or event.size().width() >= BESIDE_FROM_PX)


BAR_PX = 8
MEASURES = (
    ("energy", "samples/J", "By the datasheet's power limit; a card that waits draws less"),
    ("rate", "samples/s", "Samples of the batch in a second of the simulated step"),
)


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
        figures = fit.samples_per_joule, fit.samples_per_joule_low, fit.samples_per_joule_high
        if measure == "rate":
            figures = fit.samples_per_s, fit.samples_per_s_low, fit.samples_per_s_high
        text = range_text(number_text(figures[1]), number_text(figures[2]))
        if text == MISSING and not fit.fits:
            text += "  does not fit"
        elif text == MISSING:
            text += "  no power limit known" if has_step(fit) else "  generates text, no samples"
        tip = f"{fit.gpu}: {samples_text(fit)} samples/s, simulated. {efficiency_tip(fit)}"
        result.append(CardRange(fit.gpu, *figures, text, tip))
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
        self.table = RowsTable(
            (Column("card"), Column("range"), numbers("figures")),
            self.accessibleName(),
            (140, 100, 140),
            stretched=1,
            named=(0,),
        )
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
        rows = self.bars.rows = card_ranges(self._fits, self.measure.value)
        self.table.set_rows([TableRow(row.gpu, _cells(row)) for row in rows])
        self.table.viewport().update()
        at, why = "simulated", ""
        if self.measure.value == "energy":
            at = "at the datasheet's power limit, simulated"
            if len(self._fits) == 1 and self._fits[0].board_power_w is None:
                why = f" {NO_POWER}"
        self.note.setText(f"{at}; bars: the ranges expected of real cards.{why}")

    def figures(self) -> Figures | None:
        """What the bars show."""
        shown = self.bars.rows
        if not shown:
            return None
        columns = [number_texts(getattr(row, name) for row in shown) for name in ("middle", "low", "high")]
        remarks = [row.text if row.middle is None else "" for row in shown]
        rows = list(zip([row.gpu for row in shown], *columns, remarks, strict=True))
        return Figures(("Card", f"{self.measure.currentText()} simulated", "from", "to", "Remark"), rows)

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
