"""The Benchmark tab: a page for each kind of benchmark. Main thread.

Bad input is answered here, in one line, before anything is sent; the engine checks again.
"""

from __future__ import annotations

import time
from typing import Any

from PySide6.QtCore import Signal
from PySide6.QtGui import QShowEvent

from devexplorer.core.base import Clock
from devexplorer.core.benchmark.kinds import KINDS, kind_name
from devexplorer.core.session import State
from devexplorer.gui.benchmark.bandwidth import BandwidthPage
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.matmul import MatmulPage
from devexplorer.gui.benchmark.model import ModelPage
from devexplorer.gui.benchmark.scaling import ScalingPage
from devexplorer.gui.benchmark.sweep import SweepPage
from devexplorer.gui.forms.pages import FormPages

PAGES: list[type[BenchPage[Any]]] = [
    MatmulPage,
    SweepPage,
    BandwidthPage,
    ScalingPage,
    ModelPage,
]
"""The page of every kind, in the order in which they are offered."""


class BenchmarkPanel(FormPages[BenchPage[Any]]):
    """`start_requested` carries a `tuple[BenchSpec, ...]`; `stop_requested` a run or None (all)."""

    start_requested = Signal(object)
    stop_requested = Signal(object)
    virtual_offered = Signal()
    """The empty state of scaling: add two virtual GPUs."""

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        self._state, self._clock = state, clock
        self._device: str | None = None
        super().__init__({page.kind: (page.title, KINDS[page.kind].meaning) for page in PAGES}, self._new_page)
        self.refresh()

    def _new_page(self, kind: str) -> BenchPage[Any]:
        page = next(page for page in PAGES if page.kind == kind)(self._state, self._clock)
        page.start_requested.connect(self.start_requested)
        page.stop_requested.connect(self.stop_requested)
        page.virtual_offered.connect(self.virtual_offered)
        page.devices.prefer(self._device)
        return page

    @property
    def matmul(self) -> MatmulPage:
        """Products of one shape."""
        page = self.pages[MatmulPage.kind]
        assert isinstance(page, MatmulPage)
        return page

    def set_device(self, device: str | None) -> None:
        """The card of this device is selected: it is what is measured until the user picks others."""
        self._device = device
        for page in self.pages.values():
            page.devices.prefer(device)

    def refresh(self) -> None:
        """Show devices and runs as they are now. A page that is not on show is brought up to date when it is."""
        self.matmul.watch()
        self.page.refresh()
        self.rail.mark({kind_name(run.spec) for run in self._state.active_runs})  # the kinds that are measured now

    def start(self) -> None:
        """Ask for what the form on show says, or say what is wrong with it."""
        self.page.start()

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
