"""One matmul benchmark run: operands, verification, warm-up, blocks, result. Runs on the jobs thread (CPU) or on a bench thread."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import numpy as np
import torch

from devexplorer.core.benchmark.timing import Block, BlockTimer, Operation
from devexplorer.core.errors import Unavailable
from devexplorer.core.records.benchmark import BenchPoint, MatmulResult, MatmulSpec, Spread

WARM_UP_SECONDS = 0.2
MOST_SAMPLES = 200_000
"""Kept for the percentiles."""
LONGEST_BLOCK = 10_000
"""Iterations; keeps the list of events of a block of tiny products small."""
SMALL = (48, 32, 64)
"""Shape (M, N, K) of the one product that is verified; multiples of 16, as the float8 and int8 kernels ask."""

Empty = Callable[..., torch.Tensor]
"""Called with a shape and `dtype=`."""


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a canonical name; `tf32` has float32's storage."""
    dtype = getattr(torch, "float32" if name == "tf32" else name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def operands(m: int, n: int, k: int, dtype: str, device: str) -> tuple[torch.Tensor, torch.Tensor]:
    """Random A (M×K) and B (K×N) on the device; values within ±1, integers within ±8."""
    kind = torch_dtype(dtype)
    if not kind.is_floating_point and not kind.is_complex:
        # in the dtype itself: int64 first would take eight times the memory of int8
        return tuple(torch.randint(-8, 8, shape, device=device, dtype=kind) for shape in ((m, k), (k, n)))  # type: ignore[return-value]
    if kind.itemsize == 1:  # float8: made in float32 and cast; B column-major, as the kernel asks
        a = torch.rand(m, k, device=device).mul_(2).sub_(1).to(kind)
        return a, torch.rand(n, k, device=device).mul_(2).sub_(1).to(kind).t()
    return tuple(torch.rand(shape, device=device, dtype=kind).mul_(2).sub_(1) for shape in ((m, k), (k, n)))  # type: ignore[return-value]


def product(a: torch.Tensor, b: torch.Tensor, dtype: str, empty: Empty | None = None) -> tuple[Operation, torch.Tensor]:
    """Return a callable that computes `a @ b`, into one tensor where the kernel takes `out=`, and the first result.

    `empty(shape, dtype)` makes the output (and the scales of float8); by default on the device of `a`.
    Raises `Unavailable` with the reason where this device and torch have no such product.
    """
    make = empty or partial(torch.empty, device=a.device)
    shape = (a.shape[0], b.shape[1])
    try:
        if dtype == "int8":
            out = make(shape, dtype=torch.int32)
            torch._int_mm(a, b, out=out)
            return lambda: torch._int_mm(a, b, out=out), out
        if dtype.startswith("float8"):
            one = make((), dtype=torch.float32).fill_(1.0)
            out = torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16)  # `out=` has no meta kernel; the allocator's cache serves it
            return lambda: torch._scaled_mm(a, b, one, one, out_dtype=torch.bfloat16), out
        out = make(shape, dtype=a.dtype)
        torch.mm(a, b, out=out)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        if isinstance(error, torch.OutOfMemoryError):
            raise
        first_line = str(error).strip().splitlines()[0]
        raise Unavailable(f"{a.device} with torch {torch.__version__} has no {dtype} product: {first_line}") from error
    return lambda: torch.mm(a, b, out=out), out


@contextmanager
def tf32_products() -> Iterator[None]:
    """Let float32 products on CUDA (and on virtual GPUs) use TF32 meanwhile. A setting of the whole process: enter it once."""
    before = torch.backends.cuda.matmul.fp32_precision
    torch.backends.cuda.matmul.fp32_precision = "tf32"
    try:
        yield
    finally:
        torch.backends.cuda.matmul.fp32_precision = before


def agrees(dtype: str, device: str) -> bool:
    """Whether one small product on the device agrees with float64 on the CPU, within the dtype's rounding.

    The bound is 4·K·eps·max|A|·max|B| for sums in the dtype itself (Higham, Accuracy and Stability of Numerical Algorithms, 3.5).
    """
    a, b = operands(*SMALL, dtype, device)
    _, out = product(a, b, dtype)
    expected = a.cpu().to(torch.float64) @ b.cpu().to(torch.float64)
    if not out.dtype.is_floating_point:
        return bool(torch.equal(out.cpu().to(torch.float64), expected))
    eps = 2.0**-10 if dtype == "tf32" else torch.finfo(out.dtype).eps
    return bool((out.cpu().to(torch.float64) - expected).abs().max() <= 4 * SMALL[2] * eps)


