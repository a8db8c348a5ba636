"""The Benchmark tab: a page for each kind of benchmark. Main thread.

Bad input is answered here, in one line, before anything is sent; the engine checks again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pkgutil import resolve_name
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent

from devexplorer.core.base import Clock
from devexplorer.core.benchmark.kinds import kind_name
from devexplorer.core.feature import benchmark_kinds
from devexplorer.core.session import State
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.benchmark.base_page import BenchPage
from devexplorer.gui.benchmark.matmul import MatmulPage
from devexplorer.gui.forms.page import FormPages


class BenchmarkPanel(FormPages[BenchPage[Any]]):
    """`start_requested` carries a `tuple[BenchSpec, ...]`; `stop_requested` a run or None (all)."""

    start_requested = Signal(object)
    stop_requested = Signal(object)

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        self._state, self._clock = state, clock
        self._age: Callable[[], str] = str
        self._device: str | None = None
        self._context: WindowContext | None = None
        super().__init__(
            {name: (name.capitalize(), kind.meaning) for name, kind in benchmark_kinds().items()}, self._new_page
        )
        self.refresh()

    def _new_page(self, kind: str) -> BenchPage[Any]:
        page: BenchPage[Any] = resolve_name(benchmark_kinds()[kind].page)(self._state, self._clock)
        page.start_requested.connect(self.start_requested)
        page.stop_requested.connect(self.stop_requested)
        if self._context is not None:
            page.follow(self._context)
        page.devices.prefer(self._device)
        page.set_moment(self._clock, self._age)
        return page

    @property
    def matmul(self) -> MatmulPage:
        """Products of one shape."""
        page = self.pages[MatmulPage.kind]
        assert isinstance(page, MatmulPage)
        return page

    def set_moment(self, clock: Clock, age: Callable[[], str]) -> None:
        """`clock` gives the moment of what is shown; `age` how old that is, where it is not of now."""
        self._clock, self._age = clock, age
        for page in self.pages.values():
            page.set_moment(clock, age)

    def set_device(self, device: str | None) -> None:
        """The card of this device is selected: it is what is measured until the user picks others."""
        self._device = device
        for page in self.pages.values():
            page.devices.prefer(device)

    def follow(self, context: WindowContext) -> None:
        """It is in this window from now on."""
        self._context = context
        for page in self.pages.values():
            page.follow(context)

    def refresh(self) -> None:
        """Show devices and runs as they are now. A page that is not shown is brought up to date when it is."""
        self.matmul.watch()
        self.page.refresh()
        self.rail.mark({kind_name(run.spec) for run in self._state.active_runs})  # the kinds that are measured now

    def prepare(self) -> None:
        """Enter starts what the form says."""
        self.page.start_button.setFocus(Qt.FocusReason.OtherFocusReason)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()
