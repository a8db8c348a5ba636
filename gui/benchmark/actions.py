"""Actions that start and stop benchmarks. Main thread only."""

from __future__ import annotations

from devexplorer.gui.actions import ActionSpec, WindowContext
from devexplorer.gui.benchmark.tab import TAB


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    c = context.controller
    return [
        ActionSpec("benchmark", "Benchmark", "Measure matrix products with the settings of the Benchmark tab",
                   lambda: TAB.show(context).start(), c.why_no_engine, "B", "benchmark"),
        ActionSpec("stop", "Stop benchmark", "Stop after the current block; what was measured is kept",
                   c.stop_benchmark, c.why_no_stop, "Shift+B", "stop"),
    ]  # fmt: skip
