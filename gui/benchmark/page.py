"""The Benchmark tab: a page for each kind of benchmark. Main thread.

Bad input is answered here, in one line, before anything is sent; the engine checks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, TypeVar

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent
from PySide6.QtWidgets import QStackedLayout, QWidget

from devexplorer.core.benchmark.kinds import KINDS, kind_name
from devexplorer.core.session.state import State
from devexplorer.gui.benchmark.bandwidth import BandwidthPage
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.matmul import MatmulPage
from devexplorer.gui.benchmark.model import ModelPage
from devexplorer.gui.benchmark.scaling import ScalingPage
from devexplorer.gui.benchmark.sweep import SweepPage
from devexplorer.gui.widgets.layouts import hbox
from devexplorer.gui.widgets.side_nav import SideNav
from devexplorer.gui.widgets.theme import Theme

PAGES: list[type[BenchPage[Any]]] = [
    MatmulPage,
    SweepPage,
    BandwidthPage,
    ScalingPage,
    ModelPage,
]
"""The page of every kind, in the order in which they are offered."""

P = TypeVar("P", bound=BenchPage[Any])


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
        self.pages = {page.kind: page(state, theme, clock) for page in PAGES}
        self.matmul = self._page_of(MatmulPage)
        self.sweep = self._page_of(SweepPage)
        self.bandwidth = self._page_of(BandwidthPage)
        self.scaling = self._page_of(ScalingPage)
        self.models = self._page_of(ModelPage)
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

    def _page_of(self, page_class: type[P]) -> P:
        page = self.pages[page_class.kind]
        assert isinstance(page, page_class)
        return page

    def _lay_out(self) -> None:
        self._rail = SideNav({kind: (page.title, KINDS[kind].meaning) for kind, page in self.pages.items()})
        self._rail.chosen.connect(self.show_kind)
        self.choices = self._rail.choices
        self._stack = QStackedLayout()
        hbox(self._rail, (self._stack, 1), spacing=0, parent=self)
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
    def page(self) -> BenchPage[Any]:
        """The page on show."""
        page = self._stack.currentWidget()
        assert isinstance(page, BenchPage)
        return page

    def show_kind(self, kind: str) -> None:
        """Choose `matmul`, `sweep`, …"""
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
        self._rail.mark({kind_name(run.spec) for run in self._state.active_runs})

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
