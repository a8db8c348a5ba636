"""What every kind of benchmark run looks like to the engine that drives it. No torch, no thread of its own.

A run is driven from outside, one bounded step after the other, so that it can be stopped between any two of them and
CPU runs can share the jobs thread with commands: `prepare()`, then `step()` until it returns None, then `result()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from devexplorer.core.records.benchmark import BenchPoint, BenchResult

STOPPED_EARLY = "stopped before the first figure was complete"
"""Why a run that the user stopped has no result."""


class Runner(Protocol):
    """One run."""

    simulated: bool

    def prepare(self, stopped: Callable[[], bool] = ...) -> None:
        """Allocate, verify, warm up; ends early when `stopped()`. Raises what the device raises."""
        ...

    def step(self) -> BenchPoint | None:
        """Measure one block (50 ms, or one iteration where that is longer); None when there is nothing left to
        measure."""
        ...

    def result(self, *, stopped: bool, failure: str | None = None) -> BenchResult | None:
        """What was measured so far; None when there is nothing. `failure`: why it ended before its time."""
        ...
