"""What every kind of benchmark run has: how the engine drives it, and what its points and results share. On the thread
that runs the benchmark.

A run is driven from outside, one bounded step after the other, so that it can be stopped between any two of them and
CPU runs can share the jobs thread with commands: `prepare()`, then `step()` until it returns None, then `result()`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

import torch

from devexplorer.core.base import Clock
from devexplorer.core.records import BenchPoint, BenchResult, BenchSpec

S = TypeVar("S", bound=BenchSpec)


class Runner(Generic[S]):
    """One run; each kind of benchmark has a subclass."""

    def __init__(self, spec: S, run: int, clock: Clock, *, simulated: bool, on_cpu: bool) -> None:
        """`spec` has been checked; `on_cpu`: whether the CPU computes some of it."""
        self.spec = spec
        self.run = run
        self.simulated = simulated
        self._clock = clock
        self._on_cpu = on_cpu

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Allocate, verify, warm up; ends early when `stopped()`. Raises what the device raises."""

    def step(self) -> BenchPoint | None:
        """Measure one block (50 ms, or one iteration where that is longer); None when there is nothing left to
        measure."""
        raise NotImplementedError

    def result(self, *, stopped: bool, failure: str | None = None) -> BenchResult | None:
        """What was measured so far; None when there is nothing. `failure`: why it ended before its time."""
        raise NotImplementedError

    def _point(self, text: str, **measured: Any) -> BenchPoint:
        """A point of this moment; `text` says what was measured."""
        shared: dict[str, Any] = {
            "run": self.run,
            "device": self.spec.device,
            "time_unix_s": self._clock(),
            "text": text,
            "simulated": self.simulated,
        }
        return BenchPoint(**shared | measured)

    def _shared(self, stopped: bool, failure: str | None) -> dict[str, Any]:
        """The fields that every result has, but for what was measured."""
        return {
            "run": self.run,
            "spec": self.spec,
            "stopped": stopped or failure is not None,
            "failure": failure,
            "simulated": self.simulated,
            "threads": torch.get_num_threads() if self._on_cpu else None,
            "torch_version": str(torch.__version__),  # a subclass of str, which the link does not know
        }