class MatmulRun:
    """One run, driven from outside: `prepare()`, then `step()` until it returns None (or you have enough), then `result()`.

    A `tf32` run is driven inside `tf32_products()`.

    `tflops` of a point comes from the block's median sample; the run's median, p20 and p80 are over all samples
    (iterations where the device times them one by one, blocks elsewhere).
    """

    def __init__(
        self,
        spec: MatmulSpec,
        run: int,
        timer: BlockTimer,
        *,
        prepare: Callable[[MatmulSpec], Operation] | None = None,
        datasheet_tflops: float | None = None,
        clock: Callable[[], float] = time.time,
    ) -> None:
        self.spec = spec
        self.run = run
        self.datasheet_tflops = datasheet_tflops
        self.simulated = timer.simulated
        self._timer = timer
        self._prepare = prepare or self._real_operands
        self._clock = clock
        self._operation: Operation | None = None
        self._verified: bool | None = None
        self._samples: list[float] = []
        self._stride = 1
        self._each = 0.0
        self._iterations = 0
        self._blocks = 0
        self._seconds = 0.0

    def _real_operands(self, spec: MatmulSpec) -> Operation:
        a, b = operands(spec.m, spec.n, spec.k, spec.dtype, spec.device)
        return product(a, b, spec.dtype)[0]

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Verify a small product, allocate the operands, warm up for 0.2 s (or one iteration, where that is longer).

        Ends early when `stopped()`, which is asked between products (one can take a minute: 2048 in float16 on a CPU).
        """
        self._verified = agrees(self.spec.dtype, self.spec.device)
        self._operation = self._prepare(self.spec)
        spent, iterations = 0.0, 1
        while spent < WARM_UP_SECONDS and not stopped():
            block = self._block(iterations)
            spent += block.seconds
            self._each = block.seconds / block.iterations
            iterations = self._block_length()

    def _block(self, iterations: int) -> Block:
        assert self._operation is not None, "call prepare() first"
        return self._timer.block(self._operation, iterations)

    def _block_length(self) -> int:
        """Iterations that fill a block at the latest speed."""
        length = int(self.spec.block_seconds / self._each) if self._each > 0 else LONGEST_BLOCK
        return min(max(length, 1), LONGEST_BLOCK)

    def step(self) -> BenchPoint | None:
        """Run and time one block; None when the run has had its seconds or iterations."""
        length = self._block_length()
        if self.spec.iterations is not None:
            length = min(length, self.spec.iterations - self._iterations)
        if length < 1 or (self.spec.seconds is not None and self._seconds >= self.spec.seconds):
            return None
        block = self._block(length)
        self._each = block.seconds / block.iterations
        self._keep(block.samples)
        self._iterations += block.iterations
        self._blocks += 1
        self._seconds += block.seconds
        return BenchPoint(
            run=self.run,
            device=self.spec.device,
            time_unix_s=self._clock(),
            tflops=self._tflops(float(np.median(block.samples))),
            iterations=block.iterations,
            seconds=block.seconds,
            simulated=self.simulated,
        )

    def _keep(self, samples: tuple[float, ...]) -> None:
        """Remember samples; when there are too many, every second one, then every fourth, …: a run until stopped has no end."""
        self._samples.extend(samples[:: self._stride])
        if len(self._samples) > MOST_SAMPLES:
            del self._samples[1::2]
            self._stride *= 2

    def _tflops(self, seconds: float) -> float:
        return self.spec.flop / seconds / 1e12

    def result(self, *, stopped: bool) -> MatmulResult | None:
        """The figures of all blocks so far; None when there was not one."""
        if not self._samples:
            return None
        slow, median, fast = np.percentile(self._samples, (80, 50, 20))
        return MatmulResult(
            run=self.run,
            spec=self.spec,
            tflops=Spread(median=self._tflops(float(median)), p20=self._tflops(float(slow)), p80=self._tflops(float(fast))),
            iterations=self._iterations,
            blocks=self._blocks,
            seconds=self._seconds,
            stopped=stopped,
            simulated=self.simulated,
            threads=torch.get_num_threads() if self.spec.device == "cpu" else None,
            torch_version=str(torch.__version__),  # a subclass of str, which the link does not know
            verified=self._verified,
            datasheet_tflops=self.datasheet_tflops,
        )
