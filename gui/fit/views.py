"""What is shown beside the cards of a plan: one card's memory and helps, its roofline, its curve over the batch, every
card side by side, or published steps. Main thread.

The tabs have no line of their own: the page puts them at the end of the line above the table.
"""

from __future__ import annotations

from collections.abc import Sequence

from PySide6.QtCore import QSize, Qt, Signal
from PySide6.QtWidgets import QStackedWidget, QTabBar

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import Fit, FitReport
from devexplorer.gui.fit.batch_curves import BatchCurves
from devexplorer.gui.fit.details import LEAST_PX, FitDetails
from devexplorer.gui.fit.efficiency import Efficiency
from devexplorer.gui.fit.published import PublishedSteps
from devexplorer.gui.fit.step_figures import step_figures
from devexplorer.gui.fit.step_roofline import StepRoofline

VIEWS = (
    ("Memory", "Parts of the memory, what would help, what the figures rest on"),
    ("Roofline", "The step by class of operation, under the card's memory bandwidth and computing rates"),
    ("Batch", "Time and memory over the batch"),
    ("Efficiency", "Every card side by side: samples per joule and per second"),
    ("Published", "Published steps: prediction against measurement"),
)
MEMORY, ROOFLINE, BATCH, EFFICIENCY, PUBLISHED = range(5)


class FitViews(QStackedWidget):
    """`tabs` chooses the view; `curve_requested`: of the card on show; `step_chosen` carries a published `FitSpec`."""

    curve_requested = Signal()
    step_chosen = Signal(object)
    view_changed = Signal()

    def __init__(self) -> None:
        super().__init__()
        self.tabs = QTabBar(expanding=False, drawBase=False, usesScrollButtons=True)
        self.tabs.setElideMode(Qt.TextElideMode.ElideNone)
        self.tabs.setAccessibleName("What is shown beside the cards")
        self.roofline, self.curves = StepRoofline(), BatchCurves()
        self.efficiency, self.published = Efficiency(), PublishedSteps()
        self.curves.curve_requested.connect(self.curve_requested)
        self.published.step_chosen.connect(self.step_chosen)
        for widget in (self.roofline, self.curves, self.efficiency, self.published):
            self.addWidget(widget)
        for index, (name, meaning) in enumerate(VIEWS):
            self.tabs.addTab(name)
            self.tabs.setTabToolTip(index, meaning)
        self.setMinimumWidth(LEAST_PX)
        self.tabs.currentChanged.connect(self._on_chosen)

    def minimumSizeHint(self) -> QSize:
        """A low page shows less of a view; a view that is not on show asks for no room."""
        return QSize(LEAST_PX, 0)

    def insert_details(self, details: FitDetails) -> None:
        """The first view; the page makes it later than the tabs."""
        self.insertWidget(MEMORY, details)
        self.setCurrentIndex(MEMORY)

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
