"""The run of a calibration: one measurement after the other, each factor from those before it. Runs on the thread that
runs the benchmark, and starts none.

Kernels are timed one by one behind work that keeps the card busy while the host launches them, on a cold cache; on a
virtual GPU by its simulated clock, where one iteration is enough. Only the host's own time is read off a stream of tiny
operations that nothing keeps waiting.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import nullcontext
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from devexplorer.core.bandwidth.run import Case, Copier
from devexplorer.core.base import Clock, Unavailable, item_bytes, product_dtype, shape_text
from devexplorer.core.benchmark import matmul
from devexplorer.core.benchmark.matmul import (
    MeasuredProduct,
    product_maker,
    random_tensor,
    tf32_products,
    torch_dtype,
    warm_up,
)
from devexplorer.core.benchmark.statistics import BLOCK_SECONDS, Samples, block_length, noise, spread
from devexplorer.core.benchmark.timing import BlockTimer, Operation, Runner, TimedBlock
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.calibrate.kind import (
    CalibrateResult,
    CalibrateSpec,
    CalibrationRow,
    combined,
    compute_factors,
    host_factors,
    kernel_factors,
    link_factors,
    memory_factors,
)
from devexplorer.core.records import BenchPoint, MatmulSpec
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.cost import (
    CONVOLUTION,
    EIGHT_BIT_PRODUCTS,
    HOST,
    KERNEL,
    LINK,
    HostCall,
    Kind,
    Roofline,
    Work,
    overlapped,
    transfer_seconds,
    unit_of,
)
from devexplorer.core.virtual.device.cost import EIGHT_BIT as EIGHT_BIT_DTYPES
from devexplorer.core.virtual.device.cost import Product as ProductShape

# The kernels of a calibration: what runs, whether its values are right, and the work that the cost model sees in it.

PRODUCTS = ("float32", "tf32", "float16", "bfloat16", "float8_e4m3fn")
"""dtypes that have a factor, if the card has them. `torch._int_mm` has other kernels than the model's 8-bit products
were fitted to."""
LONG_SECONDS = 0.02
"""A product whose larger size takes longer is measured in the smaller one."""
SHORT_SECONDS = 0.002
"""A convolution that takes less gets more images."""
CHANNELS, PIXELS, WINDOW = 256, 28, 3
SMALL_IMAGES = (2, 32, 8)
"""Images, channels and pixels of the convolution that is verified where the measured one has no values."""
CORNER = 4
"""Pixels of a side of the part of an image that is convolved again in float64."""


class Sizes(NamedTuple):
    """How large the kernels are: out of every cache, and long beside a launch."""

    elements: int = 64 << 20
    """Of each of the three float32 tensors that measure memory."""
    tiny: int = 256
    sides: tuple[int, int] = (4096, 8192)
    """Of square products."""
    images: tuple[int, int] = (32, 256)
    """Of a convolution, at least and at most."""
    channels: int = CHANNELS
    copied: int = 64 << 20
    """Bytes of a copy over the host link."""


SIZES = Sizes()


class KernelProbe(NamedTuple):
    """One kernel."""

    factor: str
    text: str
    work: Work
    """As the cost model sees it."""
    make: Callable[[], MeasuredProduct]
    """Allocates; returns what runs, and the question whether it is right."""
    tf32: bool = False
    """A float32 product that runs in TF32."""


def addition(device: str, elements: int, *, simulated: bool) -> KernelProbe:
    """The sum of two float32 tensors into a third: memory alone, each tensor once."""

    def make() -> MeasuredProduct:
        tensor = meta_empty if simulated else random_tensor
        a, b, out = (tensor((elements,), torch.float32, device) for _ in range(3))

        def verify() -> bool:
            """At most 256 elements, compared with the CPU's."""
            x, y, result = a, b, out
            if simulated:
                x, y, result = (random_tensor((64,), torch.float32, device) for _ in range(3))
            torch.add(x, y, out=result)
            every = max(len(x) // 256, 1)
            return bool(torch.equal(x[::every].cpu() + y[::every].cpu(), result[::every].cpu()))

        return MeasuredProduct(lambda: torch.add(a, b, out=out), verify)

    work = Work(Kind.ELEMENTWISE, 0, 12 * elements)
    return KernelProbe("memory", f"elementwise float32, {elements:,} elements", work, make)


def products(device: str, card: Profile, roofline: Roofline, sizes: Sizes, *, simulated: bool) -> Iterator[KernelProbe]:
    """Square products in every dtype that the card has a unit for."""
    for dtype in PRODUCTS:
        unit, _ = unit_of(dtype, card)
        if dtype != "float32" and (dtype not in card.tflops or unit == "vector"):
            continue
        side = sizes.sides[1]
        if roofline.seconds(product_work(side, dtype)) > LONG_SECONDS:
            side = sizes.sides[0]
        spec = MatmulSpec(device=device, dtype=dtype, m=side, n=side, k=side)
        factor = EIGHT_BIT_PRODUCTS if dtype in EIGHT_BIT_DTYPES else unit
        yield KernelProbe(
            factor,
            f"{dtype} product, {shape_text(spec.shape)}",
            product_work(side, dtype),
            partial(product_maker(simulated=simulated), spec),
            tf32=dtype == "tf32",
        )


def product_work(side: int, dtype: str) -> Work:
    """A square product."""
    size, out = item_bytes(dtype), item_bytes(product_dtype(dtype))
    return Work(Kind.PRODUCT, 2 * side**3, (2 * size + out) * side**2, dtype, ProductShape(side, side, side))


def convolutions(
    device: str, card: Profile, roofline: Roofline, sizes: Sizes, *, simulated: bool
) -> Iterator[KernelProbe]:
    """3×3 convolutions in `channels_last`, in float32 as PyTorch's settings have it and in float16."""
    for dtype in ("tf32" if _convolves_in_tf32() else "float32", "float16"):
        unit, _ = unit_of(dtype, card)
        if dtype == "float16" and unit == "vector":
            continue
        images, most = sizes.images
        while images < most and roofline.seconds(convolution_work(images, sizes.channels, dtype)) < SHORT_SECONDS:
            images *= 2
        name = "float32" if dtype == "tf32" else dtype
        yield KernelProbe(
            f"{CONVOLUTION} {unit}",
            f"{name} 3×3 convolution, {images} images",
            convolution_work(images, sizes.channels, dtype),
            partial(_convolution, device, (images, sizes.channels, PIXELS), dtype, simulated),
        )


def _convolves_in_tf32() -> bool:
    """PyTorch's setting for float32, which has had another name since torch 2.9."""
    settings: Any = torch.backends.cudnn
    return settings.conv.fp32_precision == "tf32" if hasattr(settings, "conv") else bool(settings.allow_tf32)


def convolution_work(images: int, channels: int, dtype: str) -> Work:
    """A 3×3 convolution of stride 1 that keeps size and channels."""
    places, inner = images * PIXELS**2, channels * WINDOW**2
    nbytes = (2 * places * channels + channels * inner) * item_bytes(dtype)
    product = ProductShape(places, channels, inner)
    return Work(Kind.CONVOLUTION_3X3, 2 * places * channels * inner, nbytes, dtype, product)


def _convolution(device: str, shape: tuple[int, int, int], dtype: str, simulated: bool) -> MeasuredProduct:
    x, weight = _images(device, shape, dtype, meta_empty if simulated else random_tensor)

    def verify() -> bool:
        if simulated:
            return _convolves(*_images(device, SMALL_IMAGES, dtype, random_tensor), dtype)
        return _convolves(x, weight, dtype)

    return MeasuredProduct(lambda: conv2d(x, weight, padding=1), verify)


def _images(device: str, shape: tuple[int, int, int], dtype: str, make: matmul.MakeTensor) -> tuple[Tensor, Tensor]:
    """Images and weights, pixel by pixel in memory (`torch.channels_last`)."""
    images, channels, pixels = shape

    def filled(sizes: Sequence[int]) -> Tensor:
        return make(sizes, torch_dtype(dtype), device).permute(0, 3, 1, 2)

    return filled((images, pixels, pixels, channels)), filled((channels, WINDOW, WINDOW, channels))


def _convolves(x: Tensor, weight: Tensor, dtype: str) -> bool:
    """The corner of the last image against float64 on the CPU, within the bounds of `matmul.matches`."""
    got = conv2d(x, weight, padding=1)[-1:, :, : CORNER - 1, : CORNER - 1].cpu().double()
    corner = x[-1:, :, :CORNER, :CORNER].cpu().double()
    expected = conv2d(corner, weight.cpu().double(), padding=1)[:, :, : CORNER - 1, : CORNER - 1]
    eps = torch.finfo(x.dtype).eps
    inner = weight.shape[1] * WINDOW**2
    bound = 4 * (2.0**-10 if dtype == "tf32" else eps) + sqrt(inner) * min(eps, torch.finfo(torch.float32).eps)
    return bool((got - expected).abs().max() <= bound * expected.abs().max())


GROUP = 32
"""Tiny operations that are timed together."""
AHEAD_SECONDS = 0.002
"""What keeps the card busy before each timed kernel, at least: in this time a slow host launches a group."""
WARM_UP_SHARE = 0.2
"""Of the time of a measurement, before it."""
MOST_GROWTH = 4
"""Of a block over the one before it, whose time may have been a mistake."""
NOTHING = "it takes too small a part of the measured time to tell"

Points = Generator[BenchPoint, None, None]


class TimedProbe(NamedTuple):
    """What came out of one measurement."""

    samples: list[float]
    """Seconds of one kernel, operation or copy."""
    iterations: int
    seconds: float


Measurement = Generator[BenchPoint, None, TimedProbe]


class CalibrateRun(Runner[CalibrateSpec]):
    """`card` is the profile that the factors are relative to. Each measurement has its own tensors."""

    def __init__(
        self,
        spec: CalibrateSpec,
        run: int,
        card: Profile,
        timer: BlockTimer,
        copier: Copier,
        stopped: Callable[[], bool],
        clock: Clock = time.time,
        *,
        flush: Callable[[str], Operation] | None = None,
        sizes: Sizes = SIZES,
    ) -> None:
        """`flush`, called with the device, makes what overwrites its cache."""
        super().__init__(spec, run, clock, simulated=timer.simulated, on_cpu=spec.device == "cpu")
        self._card, self._timer, self._copier, self._stopped = card, timer, copier, stopped
        self._flush, self._sizes = flush, sizes
        self._ahead: Operation | None = None
        self._rows: list[CalibrationRow] = []
        self._factors: dict[str, float] = {}
        self._probes: list[KernelProbe] = []
        self._points = self._all()

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        """Choose the kernels, and make what keeps the card busy."""
        device, simulated, model = self.spec.device, self.simulated, Roofline(self._card)
        for kind in (products, convolutions):
            self._probes += kind(device, self._card, model, self._sizes, simulated=simulated)
        if self._flush is not None:
            flush = self._flush(device)
            flush()
            each = self._timer.block(flush, 1).seconds
            times = max(math.ceil(AHEAD_SECONDS / each), 1) if each > 0 else 1
            self._ahead = lambda: [flush() for _ in range(times)]

    def step(self) -> BenchPoint | None:
        """One block, or the end of a measurement; None after the last, or when it was stopped."""
        return next(self._points, None)

    def result(self, *, stopped: bool, failure: str | None = None) -> CalibrateResult | None:
        """The finished measurements; None when there is not one."""
        self._points.close()
        if not self._rows:
            return None
        compared = [row.verified for row in self._rows if row.verified is not None]
        return CalibrateResult(
            card=self._card.model,
            rows=tuple(self._rows),
            seconds=sum(row.seconds for row in self._rows),
            iterations=sum(row.iterations for row in self._rows),
            verified=all(compared) if compared else None,
            **self._shared(stopped, failure),
        )

    # --- one measurement after the other

    @property
    def _count(self) -> int:
        """Measurements: the kernels, memory, a tiny kernel, a stream of them, both directions of the link."""
        return len(self._probes) + 5

    def _all(self) -> Points:
        for part in (self._small, self._computing, self._link):
            yield from part()
            if self._stopped():
                return

    def _small(self) -> Points:
        """Memory, and what a kernel and a launch take beside their work."""
        tiny = addition(self.spec.device, self._sizes.tiny, simulated=self.simulated)
        made = tiny.make()
        kernels = yield from self._timed(lambda: [made.operation() for _ in range(GROUP)], "tiny kernels", GROUP)
        launches = yield from self._timed(made.operation, "tiny operations", launches=True)
        if self._stopped():
            return
        right = made.verify()
        probe = addition(self.spec.device, self._sizes.elements, simulated=self.simulated)
        long = probe.make()
        timed = yield from self._timed(long.operation, probe.text)
        if self._stopped():
            return
        on_device, model = spread(kernels.samples).median, Roofline(self._card)
        found = memory_factors(self._card, probe.work, timed.samples, tiny.work, on_device)
        modelled = model.seconds(probe.work)
        yield self._row(
            probe.factor, probe.text, timed, modelled, found, long.verify(), "GB/s", probe.work.nbytes / 1e9
        )
        found = kernel_factors(self._card, tiny.work, kernels.samples, self._factors)
        modelled = model.seconds(tiny.work)
        yield self._row(KERNEL, "tiny kernel", kernels, modelled, found, right)
        found = host_factors(launches.samples, on_device)
        modelled = overlapped(modelled, model.call_seconds(HostCall.FORWARD))
        yield self._row(HOST, "tiny operation", launches, modelled, found, right)

    def _computing(self) -> Points:
        """Products, then the convolutions on the same units."""
        for probe in self._probes:
            with tf32_products() if probe.tf32 else nullcontext():
                try:
                    made = probe.make()
                except Unavailable as error:
                    yield self._ended(CalibrationRow(factor=probe.factor, text=probe.text, reason=str(error)))
                    continue
                timed = yield from self._timed(made.operation, probe.text)
                if self._stopped():
                    return
                right = made.verify()
            del made
            others = self._factors.copy()
            others.pop(probe.factor, None)
            found = compute_factors(self._card, probe.work, timed.samples, others)
            modelled, tflop = Roofline(self._card).seconds(probe.work), probe.work.flop / 1e12
            yield self._row(probe.factor, probe.text, timed, modelled, found, right, "TFLOP/s", tflop)

    def _link(self) -> Points:
        """Copies from and to pinned memory of the host."""
        nbytes, device = self._sizes.copied, self.spec.device
        modelled = transfer_seconds(self._card, None, nbytes)
        for source, destination in (("cpu", device), (device, "cpu")):
            case = Case(source, destination, nbytes, pinned=None if device == "cpu" else True)
            try:
                legs = self._copier.legs(case)
            except Unavailable as error:
                yield self._ended(CalibrationRow(factor=LINK, text=case.text, reason=str(error)))
                continue
            measure, _ = self._copier.measures(case, legs)
            timed = yield from self._blocks(measure, case.text)
            wrong = None if self._stopped() else self._copier.wrong_bytes(case, legs)
            if wrong is None:
                return
            del legs, measure
            found = link_factors(self._card, nbytes, timed.samples)
            yield self._row(LINK, case.text, timed, modelled, found, wrong == 0, "GB/s", nbytes / 1e9)

    # --- timing

    def _timed(self, operation: Operation, text: str, each: int = 1, *, launches: bool = False) -> Measurement:
        """Samples of one of the `each` kernels in an operation; `launches`: in a stream, with what the host takes."""
        if not self.simulated:
            warm_up(self._timer, operation, self._share * WARM_UP_SHARE, BLOCK_SECONDS, self._stopped)
        about = 0.0

        def measure(count: int) -> TimedBlock:
            nonlocal about
            if launches:
                return self._timer.block(operation, count)
            block = self._timer.on_device(operation, count, about, self._ahead)
            about = block.seconds / block.iterations
            return block

        return (yield from self._blocks(measure, text, each))

    def _blocks(self, measure: Callable[[int], TimedBlock], text: str, each: int = 1) -> Measurement:
        """For this measurement's share of the time; once on a virtual GPU, where it is always the same."""
        samples, iterations, seconds, spent, length = Samples[float](), 0, 0.0, 0.0, 1
        while not self._stopped() and (not iterations or (spent < self._share and not self.simulated)):
            block = measure(length)
            samples.add(sample / each for sample in block.samples)
            iterations, seconds = iterations + block.iterations * each, seconds + block.seconds
            spent += block.spent
            length = min(block_length(block.spent / block.iterations), MOST_GROWTH * length)
            done = min((len(self._rows) + min(spent / self._share, 1.0)) / self._count, 1.0)
            yield self._point(text, iterations=block.iterations, seconds=block.seconds, done=done)
        return TimedProbe(samples.kept, iterations, seconds)

    @property
    def _share(self) -> float:
        """Seconds of one measurement."""
        return self.spec.seconds / self._count / (1 + WARM_UP_SHARE)

    # --- rows

    def _row(
        self,
        factor: str,
        text: str,
        timed: TimedProbe,
        modelled: float,
        found: Sequence[float],
        right: bool,
        unit: str = "s",
        amount: float | None = None,
    ) -> BenchPoint:
        """Keep a row and its factor; `modelled` are seconds, in which so much of the unit is done where it is a
        rate."""
        samples = timed.samples
        if amount is not None:
            samples, modelled = [amount / each for each in samples], amount / modelled
        row = CalibrationRow(
            factor=factor,
            text=text,
            unit=unit,
            measured=spread(samples),
            modelled=modelled,
            value=spread(found) if found else None,
            reason=None if found else NOTHING,
            noise=None if self.simulated else noise(samples),
            iterations=timed.iterations,
            seconds=timed.seconds,
            verified=right,
        )
        return self._ended(row)

    def _ended(self, row: CalibrationRow) -> BenchPoint:
        self._rows.append(row)
        self._factors = {factor.name: factor.value for factor in combined(self._rows)}
        done = min(len(self._rows) / self._count, 1.0)
        return self._point(row.text, part=row, iterations=row.iterations, seconds=row.seconds, done=done)
