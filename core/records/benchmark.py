"""What to measure, what was measured, and the commands and events from the start of a run to its result. Plain
frozen records, made on any thread.

The kernel has one kind of benchmark, matrix products; features add others (`Feature.benchmark`). A field that holds a
specification or a result of any kind is declared as `BenchSpec` or `BenchResult`, and `core.feature` decodes it.
"""

from __future__ import annotations

from abc import ABC
from typing import TYPE_CHECKING, Any

import msgspec

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record


class Spread(msgspec.Struct, frozen=True):
    """Median and the 20th and 80th percentile of one quantity over the iterations (or blocks) of a run."""

    median: float
    p20: float
    p80: float


class BaseSpec(Record):
    """What to measure; every kind of benchmark has its own, and the tag of that is its name."""

    if TYPE_CHECKING:

        @property
        def device(self) -> str:
            """The device that the run is listed under."""


class BaseResult(Record, omit_defaults=True):
    """What every result has."""

    if TYPE_CHECKING:

        @property
        def spec(self) -> BaseSpec:
            """What was asked for."""

    run: int
    stopped: bool
    """True when it was stopped, or ended by an error, before its time; what was measured until then is kept."""
    simulated: bool
    seconds: float
    """Measured time on the device's clock, warm-up left out."""
    iterations: int = 0
    threads: int | None = None
    """CPU only."""
    torch_version: str = ""
    verified: bool | None = None
    """Whether values were compared with a higher precision (or bit by bit) and agreed; None: not compared."""
    failure: str | None = None
    """Why it ended before its time, where it was not the user who stopped it."""


if TYPE_CHECKING:
    BenchSpec = BaseSpec
    BenchResult = BaseResult
else:

    class BenchSpec(ABC):  # noqa: B024 - only to be recognised
        """What to measure, of any kind: `core.feature` decodes what is declared so."""

    class BenchResult(ABC):  # noqa: B024
        """What was measured, the same way."""

    BenchSpec.register(BaseSpec)
    BenchResult.register(BaseResult)


class MatmulSpec(BaseSpec, tag="matmul"):
    """Matrix products: `A (M×K) @ B (K×N)`, `out=` preallocated; `batch` of them at once when that is more than 1."""

    device: str
    dtype: str = "float32"
    """As torch writes it, or `tf32` (float32 tensors, TF32 products)."""
    m: int
    n: int
    k: int
    batch: int = 1
    transpose_a: bool = False
    """A is stored as K×M and read transposed."""
    transpose_b: bool = False
    """B is stored as N×K and read transposed, as the weight of a linear layer is."""
    flush_cache: bool = False
    """Overwrite the device's L2 cache between iterations."""
    mode: str = "live"
    """`live`: blocks until stopped; `burst`: cold L2, iterations timed one by one; `sustained`: one steady window in
    eight parts."""
    seconds: float | None = 10.0
    """How long to measure after warm-up; None: until stopped."""
    iterations: int | None = None
    """Stop after so many iterations even when time is left."""
    block_seconds: float = 0.05
    """Length of one block; a block is at least one iteration."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k

    @property
    def flop(self) -> int:
        """Floating-point operations of one iteration: 2·M·N·K per product (a multiplication and an addition per inner
        element)."""
        return 2 * self.batch * self.m * self.n * self.k


class BenchPoint(Record, omit_defaults=True, tag="bench_point"):
    """One block of a running benchmark. Of the quantities those are set that this benchmark measures."""

    run: int
    device: str
    time_unix_s: float
    """End of the block."""
    tflops: float | None = None
    """From the block's median iteration where iterations are timed one by one, else from its mean."""
    gb_per_s: float | None = None
    samples_per_s: float | None = None
    iterations: int = 0
    seconds: float = 0.0
    """Duration of the block on the device's clock."""
    done: float | None = None
    """0 to 1 where the end is known."""
    text: str = ""
    """What is measured now, in two or three words (`2048×2048×2048`)."""
    part: Any = None
    """A part of the result that is finished, as the kind of benchmark has them (`BenchmarkKind.part`)."""
    simulated: bool = False
    cell: Any = None
    row: Any = None
    reduction: Any = None
    calibration: Any = None
    """As `cell`, `row` and `reduction` what the part is called in recordings of version 0.2 and before."""

    @property
    def finished(self) -> Any:
        """The part that is finished; plain values where it came over a link or from a file."""
        names = (self.part, self.cell, self.row, self.reduction, self.calibration)
        return next((part for part in names if part is not None), None)


class MatmulResult(BaseResult, tag="matmul"):
    """A finished (or stopped) matmul run."""

    spec: MatmulSpec
    tflops: Spread
    blocks: int
    noise: float | None = None
    """Interquartile range over median of the samples: below 0.01 quiet, above 0.05 noisy."""
    parts_tflops: tuple[float, ...] = ()
    """Sustained: the eight parts of the window."""
    drift: float | None = None
    """Sustained: the last part over the first, minus 1."""
    samples_tflops: tuple[float, ...] = ()
    """At most 200 of the samples, evenly chosen, in the order in which they were measured: what comparisons of runs
    rest on."""
    datasheet_tflops: float | None = None


class Conditions(Record, omit_defaults=True):
    """Under which conditions a run was measured: readings of the same span, and what was installed."""

    started_unix_s: float
    ended_unix_s: float
    host: str = ""
    device: str = ""
    device_name: str = ""
    uuid: str | None = None
    simulated: bool = False
    driver_version: str | None = None
    cuda_version: str | None = None
    torch_version: str | None = None
    python_version: str | None = None
    devexplorer_version: str | None = None
    git_revision: str | None = None
    """Of DevExplorer, where it runs from a checkout."""
    threads: int | None = None
    sm_clock_mhz: Spread | None = None
    memory_clock_mhz: Spread | None = None
    power_w: Spread | None = None
    temperature_c: Spread | None = None
    power_cap_w: float | None = None
    throttle_reasons: tuple[str, ...] | None = None
    """All that were seen; None: not known."""
    other_processes: tuple[str, ...] | None = None
    """`name (pid)` of others that used the device; None: not visible from here."""


class StoredRun(Record, omit_defaults=True):
    """One run of the history."""

    id: int
    result: BenchResult
    conditions: Conditions
    tags: tuple[str, ...] = ()
    imported: bool = False
    """Measured elsewhere, read from a file."""


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
