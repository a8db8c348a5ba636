"""Actions that start and stop benchmarks. Main thread only."""

from __future__ import annotations

from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, WindowContext
from devexplorer.gui.benchmark.tab import TAB


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    c = context.controller
    return [
        ActionSpec("benchmark", "Benchmark", "Show the form of the last benchmark; Enter starts it",
                   lambda: TAB.show(context).prepare(), c.why_no_engine, "B"),
        ActionSpec("stop", "Stop benchmark", "Stop after the current block; what was measured is kept",
                   c.stop_benchmark, c.why_no_stop, "Shift+B", asks=Change.RUNS | Change.ENGINE),
    ]  # fmt: skip
