"""Commands and events of benchmarks, from the start of a run to its result. Plain frozen records; any thread."""

from __future__ import annotations

from devexplorer.core.records.base import BaseCommand, BaseEvent
from devexplorer.core.records.benchmark import BenchResult, BenchSpec


class StartBenchmark(BaseCommand, tag="StartBenchmark", omit_defaults=True):
    """Start a benchmark; its `request` is the run's number."""

    spec: BenchSpec
    waits: bool = False
    """After its warm-up it sends `BenchReady` and waits for `BeginBenchmark`, so that runs of several engines begin at
    one moment."""


class BeginBenchmark(BaseCommand, tag="BeginBenchmark"):
    """Let a run that waits begin at this moment, or at once when that is over."""

    run: int
    at_unix_s: float


class StopBenchmark(BaseCommand, tag="StopBenchmark"):
    """Stop a running benchmark within one block; None: all of them."""

    run: int | None = None


class BenchPreparing(BaseEvent, tag="BenchPreparing"):
    """A run was accepted: operands are being made, and it warms up."""

    run: int
    spec: BenchSpec
    simulated: bool
    datasheet_tflops: float | None = None


class BenchReady(BaseEvent, tag="BenchReady"):
    """Warm-up is over, and the run waits for `BeginBenchmark`."""

    run: int


class BenchStarted(BaseEvent, tag="BenchStarted"):
    """Warm-up is over and the first block begins."""

    run: int
    time_unix_s: float


class BenchEnded(BaseEvent, tag="BenchEnded"):
    """The run's result; None with a reason when nothing was measured."""

    run: int
    time_unix_s: float
    result: BenchResult | None
    reason: str | None = None
