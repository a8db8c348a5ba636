"""The tab Benchmark. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.benchmark.page import BenchmarkPanel


def _make(context: WindowContext) -> BenchmarkPanel:
    from devexplorer.gui.benchmark.page import BenchmarkPanel

    page = BenchmarkPanel(context.state, context.theme)
    page.start_requested.connect(context.controller.benchmark)
    page.stop_requested.connect(context.controller.stop_benchmark)
    page.virtual_offered.connect(context.controller.add_two_virtual)
    return page


TAB = TabSpec("benchmark", _make, Change.POINTS | Change.DEVICES | Change.RUNS, live=True)
