"""The tab Benchmark, and actions that start and stop benchmarks. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.benchmark.page import BenchmarkPanel


def _connect(context: WindowContext, page: BenchmarkPanel) -> None:
    page.start_requested.connect(context.controller.benchmark)
    page.stop_requested.connect(context.controller.stop_benchmark)
    page.set_moment(context.now, lambda: context.age)
    page.set_device(context.device)
    context.device_selected.connect(page.set_device)
    page.follow(context)


TAB: TabSpec[BenchmarkPanel] = TabSpec(
    "benchmark",
    lazy_page("devexplorer.gui.benchmark.page:BenchmarkPanel", _connect),
    "measure",
    Change.POINTS | Change.DEVICES | Change.RUNS,
    live=True,
    tooltip="Measure matrix products, copies, several devices at once, models",
    order=50,
    also_in=("learn",),
)


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    c = context.controller
    return [
        ActionSpec("benchmark", "Benchmark", "Show the form of the last benchmark; Enter starts it",
                   lambda: TAB.show(context).prepare(), c.why_no_engine, "B"),
        ActionSpec("stop", "Stop benchmark", "Stop after the current block; what was measured is kept",
                   c.stop_benchmark, c.why_no_stop, "Shift+B", asks=Change.RUNS | Change.ENGINE),
    ]  # fmt: skip
