"""What to measure and what was measured. Plain frozen records, made on any thread."""

from __future__ import annotations

import msgspec


class BenchSpec(msgspec.Struct, frozen=True, kw_only=True):
    """A matmul benchmark to run: `A (M×K) @ B (K×N)`, `out=` preallocated."""

    device: str
    dtype: str = "float32"
    """As torch writes it, or `tf32` (float32 tensors, TF32 products)."""
    m: int
    n: int
    k: int
    mode: str = "live"
    seconds: float | None = 10.0
    """How long to measure after warm-up; None: until stopped."""
    iterations: int | None = None
    """Stop after so many iterations even when time is left."""
    block_seconds: float = 0.05
    """Length of one block; a block is at least one iteration."""

    @property
    def flop(self) -> int:
        """Floating-point operations of one iteration: 2·M·N·K (a multiplication and an addition per inner element)."""
        return 2 * self.m * self.n * self.k


class BenchPoint(msgspec.Struct, frozen=True, kw_only=True, tag="bench_point"):
    """One block of a running benchmark."""

    run: int
    device: str
    time_unix_s: float
    """End of the block."""
    tflops: float
    """From the block's median iteration where iterations are timed one by one, else from its mean."""
    iterations: int
    seconds: float
    """Duration of the block on the device's clock."""
    simulated: bool = False


class Spread(msgspec.Struct, frozen=True):
    """Median and the 20th and 80th percentile of one quantity over the iterations (or blocks) of a run."""

    median: float
    p20: float
    p80: float


class BenchResult(msgspec.Struct, frozen=True, kw_only=True):
    """A finished (or stopped) run."""

    run: int
    spec: BenchSpec
    tflops: Spread
    iterations: int
    blocks: int
    seconds: float
    """Measured time on the device's clock, warm-up left out."""
    stopped: bool
    """True when it was stopped before its time; what was measured until then is kept."""
    simulated: bool
    threads: int | None = None
    """CPU only."""
    torch_version: str = ""
    verified: bool | None = None
    """Whether one product was compared with a higher precision and agreed; None when not compared."""
    datasheet_tflops: float | None = None
