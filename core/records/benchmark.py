"""What to measure and what was measured. Plain frozen records, made on any thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import Record
from devexplorer.core.records.benchmark_parts import BaseResult, Spread
from devexplorer.core.records.calibration import CalibrateResult, CalibrateSpec, CalibrationRow

# --- what to measure


class MatmulSpec(Record, tag="matmul"):
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


class SweepSpec(Record, tag="sweep"):
    """Matrix products of many shapes on one device, one after the other in burst mode."""

    device: str
    dtype: str = "float32"
    shapes: tuple[tuple[int, int, int], ...] = ()
    """(M, N, K) each, in the order in which they are measured. A search adds to them."""
    search_seconds: float | None = None
    """Look for the shape with the highest throughput for so long, starting from `shapes`; None: measure `shapes`, no
    more."""
    shape_seconds: float = 0.2
    """Measured time per shape."""
    done: tuple[SweepCell, ...] = ()
    """What an earlier run has measured already: taken over, not measured again."""


class BandwidthSpec(Record, tag="bandwidth"):
    """Copies between devices, or within one: every pair of `sources` and `destinations` in every size."""

    sources: tuple[str, ...]
    destinations: tuple[str, ...]
    sizes: tuple[int, ...] = (1 << 12, 1 << 16, 1 << 20, 1 << 24, 1 << 28)
    """Bytes per copy."""
    pinned: tuple[bool, ...] = (True, False)
    """Kinds of host memory to measure with; without meaning where the host is not involved."""
    both_ways: bool = False
    """Also copy there and back at the same time."""
    seconds: float = 0.2
    """Measured time per pair, size and kind."""

    @property
    def device(self) -> str:
        """The device that the run is listed under."""
        return next((name for name in (*self.destinations, *self.sources) if name != "cpu"), "cpu")


class ScalingSpec(Record, tag="scaling"):
    """The same job once per device: all at once, and one after the other on the first device."""

    devices: tuple[str, ...]
    dtype: str = "float32"
    size: int = 1000
    """Side of the square matrices."""
    iterations: int = 1000
    """Products per job."""

    @property
    def device(self) -> str:
        """The device that the run is listed under."""
        return self.devices[0]


class ModelSpec(Record, tag="model"):
    """Steps of a model: forward, or forward, backward and optimizer."""

    target: str
    """An object of the workspace, a sample model, or `OpenModel.source`; the user's own code only where the engine may
    run it."""
    device: str
    batch: int = 8
    train: bool = False
    optimizer: str = "sgd"
    """`sgd`, `adam` or `adamw`; only with `train`."""
    autocast: str | None = None
    """`float16` or `bfloat16`; None: as the parameters are."""
    compiled: bool = False
    """Through `torch.compile`."""
    seconds: float = 5.0
    inputs: str = ""
    """Shapes of what forward gets, as `OpenModel.inputs`, each with the batch first; empty: known, or guessed."""


class Rendezvous(msgspec.Struct, frozen=True):
    """Where the ranks of several engines meet, and which of them are this engine's."""

    address: str
    """Of the machine that has rank 0, as the others reach it."""
    port: int
    world_size: int
    """Ranks of all engines together."""
    first_rank: int = 0
    """The lowest rank of this engine; the others follow it."""


class AllReduceSpec(Record, tag="allreduce"):
    """The sum of one tensor of every rank, in every rank: `torch.distributed.all_reduce`, in place, in every size."""

    devices: tuple[str, ...]
    """CUDA devices or virtual GPUs with a rank each, or the CPU alone."""
    ranks: int | None = None
    """Processes on the CPU; None: as many as there are devices."""
    dtype: str = "float32"
    sizes: tuple[int, ...] = tuple(1 << power for power in range(12, 27))
    """Bytes of each rank's tensor."""
    seconds: float = 0.2
    """Measured time per size."""
    iterations: int | None = None
    """Stop a size after so many even when time is left."""
    limit_seconds: float = 60.0
    """For all ranks to meet, and for the slowest of them to answer."""
    rendezvous: Rendezvous | None = None
    """Ranks of other engines take part."""

    @property
    def device(self) -> str:
        """The device that the run is listed under."""
        return self.devices[0] if self.devices else "cpu"

    @property
    def own_ranks(self) -> int:
        """Ranks of this engine."""
        return len(self.devices) if self.ranks is None else self.ranks

    @property
    def world_size(self) -> int:
        """Ranks of all engines together."""
        return self.own_ranks if self.rendezvous is None else self.rendezvous.world_size


BenchSpec = MatmulSpec | SweepSpec | BandwidthSpec | ScalingSpec | ModelSpec | AllReduceSpec | CalibrateSpec


# --- what was measured


class SweepCell(msgspec.Struct, frozen=True, omit_defaults=True):
    """One shape of a sweep."""

    m: int
    n: int
    k: int
    tflops: Spread | None = None
    """None with a reason: it could not be measured."""
    iterations: int = 0
    reason: str | None = None
    verified: bool | None = None
    """Whether its values were compared with a higher precision and agreed; None: not compared."""
    seconds: float | None = None
    """All its iterations together, on the device's clock."""

    @property
    def shape(self) -> tuple[int, int, int]:
        """M, N and K."""
        return self.m, self.n, self.k


