"""The Benchmark tab: five kinds of benchmark to choose from, one page for each. Main thread.

Bad input is answered here, in one line, before anything is sent; the engine checks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QHBoxLayout, QStackedLayout, QWidget

from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.bandwidth import BandwidthPage
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.matmul import MatmulPage
from devexplorer.gui.benchmark.model import ModelPage
from devexplorer.gui.benchmark.runs import kind_of
from devexplorer.gui.benchmark.scaling import ScalingPage
from devexplorer.gui.benchmark.sweep import SweepPage
from devexplorer.gui.widgets.side_nav import SideNav
from devexplorer.gui.widgets.theme import Theme

MEANINGS = {
    "matmul": "Matrix products of one shape: how fast the device computes",
    "sweep": "Products of many shapes: which are fast, and the search for the fastest",
    "bandwidth": "Copies between and within devices: how fast, how soon, and whether the data arrives right",
    "scaling": "The same job on several devices at once against one after the other",
    "model": "Steps of a model: samples per second",
}


class BenchmarkPanel(QWidget):
    """`start_requested` carries a `tuple[BenchSpec, ...]`; `stop_requested` a run or None (all)."""

    start_requested = Signal(object)
    stop_requested = Signal(object)
    virtual_offered = Signal()
    """The empty state of scaling: add two virtual GPUs."""

    def __init__(
        self, state: State, theme: Theme, parent: QWidget | None = None, clock: Callable[[], float] = time.time
    ) -> None:
        super().__init__(parent)
        self._state = state
        self.matmul = MatmulPage(state, theme, clock)
        self.sweep = SweepPage(state, theme, clock)
        self.bandwidth = BandwidthPage(state, theme, clock)
        self.scaling = ScalingPage(state, theme, clock)
        self.models = ModelPage(state, theme, clock)
        self.pages: dict[str, BenchPage] = {
            page.kind: page for page in (self.matmul, self.sweep, self.bandwidth, self.scaling, self.models)
        }
        self._lay_out()
        for page in self.pages.values():
            page.start_requested.connect(self.start_requested)
            page.stop_requested.connect(self.stop_requested)
            page.virtual_offered.connect(self.virtual_offered)
        # The product of one shape is what the window and the tour start: its fields by their short names.
        self.devices, self.dtype_edit, self.size_edit = (
            self.matmul.devices,
            self.matmul.dtype_edit,
            self.matmul.size_edit,
        )
        self.seconds_edit, self.start_button, self.message = (
            self.matmul.seconds_edit,
            self.matmul.start_button,
            self.matmul.message,
        )
        self.refresh()

    def _lay_out(self) -> None:
        self._rail = SideNav({kind: (page.title, MEANINGS[kind]) for kind, page in self.pages.items()})
        self._rail.chosen.connect(self.show_kind)
        self.choices = self._rail.choices
        self._stack = QStackedLayout()
        layout = QHBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self._rail)
        layout.addLayout(self._stack, 1)
        for page in self.pages.values():
            self._stack.addWidget(page)

    # what the window calls

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        for page in self.pages.values():
            page.set_theme(theme)
        self._mark()

    def refresh(self) -> None:
        """Show devices and runs as they are now. A page that is not on show is brought up to date when it is."""
        self.matmul.watch()
        self.page.refresh()
        self._mark()

    @property
    def page(self) -> BenchPage:
        """The page on show."""
        page = self._stack.currentWidget()
        assert isinstance(page, BenchPage)
        return page

    def show_kind(self, kind: str) -> None:
        """Choose `matmul`, `sweep`, `bandwidth`, `scaling` or `model`."""
        self._rail.choose(kind)
        self._stack.setCurrentWidget(self.pages[kind])
        self.page.refresh()

    def start(self) -> None:
        """Ask for what the form on show says, or say what is wrong with it."""
        self.page.start()

    def stop(self) -> None:
        """Ask to stop what runs of the kind on show."""
        self.page.stop()

    # inside

    def _mark(self) -> None:
        """A dot behind the kinds that are measured now."""
        self._rail.mark({kind_of(run.spec) for run in self._state.active_runs})

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
