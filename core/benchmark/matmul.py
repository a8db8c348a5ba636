"""Matrix products to be measured (operands, kernels, verification), and the run of one shape. Runs on the jobs thread
or a bench thread."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial
from math import ceil, sqrt
from typing import Any, NamedTuple

import numpy as np
import torch

from devexplorer.core.base import Clock, Unavailable, first_line, shape_text
from devexplorer.core.benchmark.spec import BY_COLUMNS, FLUSH_BYTES
from devexplorer.core.benchmark.statistics import LONGEST_BLOCK, Samples, noise, spread, thinned
from devexplorer.core.benchmark.timing import BlockTimer, Operation, Runner, TimedBlock
from devexplorer.core.devices import accelerator
from devexplorer.core.records import BenchPoint, MatmulResult, MatmulSpec
from devexplorer.core.virtual.backend import meta_empty

WINDOW_SECONDS = 2.0
"""Sustained: the steady window."""
PARTS = 8
SETTLE_SECONDS = 30.0
"""Sustained: how long to wait at most for a steady speed, where the run itself has no end."""
STEADY_BLOCKS = 10
STEADY_WITHIN = 0.01
"""Steady: the medians of the first and the second half of the last ten blocks differ by less than this."""


class Live:
    """Blocks of 50 ms, one iteration right after the other, until time or iterations are used up: the curve of the
    window."""

    one_by_one = False

    def __init__(
        self, spec: MatmulSpec, timer: BlockTimer, operation: Operation, each: float, flush: Operation | None = None
    ) -> None:
        """`each`: seconds that one iteration takes about; `flush`: empties the cache."""
        self.spec = spec
        self._timer = timer
        self._operation = operation
        self._flush = flush
        self._each = each
        self._cost = each if flush is None else 0.0
        """Seconds of an iteration and of what happens between two; 0: not known yet."""
        self.samples = Samples[float]()
        self.iterations = 0
        self.blocks = 0
        self.seconds = 0.0
        """Of all iterations."""
        self.spent = 0.0
        """The same, with what happened between them."""

    @property
    def text(self) -> str:
        """What is measured now, in two or three words."""
        return shape_text(self.spec.shape)

    @property
    def done(self) -> float | None:
        """0 to 1; None where the end is not known."""
        shares = []
        if self.spec.seconds is not None:
            shares.append(self.spent / self.spec.seconds)
        if self.spec.iterations is not None:
            shares.append(self.iterations / self.spec.iterations)
        return min(max(shares), 1.0) if shares else None

    def step(self) -> TimedBlock | None:
        """Measure one block; None when nothing is left to measure."""
        length = min(self._length(self.spec.block_seconds), self._left())
        if length < 1 or (self.spec.seconds is not None and self.spent >= self.spec.seconds):
            return None
        return self._take(self._measure(length))

    def _left(self) -> int:
        """Iterations that the run may still have."""
        return LONGEST_BLOCK if self.spec.iterations is None else self.spec.iterations - self.iterations

    def _length(self, seconds: float) -> int:
        """Iterations that fill so many seconds at the latest speed."""
        if self._cost > 0:
            return min(max(int(seconds / self._cost), 1), LONGEST_BLOCK)
        return (
            LONGEST_BLOCK if self._flush is None else 1
        )  # too fast for the clock; or the first flush, which can take longest of all

    def _measure(self, iterations: int) -> TimedBlock:
        if self.one_by_one or self._flush is not None:
            block = self._timer.singly(self._operation, iterations, self._each, self._flush)
        else:
            block = self._timer.block(self._operation, iterations)
        self._each = block.seconds / block.iterations
        self._cost = block.spent / block.iterations
        return block

    def _take(self, block: TimedBlock) -> TimedBlock:
        self.samples.add(block.samples)
        self.iterations += block.iterations
        self.blocks += 1
        self.seconds += block.seconds
        self.spent += block.spent
        return block

    def parts_tflops(self) -> tuple[float, ...]:
        """Sustained has eight."""
        return ()

    def drift(self) -> float | None:
        """The last part over the first, minus 1; None without all of them."""
        parts = self.parts_tflops()
        return parts[-1] / parts[0] - 1 if len(parts) == PARTS else None


class Burst(Live):
    """Each iteration is timed alone, on a cold cache where there is one to empty: what one product takes in the middle
    of other work."""

    one_by_one = True


class Sustained(Live):
    """A steady window of 2 s in eight parts, once the speed has settled: what a card keeps up.

    `spec.seconds` bounds settling and window together; of less than 2 s the window takes all. What was measured while
    it settled is only given when it was stopped before the window began.
    """

    def __init__(
        self, spec: MatmulSpec, timer: BlockTimer, operation: Operation, each: float, flush: Operation | None = None
    ) -> None:
        super().__init__(spec, timer, operation, each, flush)
        self._window = WINDOW_SECONDS if spec.seconds is None else min(WINDOW_SECONDS, spec.seconds)
        self._settle = SETTLE_SECONDS if spec.seconds is None else spec.seconds - self._window
        self._latest: deque[float] = deque(maxlen=STEADY_BLOCKS)
        self._parts: list[float] = []
        self._part: list[TimedBlock] = []
        self._settling = self._settle > 0
        self._settled = 0.0
        """Seconds that settling took."""

    @property
    def text(self) -> str:
        """`settling`, or the part."""
        return "settling" if self._settling else f"part {min(len(self._parts) + 1, PARTS)} of {PARTS}"

    @property
    def done(self) -> float | None:
        """Of settling and window together, so that the remaining time follows from the elapsed time; unknown while it
        settles."""
        if self._settling:
            return None
        share = min((len(self._parts) + self._in_part() / (self._window / PARTS)) / PARTS, 1.0)
        return (self._settled + share * self._window) / (self._settled + self._window)

    def step(self) -> TimedBlock | None:
        """See `Live`."""
        if self._settling:
            block = self._take(self._measure(self._length(self.spec.block_seconds)))
            self._latest.append(float(np.median(block.samples)))
            if self._steady() or self.spent >= self._settle:
                self._begin()
            return block
        length = min(self._length(min(self.spec.block_seconds, self._window / PARTS - self._in_part())), self._left())
        if len(self._parts) == PARTS or length < 1:
            return None
        block = self._take(self._measure(length))
        self._part.append(block)
        if self._in_part() >= self._window / PARTS * (1 - 1e-9):
            seconds = sum(part.seconds for part in self._part)
            self._parts.append(self.spec.flop * sum(part.iterations for part in self._part) / seconds / 1e12)
            self._part = []
        return block

    def _in_part(self) -> float:
        return sum(block.spent for block in self._part)

    def _steady(self) -> bool:
        if len(self._latest) < STEADY_BLOCKS:
            return False
        first, second = np.split(np.array(self._latest), 2)
        return bool(abs(np.median(second) / np.median(first) - 1) < STEADY_WITHIN)

    def _begin(self) -> None:
        """From here on it counts."""
        self._settling, self._settled = False, self.spent
        self.samples = Samples[float]()
        self.iterations = self.blocks = 0
        self.seconds = self.spent = 0.0

    def parts_tflops(self) -> tuple[float, ...]:
        """Those that are finished: mean TFLOP/s of an eighth of the window each."""
        return tuple(self._parts)


MODES = {"live": Live, "burst": Burst, "sustained": Sustained}


def warm_up(
    timer: BlockTimer,
    operation: Operation,
    seconds: float,
    block_seconds: float,
    stopped: Callable[[], bool] = lambda: False,
) -> float:
    """Run for so many seconds, one iteration at least unless `stopped()`; returns about how long one iteration
    takes."""
    spent, each, iterations = 0.0, 0.0, 1
    while spent < seconds and not stopped():
        block = timer.block(operation, iterations)
        spent += block.seconds
        each = block.seconds / block.iterations
        iterations = min(max(ceil(min(block_seconds, seconds) / each), 1), LONGEST_BLOCK) if each > 0 else LONGEST_BLOCK
    return each


WARM_UP_SECONDS = 0.2
SMALL = (48, 32, 64)
"""Shape (M, N, K) of the one product that is verified where the operands have no values; multiples of 16, as float8 and
int8 ask."""
COMPARED = 16
"""Rows and columns of a product that are computed again in a higher precision: 256 of its values."""

MakeTensor = Callable[[Sequence[int], torch.dtype, str], torch.Tensor]
"""Called with a shape, a dtype and a device."""
Empty = Callable[..., torch.Tensor]
"""Called with a shape and `dtype=`."""


class MeasuredProduct(NamedTuple):
    """What is measured, and the question whether it is right."""

    operation: Operation
    verify: Callable[[], bool]


def torch_dtype(name: str) -> torch.dtype:
    """The torch dtype of a canonical name; `tf32` has float32's storage."""
    dtype = getattr(torch, "float32" if name == "tf32" else name)
    assert isinstance(dtype, torch.dtype)
    return dtype


