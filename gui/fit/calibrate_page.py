"""The Calibrate page of the Benchmark tab: a card's own factors of the cost model, and the calibrations that are saved.
Main thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from devexplorer.core.base import MISSING, count_text
from devexplorer.core.planner.calibrate.kind import (
    CalibrateResult,
    CalibrateSpec,
    CalibrationRow,
    card_of,
    combined,
    factors_text,
    row_texts,
)
from devexplorer.core.records import Calibration
from devexplorer.core.session import Run
from devexplorer.core.virtual.device.cost import TITLES
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.benchmark.base_page import PicturePage, took
from devexplorer.gui.fit.tab import calibrations_of
from devexplorer.gui.widgets import (
    Cell,
    Column,
    RowsTable,
    TableRow,
    line_edit,
    menu_button,
    numbers,
)

COLUMNS = (
    Column("measured"),
    Column("factor of", "What the cost model multiplies by this factor"),
    numbers("rate or time", "Median over the samples"),
    numbers("modelled", "The same by the cost model for a card of this profile"),
    numbers("factor", "Measured over modelled: above 1 a rate is faster, a time longer"),
    numbers("p20 to p80", "The factor by the 20th and 80th percentile of the samples"),
    numbers("noise", "Interquartile range over median"),
    Column("values", "Whether the values were compared and right"),
)
WIDTHS_PX = (300, 160, 104, 104, 64, 110, 64, 64)
NONE_SAVED = "No card has been calibrated."


class CalibratePage(PicturePage[CalibrateSpec]):
    """One card at a time: TF32 is a setting of the whole process."""

    kind = "calibrate"
    nothing = "No card has been calibrated in this session. It takes ten seconds; Fit then plans with measured speeds."

    def build(self) -> None:
        self.seconds_edit = line_edit("10", "10", "Seconds", 48)
        self.saved_button = menu_button()
        self.saved = self.saved_button.menu()
        self.add_fields(("on", self.devices), ("seconds", self.seconds_edit))
        self.add_field("", self.saved_button)
        self.table = RowsTable(COLUMNS, "Measured and modelled", WIDTHS_PX, stretched=7, gives_up=(6, 5, 1, 7, 3))
        self.add_picture(self.table)
        self._remove: Callable[[str], None] = lambda name: None
        self.set_calibrations(())

    def follow(self, context: WindowContext) -> None:
        """It is in this window from now on."""
        calibrations = calibrations_of(context)
        self._remove = calibrations.remove
        self.set_calibrations(calibrations.saved)
        calibrations.changed.connect(self.set_calibrations)

    def set_calibrations(self, calibrations: Sequence[Calibration]) -> None:
        """What is saved: the menu removes it."""
        self.saved.clear()
        for item in calibrations:
            action = self.saved.addAction(f"Remove '{item.name}'")
            action.setToolTip(factors_text(item.factors))
            action.triggered.connect(partial(self._remove, item.name))
        self.saved_button.setText(f"{count_text(len(calibrations), 'saved calibration')} ▾")
        self.saved_button.setEnabled(bool(calibrations))
        self.saved_button.setToolTip("" if calibrations else NONE_SAVED)

    # the form

    def specs(self) -> tuple[CalibrateSpec, ...]:
        """One. Raises one `BadInput` with everything that is wrong."""
        findings, chosen = self.checked(), self.devices.chosen
        for name in chosen:
            findings.checked(partial(card_of, self._state.devices[name].info))
        if len(chosen) > 1:
            findings.add("cards are calibrated one at a time; choose one")
        seconds = findings.seconds(self.seconds_edit.text().strip())
        findings.demand_none()
        assert seconds is not None
        return (CalibrateSpec(device=chosen[0], seconds=seconds),)

    def describe(self, specs: Sequence[CalibrateSpec]) -> str:
        """How long it takes."""
        card = self._state.devices[specs[0].device].info.name
        return f"{card}, {took(specs[0].seconds)} of measuring"

    # the runs

    def draw(self, run: Run, rows: Sequence[CalibrationRow]) -> None:
        self.table.set_rows([table_row(index, row) for index, row in enumerate(rows)])

    def tell(self, run: Run, rows: Sequence[CalibrationRow]) -> None:
        found, result = combined(rows), run.result
        headline = count_text(len(found), "factor") if found else ""
        warning = f"▲ {result.unusable}" if isinstance(result, CalibrateResult) and result.unusable is not None else ""
        self.summary.say(headline, "", run, warning=warning)


def table_row(index: int, row: CalibrationRow) -> TableRow:
    """A measurement in the table."""
    measured, modelled, factor, between, noise = row_texts(row)
    if row.verified is False:
        values = Cell("✕ wrong", "error")
    elif row.verified:
        values = Cell("correct")
    else:
        values = Cell(MISSING)
    texts = (TITLES.get(row.factor, row.factor), measured, modelled, factor, between, noise)
    return TableRow(index, (Cell(row.text, tip=row.reason or ""), *map(Cell, texts), values))
