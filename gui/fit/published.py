"""Published steps beside what the planner says of them: a list to choose from, prediction against measurement, and the
source. Main thread; the file is read on a thread of its own.

The prediction is planned when it is asked for, as any other; it is simulated, the published figure was measured.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from msgspec.structs import replace
from PySide6.QtCore import Signal
from PySide6.QtGui import QResizeEvent
from PySide6.QtWidgets import QComboBox, QWidget

from devexplorer.core.base import number_text, range_text
from devexplorer.core.planner.published_steps import PublishedStep, fitted_to, published, rates_of, spec_of
from devexplorer.core.planner.records import Fit, FitReport, FitSpec
from devexplorer.gui.actions.context import InBackground
from devexplorer.gui.widgets import (
    EDGE_PX,
    Cell,
    Choice,
    Column,
    Role,
    RowsModel,
    RowsTable,
    ScrollArea,
    TableRow,
    hbox,
    label,
    lay_out,
    numbers,
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
BESIDE_FROM_PX = 1200
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
    both = ((row, spec_of(row)) for row in published())
    steps = [PublishedChoice(row, spec, _cells(row)) for row, spec in both if spec is not None]
    return sorted(steps, key=lambda step: tuple(cell.text for cell in step.cells[:4]))


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
        self.rows_model = RowsModel(COLUMNS)
        self.table = RowsTable(
            self.rows_model, "Published steps", _WIDTHS, stretched=_CARD, gives_up=_GIVES_UP, named=(_MODEL,)
        )
        self.rows_model.setParent(self.table)
        self.plan_button = push_button(
            "Check fit", self._plan, look="primary", name="Check whether the chosen published step fits"
        )
        self.compared = label(READING, wrap=True, selectable=True)
        self.about = label(role=Role.LABEL, words="dim", wrap=True, selectable=True)
        for choice, every in ((self.model, EVERY_MODEL), (self.card, EVERY_CARD)):
            choice.offer([("", every, "")])
            choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            choice.setMinimumContentsLength(10)
            choice.currentIndexChanged.connect(self._filter)
        self.table.selectionModel().selectionChanged.connect(lambda *_rows: self._show())
        self.table.activated.connect(lambda _index: self._plan())
        below = ScrollArea(
            vbox(self.compared, self.about, None, spacing=2, margins=(EDGE_PX, 0, EDGE_PX, 4)), "The chosen step"
        )
        top = hbox(self.model, self.card, None, self.plan_button, margins=(EDGE_PX, 2, EDGE_PX, 0))
        self._both = vbox((self.table, 3), (below, 2), spacing=4)
        vbox(top, (self._both, 1), spacing=4, parent=self)

    def resizeEvent(self, event: QResizeEvent) -> None:
        super().resizeEvent(event)
        lay_out(self._both, beside=self.height() < BESIDE_BELOW_PX or self.width() >= BESIDE_FROM_PX)

    def fill(self) -> None:
        """Read the steps that can be planned, once."""
        if not self._asked:
            self._asked = True
            self.in_background("published", plannable_steps, self._offer)

    def _offer(self, steps: list[PublishedChoice]) -> None:
        self._steps = steps
        models, cards = sorted({step.row.model for step in steps}), sorted({step.row.profile for step in steps})
        self.model.offer([("", EVERY_MODEL, ""), *((name, name, "") for name in models)])
        self.card.offer([("", EVERY_CARD, ""), *((name, name, "") for name in cards)])
        self._filter()

    def _filter(self) -> None:
        model, card = self.model.value, self.card.value
        self.rows_model.set_rows(
            [
                TableRow(index, step.cells)
                for index, step in enumerate(self._steps)
                if model in ("", None, step.row.model) and card in ("", None, step.row.profile)
            ]
        )
        self._show()

    def show_report(self, report: FitReport) -> None:
        """Keep the prediction, if this is the plan of a published step."""
        wanted = _plain(report.spec)
        new = False
        for index, step in enumerate(self._steps):
            if _plain(step.spec) == wanted and self._found.get(index) is not report.fits[0]:
                self._found[index], new = report.fits[0], True
        if new:
            self._show()

    def set_ready(self, ready: bool) -> None:
        """Whether a plan can be asked for now."""
        self._ready = ready
        self._show_button()

    @property
    def _chosen(self) -> int | None:
        key = self.table.selected_key
        return key if isinstance(key, int) else None

    def _show_button(self) -> None:
        self.plan_button.setEnabled(self._ready and self._chosen is not None)

    def _show(self) -> None:
        self._show_button()
        index = self._chosen
        if index is None:
            self.compared.setText(CHOOSE if self._steps else READING)
            self.about.setText("")
            return
        row = self._steps[index].row
        measured = f"Measured {number_text(float(row.samples_per_s))} {row.unit}"
        fit = self._found.get(index)
        self.compared.setText(f"{measured}. {_verdict(row, fit)}")
        apart = f"Set apart from the fit: {row.apart}." if row.apart else ""
        seen = FITTED if fitted_to(row) else NOT_FITTED
        facts = (
            f"{row.model} ({row.input}) on {row.card}.",
            seen,
            apart,
            f"Caveat: {row.caveat}." if row.caveat else "",
        )
        self.about.setText(" ".join(filter(None, facts)) + f"\n{row.source}")

    def _plan(self) -> None:
        index = self._chosen
        if index is not None and self.plan_button.isEnabled():
            self.step_chosen.emit(self._steps[index].spec)


def _verdict(row: PublishedStep, fit: Fit | None) -> str:
    """The prediction against the measurement; what to do where there is none."""
    if fit is None:
        return "Not planned yet."
    rate, low, high = rates_of(fit)
    if rate is None or low is None or high is None:
        return f"Predicted (simulated): it does not fit {fit.gpu}, though it did when it was measured."
    measured = float(row.samples_per_s)
    if low <= measured <= high:
        where = "inside"
    elif measured > high:
        where = "above"
    else:
        where = "below"
    return (
        f"Predicted {range_text(number_text(low), number_text(high))} {row.unit} (simulated): the measurement is"
        f" {where} this range; prediction over measurement {rate / measured:.2f}."
    )


def _plain(spec: FitSpec) -> FitSpec:
    """Without what changes nothing of the step."""
    return replace(spec, folder="", search=True, options=False, curve=False, patience_seconds=0.0)


def _cells(row: PublishedStep) -> tuple[Cell, ...]:
    texts: Sequence[str] = (
        row.model,
        row.profile,
        row.precision,
        row.step,
        f"{int(row.batch):,}",
        number_text(float(row.samples_per_s)),
        "yes" if fitted_to(row) else "no",
    )
    tip = f"{row.model} on {row.card}, {row.precision} {row.step}, batch {row.batch}\n{row.caveat}"
    return tuple(Cell(text, tip=tip) for text in texts)