def operands(
    m: int,
    n: int,
    k: int,
    dtype: str,
    device: str,
    *,
    batch: int = 1,
    transpose_a: bool = False,
    transpose_b: bool = False,
    make: MakeTensor | None = None,
) -> tuple[torch.Tensor, torch.Tensor]:
    """A (M×K) and B (K×N) on the device, with a batch in front where that is more than 1; with random values unless
    `make` says otherwise.

    What is transposed is stored the other way round and read through a view. B of an 8-bit product always is, as its
    kernel asks.
    """
    front = (batch,) if batch > 1 else ()
    make = make or random_tensor

    def stored(rows: int, columns: int, transposed: bool) -> torch.Tensor:
        shape = (*front, columns, rows) if transposed else (*front, rows, columns)
        tensor = make(shape, torch_dtype(dtype), device)
        return tensor.mT if transposed else tensor

    return stored(m, k, transpose_a), stored(k, n, transpose_b or dtype in BY_COLUMNS)


def random_tensor(shape: Sequence[int], dtype: torch.dtype, device: str) -> torch.Tensor:
    """Values uniform within ±1, integers within ±8."""
    if not dtype.is_floating_point:
        # in the dtype itself: int64 first would take eight times the memory of int8
        return torch.randint(-8, 8, shape, device=device, dtype=dtype)
    generated = torch.float16 if dtype.itemsize == 1 else dtype  # there is no generator for float8
    return torch.rand(shape, device=device, dtype=generated).mul_(2).sub_(1).to(dtype)


