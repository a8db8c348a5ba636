"""The kernels of a calibration: what runs, whether its values are right, and the work that the cost model sees in it.
Runs on the thread that runs the benchmark."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from math import sqrt
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import conv2d

from devexplorer.core.base import item_bytes, product_dtype, shape_text
from devexplorer.core.benchmark import matmul
from devexplorer.core.benchmark.matmul import Product, product_maker, random_tensor, torch_dtype
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.records import MatmulSpec
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.calibration import CONVOLUTION, EIGHT_BIT
from devexplorer.core.virtual.device.cost import EIGHT_BIT as EIGHT_BIT_DTYPES
from devexplorer.core.virtual.device.cost import Roofline, unit_of
from devexplorer.core.virtual.device.work import Kind, Work
from devexplorer.core.virtual.device.work import Product as ProductShape

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

    @property
    def needed_bytes(self) -> int:
        """The most that one measurement takes."""
        side, (_, images) = self.sides[1], self.images
        image = images * self.channels * PIXELS**2
        return max(12 * self.elements, 12 * side**2, 4 * 3 * image, 2 * self.copied)


SIZES = Sizes()


class Probe(NamedTuple):
    """One kernel."""

    factor: str
    text: str
    work: Work
    """As the cost model sees it."""
    make: Callable[[], Product]
    """Allocates; returns what runs, and the question whether it is right."""
    tf32: bool = False
    """A float32 product that runs in TF32."""


def addition(device: str, elements: int, *, simulated: bool) -> Probe:
    """The sum of two float32 tensors into a third: memory alone, each tensor once."""
    text = f"elementwise float32, {elements:,} elements"
    return Probe(
        "memory", text, Work(Kind.ELEMENTWISE, 0, 12 * elements), partial(_addition, device, elements, simulated)
    )


def _addition(device: str, elements: int, simulated: bool) -> Product:
    make = meta_empty if simulated else random_tensor
    a, b, out = (make((elements,), torch.float32, device) for _ in range(3))

    def verify() -> bool:
        if simulated:
            return _adds(*(random_tensor((64,), torch.float32, device) for _ in range(3)))
        return _adds(a, b, out)

    return Product(lambda: torch.add(a, b, out=out), verify)


def _adds(a: Tensor, b: Tensor, out: Tensor) -> bool:
    """At most 256 elements, compared with the CPU's."""
    torch.add(a, b, out=out)
    every = max(len(a) // 256, 1)
    first, second, result = (tensor[::every].cpu() for tensor in (a, b, out))
    return bool(torch.equal(first + second, result))


def products(device: str, card: Profile, roofline: Roofline, sizes: Sizes, *, simulated: bool) -> Iterator[Probe]:
    """Square products in every dtype that the card has a unit for."""
    for dtype in PRODUCTS:
        unit, _ = unit_of(dtype, card)
        if dtype != "float32" and (dtype not in card.tflops or unit == "vector"):
            continue
        small, large = (product_work(side, dtype) for side in sizes.sides)
        side, work = (sizes.sides[0], small)
        if roofline.seconds(large) <= LONG_SECONDS:
            side, work = sizes.sides[1], large
        spec = MatmulSpec(device=device, dtype=dtype, m=side, n=side, k=side)
        factor = EIGHT_BIT if dtype in EIGHT_BIT_DTYPES else unit
        yield Probe(
            factor,
            f"{dtype} product, {shape_text(spec.shape)}",
            work,
            partial(product_maker(simulated=simulated), spec),
            tf32=dtype == "tf32",
        )


def product_work(side: int, dtype: str) -> Work:
    """A square product."""
    size, out = item_bytes(dtype), item_bytes(product_dtype(dtype))
    return Work(Kind.PRODUCT, 2 * side**3, (2 * size + out) * side**2, dtype, ProductShape(side, side, side))


def convolutions(device: str, card: Profile, roofline: Roofline, sizes: Sizes, *, simulated: bool) -> Iterator[Probe]:
    """3×3 convolutions in `channels_last`, in float32 as PyTorch's settings have it and in float16."""
    for dtype in ("tf32" if _convolves_in_tf32() else "float32", "float16"):
        unit, _ = unit_of(dtype, card)
        if dtype == "float16" and unit == "vector":
            continue
        images, most = sizes.images
        while images < most and roofline.seconds(convolution_work(images, sizes.channels, dtype)) < SHORT_SECONDS:
            images *= 2
        shape = (images, sizes.channels, PIXELS)
        yield Probe(
            f"{CONVOLUTION} {unit}",
            f"{unit_dtype(dtype)} 3×3 convolution, {images} images",
            convolution_work(images, sizes.channels, dtype),
            partial(_convolution, device, shape, dtype, simulated),
        )


def _convolves_in_tf32() -> bool:
    """PyTorch's setting for float32, which has had another name since torch 2.9."""
    settings: Any = torch.backends.cudnn
    return settings.conv.fp32_precision == "tf32" if hasattr(settings, "conv") else bool(settings.allow_tf32)


def unit_dtype(dtype: str) -> str:
    """`tf32` as the dtype of the tensors."""
    return "float32" if dtype == "tf32" else dtype


def convolution_work(images: int, channels: int, dtype: str) -> Work:
    """A 3×3 convolution of stride 1 that keeps size and channels."""
    places, inner = images * PIXELS**2, channels * WINDOW**2
    nbytes = (2 * places * channels + channels * inner) * item_bytes(dtype)
    product = ProductShape(places, channels, inner)
    return Work(Kind.CONVOLUTION_3X3, 2 * places * channels * inner, nbytes, dtype, product)


def _convolution(device: str, shape: tuple[int, int, int], dtype: str, simulated: bool) -> Product:
    x, weight = _images(device, shape, dtype, meta_empty if simulated else random_tensor)

    def verify() -> bool:
        if simulated:
            return _convolves(*_images(device, SMALL_IMAGES, dtype, random_tensor), dtype)
        return _convolves(x, weight, dtype)

    return Product(lambda: conv2d(x, weight, padding=1), verify)


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
