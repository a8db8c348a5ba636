"""Published steps beside what the planner says of them: a list to choose from, prediction against measurement, and the
source. Main thread.

The prediction is planned when it is asked for, as any other; it is simulated, the published figure was measured.
"""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace
from PySide6.QtCore import QTimer, Signal
from PySide6.QtWidgets import QComboBox, QWidget

from devexplorer.core.base import number_text, range_text
from devexplorer.core.planner.published_steps import Published, fitted_to, published, rates_of, spec_of
from devexplorer.core.records import Fit, FitReport, FitSpec
from devexplorer.gui.widgets import EDGE_PX, Role, ScrollArea, hbox, label, push_button, vbox
from devexplorer.gui.widgets.form_fields import Choice
from devexplorer.gui.widgets.table import Cell, Column, RowsModel, RowsTable, TableRow, numbers

COLUMNS = (
    Column("model"),
    Column("card"),
    Column("precision"),
    Column("step"),
    numbers("batch"),
    numbers("samples/s", "As published: measured, not simulated; tokens/s of a model that generates"),
    Column("fitted", "Whether the cost model was fitted to this row: then its prediction is no test"),
)
_CARD = 1
AT_ONCE = 50
"""Rows that are read in one turn of the event loop."""
_WIDTHS = (84, 100, 128, 70, 46, 74, 48)
_GIVES_UP = (6, 3, 2, 4)
EVERY_MODEL, EVERY_CARD = "every model", "every card"
CHOOSE = "Choose a published step, and plan it to see the prediction beside the measurement."
PLAN, PLAN_NAME = "Plan", "Plan the chosen published step"
FITTED = "The cost model was fitted to this row, so it is no test of the prediction."
NOT_FITTED = "The cost model has not seen this row."


class PublishedSteps(QWidget):
    """`step_chosen` carries the `FitSpec` of a row to plan."""

    step_chosen = Signal(object)

    def __init__(self) -> None:
        super().__init__()
        self._rows: list[tuple[Published, FitSpec]] = []
        self._unread: list[Published] = []
        self._reader = QTimer(self, interval=0)
        self._reader.timeout.connect(self._read_some)
        self._found: dict[int, Fit] = {}
        """Predictions by the place of their row."""
        self._ready = True
        self.model = Choice("Model of the published steps")
        self.card = Choice("Card of the published steps")
        self.rows_model = RowsModel(COLUMNS)
        self.table = RowsTable(self.rows_model, "Published steps", _WIDTHS, stretched=_CARD, gives_up=_GIVES_UP)
        self.rows_model.setParent(self.table)
        self.plan_button = push_button(PLAN, self._plan, look="primary", tip=PLAN_NAME, name=PLAN_NAME)
        self.compared = label(CHOOSE, wrap=True, selectable=True)
        self.about = label(role=Role.LABEL, words="dim", wrap=True, selectable=True)
        for choice in (self.model, self.card):
            choice.setSizeAdjustPolicy(QComboBox.SizeAdjustPolicy.AdjustToMinimumContentsLengthWithIcon)
            choice.setMinimumContentsLength(10)
            choice.currentIndexChanged.connect(self._filter)
        self.table.selectionModel().selectionChanged.connect(lambda *_rows: self._show())
        self.table.activated.connect(lambda _index: self._plan())
        below = ScrollArea(vbox(self.compared, self.about, spacing=2, margins=(EDGE_PX, 0, EDGE_PX, 4)), "The row")
        below.setMinimumHeight(64)
        top = hbox(self.model, self.card, None, self.plan_button, margins=(EDGE_PX, 2, EDGE_PX, 0))
        vbox(top, (self.table, 3), (below, 2), spacing=4, parent=self)

    def fill(self) -> None:
        """Read the rows that can be planned; once, and some at a time: the window is not to wait for all of them."""
        if not self._rows and not self._reader.isActive():
            self._unread = published()
            self._reader.start()

    def _read_some(self) -> None:
        some, self._unread = self._unread[:AT_ONCE], self._unread[AT_ONCE:]
        self._rows += [(row, spec) for row in some if (spec := spec_of(row)) is not None]
        if not self._unread:
            self._reader.stop()
            self._offer()

    def _offer(self) -> None:
        models, cards = sorted({row.model for row, _ in self._rows}), sorted({row.profile for row, _ in self._rows})
        self.model.offer([("", EVERY_MODEL, ""), *((name, name, "") for name in models)])
        self.card.offer([("", EVERY_CARD, ""), *((name, name, "") for name in cards)])
        self._filter()

    def _filter(self) -> None:
        chosen = [
            TableRow(index, _cells(row))
            for index, (row, _) in enumerate(self._rows)
            if self.model.value in ("", None, row.model) and self.card.value in ("", None, row.profile)
        ]
        self.rows_model.set_rows(sorted(chosen, key=lambda row: tuple(cell.text for cell in row.cells[:4])))
        self._show()

    def show_report(self, report: FitReport) -> None:
        """Keep the prediction, if this is the plan of a published step."""
        wanted = _plain(report.spec)
        new = False
        for index, (_, spec) in enumerate(self._rows):
            if _plain(spec) == wanted and self._found.get(index) is not report.fits[0]:
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
            self.compared.setText(CHOOSE)
            self.about.setText("")
            return
        row, _ = self._rows[index]
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
            self.step_chosen.emit(self._rows[index][1])


def _verdict(row: Published, fit: Fit | None) -> str:
    """The prediction against the measurement; what to do where there is none."""
    if fit is None:
        return "Not planned yet."
    rate, low, high = rates_of(fit)
    if rate is None or low is None or high is None:
        return f"Predicted (simulated): it does not fit {fit.gpu}, though it did when it was measured."
    measured = float(row.samples_per_s)
    where = "inside" if low <= measured <= high else "above" if measured > high else "below"
    return (
        f"Predicted {range_text(number_text(low), number_text(high))} {row.unit} (simulated): the measurement is"
        f" {where} this range; prediction over measurement {rate / measured:.2f}."
    )


def _plain(spec: FitSpec) -> FitSpec:
    """Without what changes nothing of the step."""
    return replace(spec, folder="", search=True, options=False, curve=False, patience_seconds=0.0)


def _cells(row: Published) -> tuple[Cell, ...]:
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