def product(a: torch.Tensor, b: torch.Tensor, dtype: str, empty: Empty | None = None) -> tuple[Operation, torch.Tensor]:
    """Return a callable that computes `a @ b`, into one tensor where the kernel takes `out=`, and the first result.

    `empty(shape, dtype)` makes the output (and the scales of float8); by default on the device of `a`.
    Raises `Unavailable` with the reason where this device and torch have no such product.
    """
    make = empty or partial(torch.empty, device=a.device)
    shape = (*a.shape[:-1], b.shape[-1])
    multiply = torch.bmm if a.dim() == 3 else torch.mm
    try:
        if dtype == "int8" and a.dim() == 2:
            out = make(shape, dtype=torch.int32)
            torch._int_mm(a, b, out=out)
            return lambda: torch._int_mm(a, b, out=out), out
        if dtype.startswith("float8"):
            scale = make((), dtype=torch.float32).fill_(1.0)
            out = _scaled(a, b, scale)  # `out=` has no meta kernel; the allocator's cache serves it
            return lambda: _scaled(a, b, scale), out
        out = make(shape, dtype=a.dtype)
        multiply(a, b, out=out)
    except (RuntimeError, NotImplementedError, ValueError) as error:
        if accelerator.is_out_of_memory(error) or accelerator.failed(error):  # the device's state, not what it can do
            raise
        reason = first_line(error)
        raise Unavailable(f"{a.device} with torch {torch.__version__} has no {dtype} product: {reason}") from error
    return lambda: multiply(a, b, out=out), out


@contextmanager
def tf32_products() -> Iterator[None]:
    """Let float32 products on CUDA (and on virtual GPUs) use TF32 meanwhile. A setting of the whole process: enter it
    once."""
    settings: Any = torch.backends.cuda.matmul
    newer = hasattr(settings, "fp32_precision")  # since torch 2.9
    name, on = ("fp32_precision", "tf32") if newer else ("allow_tf32", True)
    before = getattr(settings, name)
    setattr(settings, name, on)
    try:
        yield
    finally:
        setattr(settings, name, before)