class BandwidthRow(Record, omit_defaults=True):
    """One pair, size and kind of copy."""

    source: str
    destination: str
    bytes: int
    pinned: bool | None = None
    """Kind of host memory; None where the host is not involved."""
    both_ways: bool = False
    """There and back at once; the rate is the sum of both."""
    gb_per_s: Spread | None = None
    """Decimal GB/s of data arrived; a copy within one device counts once."""
    seconds: Spread | None = None
    """Of one copy, from the call to its end: its latency where it is small."""
    iterations: int = 0
    verified: bool | None = None
    """Whether what arrived was compared bit by bit and equal; None: not compared."""
    reason: str | None = None
    """Why it was not measured."""
    simulated: bool = False
    measured_seconds: float | None = None
    """All copies of `gb_per_s` together, on the clock that timed them."""


class AllReduceRow(Record, omit_defaults=True):
    """One size of an all-reduce. Bandwidths are those of nccl-tests (doc/PERFORMANCE.md there), decimal GB/s."""

    bytes: int
    """Of each rank's tensor."""
    algorithm_gb_per_s: Spread | None = None
    """Bytes over seconds; None with a reason: not measured, or its values are wrong."""
    bus_gb_per_s: Spread | None = None
    """That times 2·(n-1)/n, which is comparable with the rate of a link; None for one rank, which has no link."""
    operation_seconds: Spread | None = None
    """Of one all-reduce, by blocks; of the slowest rank."""
    iterations: int = 0
    verified: bool | None = None
    """Whether every rank of this engine had the exact sum, before and after it was timed."""
    reason: str | None = None
    simulated: bool = False
    seconds: float | None = None
    """All blocks together."""


class DeviceWall(msgspec.Struct, frozen=True):
    """How long one job took."""

    device: str
    seconds: float


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
    cell: SweepCell | None = None
    """A shape that is finished."""
    row: BandwidthRow | None = None
    """A copy that is finished."""
    reduction: AllReduceRow | None = None
    """A size of an all-reduce that is finished."""
    calibration: CalibrationRow | None = None
    """A measurement of a calibration that is finished."""
    simulated: bool = False


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


class SweepResult(BaseResult, tag="sweep"):
    """A finished (or stopped) sweep."""

    spec: SweepSpec
    cells: tuple[SweepCell, ...]
    """In the order of measurement, those of `spec.done` first."""
    datasheet_tflops: float | None = None


class BandwidthResult(BaseResult, tag="bandwidth"):
    """A finished (or stopped) bandwidth run."""

    spec: BandwidthSpec
    rows: tuple[BandwidthRow, ...]


MOST_SLOWER_ALONE = 1.5
"""A device that takes longer than so many times for a job alone than for one beside others was held up by something
else."""


class ScalingResult(BaseResult, tag="scaling"):
    """A finished (or stopped) scaling run."""

    spec: ScalingSpec
    parallel_seconds: float | None
    """Until the last of the jobs was done, all started at once; None when it was stopped before."""
    sequential_seconds: float | None
    """All jobs one after the other on the first device."""
    walls: tuple[DeviceWall, ...] = ()
    """Each job of the parallel part."""

    @property
    def speedup(self) -> float | None:
        """Sequential over parallel."""
        if self.parallel_seconds is None or self.sequential_seconds is None or self.parallel_seconds <= 0:
            return None
        return self.sequential_seconds / self.parallel_seconds

    @property
    def efficiency(self) -> float | None:
        """Speed-up per device."""
        return None if self.speedup is None else self.speedup / len(self.spec.devices)

    @property
    def unreliable(self) -> str | None:
        """Why the speed-up means nothing, in one sentence: the first device was far slower alone than beside the
        others."""
        own = next((wall.seconds for wall in self.walls if wall.device == self.spec.device), None)
        if self.sequential_seconds is None or not own:
            return None
        slower = self.sequential_seconds / len(self.spec.devices) / own
        if slower <= MOST_SLOWER_ALONE:
            return None
        return (
            f"{self.spec.device} took {slower:.1f} times as long for a job when nothing else ran as beside the others,"
            " so something else held the machine up; measure again when it is quiet."
        )


class ModelResult(BaseResult, tag="model"):
    """A finished (or stopped) run of model steps."""

    spec: ModelSpec
    samples_per_s: Spread
    step_seconds: Spread
    flop_per_step: int | None = None
    """Counted by torch.utils.flop_counter; None where it cannot count."""
    tflops: Spread | None = None
    peak_memory_bytes: int | None = None
    """The most that was allocated on the device during the steps; None where it is not counted."""


class AllReduceResult(BaseResult, tag="allreduce"):
    """A finished (or stopped) all-reduce."""

    spec: AllReduceSpec
    backend: str
    """`nccl` or `gloo`; of virtual GPUs what checked the values."""
    rows: tuple[AllReduceRow, ...]


BenchResult = (
    MatmulResult | SweepResult | BandwidthResult | ScalingResult | ModelResult | AllReduceResult | CalibrateResult
)


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