def _scaled(a: torch.Tensor, b: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
    """A float8 product; torch 2.4 returns the largest value with it."""
    out: Any = torch._scaled_mm(a, b, scale_a=scale, scale_b=scale, out_dtype=torch.bfloat16)
    return out if isinstance(out, torch.Tensor) else out[0]


def matches(a: torch.Tensor, b: torch.Tensor, out: torch.Tensor, dtype: str) -> bool:
    """Whether `out` is `a @ b`: 16 rows and columns of it (the first, the last, evenly between) against float64 on the
    CPU.

    Integers must be equal (in their own dtype, so with its wrap-around). Floating point: the largest error is at most
    `4·eps(out) + √K·eps(sum)` of the largest value, where sums of narrow types are kept in float32: rounding errors of
    random signs grow with the root of K (Higham, Accuracy and Stability of Numerical Algorithms, 2.8); a wrong layout
    or a missing piece is far beyond.
    """
    if a.dim() == 3:  # one of the batch
        a, b, out = a[-1], b[-1], out[-1]
    rows, columns = (np.unique(np.linspace(0, count - 1, COMPARED).round().astype(int)).tolist() for count in out.shape)
    exact = torch.float64 if out.dtype.is_floating_point else torch.int64
    left = torch.stack([a[row].cpu().to(exact) for row in rows])
    right = torch.stack([b[:, column].cpu().to(exact) for column in columns], dim=1)
    got = torch.stack([out[row].cpu()[columns] for row in rows])
    expected = left @ right
    if exact is torch.int64:
        return bool(torch.equal(got, expected.to(out.dtype)))
    eps_out = 2.0**-10 if dtype == "tf32" else torch.finfo(out.dtype).eps
    eps_sum = min(torch.finfo(out.dtype).eps, torch.finfo(torch.float32).eps)
    bound = 4 * eps_out + sqrt(a.shape[1]) * eps_sum
    return bool((got.to(exact) - expected).abs().max() <= bound * expected.abs().max())


def agrees(dtype: str, device: str) -> bool:
    """Whether one small product on the device is right."""
    a, b = operands(*SMALL, dtype, device)
    return matches(a, b, product(a, b, dtype)[1], dtype)


def product_maker(*, simulated: bool) -> Callable[[MatmulSpec], MeasuredProduct]:
    """Makes products on a virtual GPU, or on a real device."""
    return virtual_product if simulated else real_product


def _operands_of(spec: MatmulSpec, make: MakeTensor) -> tuple[torch.Tensor, torch.Tensor]:
    layout = {"batch": spec.batch, "transpose_a": spec.transpose_a, "transpose_b": spec.transpose_b}
    # an int and two bools
    return operands(*spec.shape, spec.dtype, spec.device, make=make, **layout)  # type: ignore[arg-type]


def real_product(spec: MatmulSpec) -> MeasuredProduct:
    """Operands with values; what is verified is the very product that is measured. Raises what the device raises."""
    a, b = _operands_of(spec, random_tensor)
    operation, out = product(a, b, spec.dtype)
    return MeasuredProduct(operation, partial(matches, a, b, out, spec.dtype))


def virtual_product(spec: MatmulSpec) -> MeasuredProduct:
    """Operands without values: their memory is counted, each product pays its cost, and the CPU computes nothing.

    What is verified is a small product of the same dtype on the same device, with values.
    """
    a, b = _operands_of(spec, meta_empty)
    operation, _ = product(a, b, spec.dtype, partial(meta_empty, device=spec.device))
    return MeasuredProduct(operation, partial(agrees, spec.dtype, spec.device))


def cache_flush(device: str) -> Operation:
    """Make the buffer; returns what overwrites it, and with it the cache."""
    buffer = torch.empty(FLUSH_BYTES // 4, dtype=torch.int32, device=device)
    return buffer.zero_


class MatmulRun(Runner[MatmulSpec]):
    """The run of one shape. A `tf32` run is driven inside `tf32_products()`.

    `tflops` of a point comes from the block's median sample; the run's median, p20 and p80 are over all samples
    (iterations where the device times them one by one, groups of them or blocks elsewhere).
    """

    def __init__(
        self,
        spec: MatmulSpec,
        run: int,
        timer: BlockTimer,
        *,
        make: Callable[[MatmulSpec], MeasuredProduct] = real_product,
        flush: Callable[[str], Operation] | None = None,
        datasheet_tflops: float | None = None,
        clock: Clock = time.time,
    ) -> None:
        """`make` gives the product; `flush`, called with the device, what empties its cache between iterations."""
        super().__init__(spec, run, clock, simulated=timer.simulated, on_cpu=spec.device == "cpu")
        self._datasheet_tflops = datasheet_tflops
        self._timer = timer
        self._make = make
        self._flush = flush
        self._verified: bool | None = None
        self._mode: Live | None = None

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Allocate the operands, verify a product, warm up for 0.2 s (or one iteration, where that is longer).

        Ends early when `stopped()`, which is asked between products (one can take a minute: 2048 in float16 on a CPU).
        """
        made = self._make(self.spec)
        self._verified = made.verify()
        each = warm_up(self._timer, made.operation, WARM_UP_SECONDS, self.spec.block_seconds, stopped)
        flush = None if self._flush is None else self._flush(self.spec.device)
        self._mode = MODES[self.spec.mode](self.spec, self._timer, made.operation, each, flush)

    def step(self) -> BenchPoint | None:
        """Run and time one block; None when the run has had its seconds or iterations."""
        assert self._mode is not None, "call prepare() first"
        text = self._mode.text
        block = self._mode.step()
        if block is None:
            return None
        tflops = self.spec.flop / float(np.median(block.samples)) / 1e12
        return self._point(
            text, tflops=tflops, iterations=block.iterations, seconds=block.seconds, done=self._mode.done
        )

    def result(self, *, stopped: bool, failure: str | None = None) -> MatmulResult | None:
        """The figures of all blocks so far; None when there was not one."""
        mode = self._mode
        if mode is None or not mode.samples.kept:
            return None
        rates = [self.spec.flop / seconds / 1e12 for seconds in mode.samples.kept]
        return MatmulResult(
            tflops=spread(rates),
            noise=noise(rates),
            samples_tflops=thinned(rates),
            parts_tflops=mode.parts_tflops(),
            drift=mode.drift(),
            iterations=mode.iterations,
            blocks=mode.blocks,
            seconds=mode.seconds,
            verified=self._verified,
            datasheet_tflops=self._datasheet_tflops,
            **self._shared(stopped, failure),
        )
