"""The cost model's formula: what bounds a kernel on a card, in seconds at the datasheet's rates, and which fitted
parameters change that. Pure functions; any thread.

    kernel = (compute⁴ + memory⁴)^¼ + layout + start
    compute = padded FLOP / rate · Π parameter^exponent        memory, layout = bytes / bandwidth · Π parameter^exponent

The fourth power is a roofline with a rounded knee. The parameters, with their sources and uncertainties, are in
`resources/cost_model.csv`; `tests/benchmarks/fit_cost_model.py` fits them. They are rates by unit and architecture
(`half`, `half 8.0`), shares by kind of kernel, and traffic: how often a kernel reads or writes more than once."""

from __future__ import annotations

import math
from collections.abc import Iterator
from functools import lru_cache
from typing import NamedTuple

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.virtual.device.work import CONVOLUTIONS, Kind, Pass, Product, Work

# How much of a card a matrix product keeps busy: it is cut into tiles, and the multiprocessors work on them in waves.
# Pure functions; any thread.
# As NVIDIA's "Matrix Multiplication Background User's Guide" explains it (sections on tile and wave quantization):
# the last wave, and tiles that reach over the edge, take as long as full ones. cuBLAS chooses the tile, and splits K
# where there are too few of them; so does `padded_flop`, by taking the fastest.

TILES = ((256, 128, 1.0), (128, 128, 0.92), (128, 64, 0.78), (64, 64, 0.60), (64, 32, 0.45))
"""Rows and columns of a tile, and the share of the largest tile's rate that it reaches: a smaller one reads more for
each product. The order is the guide's; the shares are an assumption, which the fitted efficiencies go with."""
SPLITS = (1, 2, 4, 8, 16, 32)
LEAST_K = 128
"""K is not split into less."""
START_K = 32
"""A tile begins by filling its registers and ends by writing: as long as so much of K."""
SPLIT_COST = 1.03
"""What adding up the parts of a split K costs."""


@lru_cache(maxsize=1 << 16)
def padded_flop(product: Product, multiprocessors: int) -> float:
    """FLOP that the whole card could have done in the time that this product keeps it busy."""
    m, n, k, batch = product
    best = math.inf
    for high, wide, share in TILES:
        for rows, columns in ((high, wide), (wide, high)):
            tiles = math.ceil(m / rows) * math.ceil(n / columns) * batch
            for split in SPLITS:
                if split > 1 and k < split * LEAST_K:
                    break
                waves = math.ceil(tiles * split / multiprocessors)
                spent = waves * rows * columns * (math.ceil(k / split) + START_K) / share
                best = min(best, spent * SPLIT_COST if split > 1 else spent)
            if high == wide:
                break
    return 2 * best * multiprocessors


FLOAT64_SHARE = {"6.0": 1 / 2, "6.1": 1 / 32, "7.0": 1 / 2, "7.5": 1 / 32, "8.0": 1 / 2, "8.6": 1 / 64, "8.9": 1 / 64,
                 "9.0": 1 / 2, "10.0": 1 / 2,
                 "12.0": 1 / 64, "gfx90a": 1.0, "gfx942": 1 / 2}  # fmt: skip
"""float64's share of the float32 rate by compute capability: the arithmetic throughput table of the CUDA C++
Programming Guide (vector units; float64 tensor cores are left out), and AMD's datasheets of the MI300X (81.7 of
163.4 TFLOP/s) and, from memory, of the MI250X (both kinds of units run float64 at float32's rate). Elsewhere 1/64."""

TFLOPS_PER_WATT = {"7.0": 125 / 300, "7.5": 130.5 / 260, "8.0": 312 / 300, "8.6": 154.8 / 300, "8.9": 364.2 / 300,
                   "9.0": 989 / 700, "12.0": 503.8 / 600}  # fmt: skip
"""float16 rate over power limit of the card of each architecture that is not held back by its limit: V100 SXM2, Quadro
RTX 6000, A100 80GB PCIe (which holds as much of its rate as the SXM form in published products), RTX A6000, RTX 6000
Ada, H100 SXM5, RTX PRO 6000 (their datasheets). A card that promises more per watt (T4, A10, L4, H100 PCIe) clocks down
under load."""

BOOSTED = ("GeForce", "NVIDIA TITAN")
"""Cards whose datasheet names a clock that they exceed while they are cool (GPU Boost)."""
INLINE_ECC = frozenset(
    {"Tesla T4", "NVIDIA A10", "NVIDIA L4", "NVIDIA L40S", "NVIDIA RTX A6000", "NVIDIA RTX 6000 Ada Generation"}
)
"""Cards with GDDR memory whose check bits are on by default and travel over the same bus."""

RATE_PER_MULTIPROCESSOR = 1.5e12
"""FLOP/s of a matrix unit at which the parameters of density are 1: about that of a V100 or RTX A6000."""
BANDWIDTH_PER_MULTIPROCESSOR = 12e9
ALIGNMENT = {"float16": 8, "bfloat16": 8, "tf32": 4}
"""Elements that rows have to be a multiple of for the fastest kernels: 16 bytes (NVIDIA, "Matrix Multiplication
Background User's Guide", tensor core requirements)."""
FEW_ROWS = 32
"""Below it Metal's kernels are those of a matrix and vectors, which nothing is padded for. That is of weight where the
same units compute in every dtype: a token would be bound by what is padded."""
EIGHT_BIT = frozenset({"int8", "float8_e4m3fn", "float8_e5m2"})

Exponents = dict[str, float]
"""Parameter -> its exponent."""


class Term(NamedTuple):
    """Seconds at the datasheet's rate, and what changes them."""

    seconds: float
    parameters: Exponents


class Terms(NamedTuple):
    """What a kernel takes. None: nothing of it."""

    compute: Term | None
    memory: Term | None
    layout: Term | None
    """Another arrangement of what a convolution reads and writes."""


def terms(work: Work, card: Profile) -> Terms:
    """Of one kernel on a card."""
    if work.kind is Kind.NOTHING:
        return Terms(None, None, None)
    slow = dict(_bandwidth(card))
    memory = Term(work.nbytes / (card.memory_gb_s * 1e9), slow | dict.fromkeys(_traffic(work), 1.0))
    compute = layout = None
    if work.flop:
        depthwise = work.kind is Kind.DEPTHWISE_CONVOLUTION  # matrix units are of no use there
        unit, rate = unit_of("float32" if depthwise else work.dtype, card)
        compute = Term(_padded(work, card) / rate, dict(_efficiency(work, card, unit, rate)))
        if work.nchw_bytes and unit != "vector":
            layout = Term(work.nchw_bytes / (card.memory_gb_s * 1e9), slow | {f"traffic nchw {unit}": 1.0})
    return Terms(compute, memory, layout)


def unit_of(dtype: str, card: Profile) -> tuple[str, float]:
    """`vector`, `tf32` or `half`, and its datasheet rate in FLOP/s.

    A dtype that the chip has no unit for runs at float32's rate: bfloat16 and TF32 before Ampere, and float16 before
    Volta, whose products cuBLAS adds up in float32. Apple's chips multiply matrices with the same units in every dtype
    (before the M5).
    """
    vector = card.tflops["float32"] * 1e12
    if dtype == "float64":
        return "vector", vector * FLOAT64_SHARE.get(card.compute_capability, 1 / 64)
    rate = card.tflops.get(dtype)
    if rate is None or dtype == "float32" or card.compute_capability.startswith(("6.", "apple")):
        return "vector", vector
    return ("tf32" if dtype == "tf32" else "half"), rate * 1e12


def architecture(card: Profile) -> str:
    """Cards that share parameters: the compute capability, of Pascal, AMD's CDNA and Apple's the family."""
    capability = card.compute_capability
    if card.device == "mps":
        return "apple"
    if capability.startswith("6."):
        return "6"
    return "gfx9" if capability.startswith("gfx9") else capability


def _padded(work: Work, card: Profile) -> float:
    if work.product is None or work.kind is Kind.DEPTHWISE_CONVOLUTION:
        return work.flop
    if card.device == "mps" and min(work.product.m, work.product.n) < FEW_ROWS:
        return work.flop
    return padded_flop(work.product, card.sm_count)


def _efficiency(work: Work, card: Profile, unit: str, rate: float) -> Iterator[tuple[str, float]]:
    """Parameters that are shares of the rate: the larger, the fewer seconds."""
    boosted = card.model.startswith(BOOSTED)
    if work.kind is Kind.DEPTHWISE_CONVOLUTION:
        yield "share depthwise convolution", -1.0
        return
    yield unit, -1.0
    yield f"{unit} {architecture(card)}", -1.0
    if work.dtype in EIGHT_BIT and unit == "half":
        yield "share 8-bit product", -1.0
    if boosted:
        yield "boost", -1.0
    if (power := power_share(card)) < 1:
        yield "power", -math.log(power)
    convolution = work.kind in CONVOLUTIONS
    if unit != "vector":
        dense = math.log(rate / card.sm_count / RATE_PER_MULTIPROCESSOR)
        yield ("density convolution" if convolution else "density product"), -dense
    if work.kind in (Kind.PRODUCT, Kind.BATCHED_PRODUCT) and work.product is not None:
        multiple = ALIGNMENT.get(work.dtype, 1)
        if work.product.n % multiple or work.product.k % multiple:
            yield "share misaligned product", -1.0
    if convolution:
        winograd = work.kind is Kind.CONVOLUTION_3X3 and unit == "vector"
        yield ("share winograd" if winograd else f"share {work.kind}"), -1.0
        yield f"share convolution {unit}", -1.0
        if work.part is not Pass.FORWARD:
            yield f"share {work.part}", -1.0
    elif work.kind in (Kind.BATCHED_PRODUCT, Kind.ATTENTION, Kind.ATTENTION_BACKWARD):
        yield f"share {work.kind}", -1.0


def power_share(card: Profile) -> float:
    """The power limit over what the full rate would need, at most 1."""
    reference = TFLOPS_PER_WATT.get(card.compute_capability)
    rate = card.tflops.get("float16")
    if reference is None or rate is None or not card.tdp_w:
        return 1.0
    return min(1.0, reference * card.tdp_w / rate)


def _bandwidth(card: Profile) -> Iterator[tuple[str, float]]:
    yield "bandwidth", -1.0
    yield f"bandwidth {architecture(card)}", -1.0
    yield "density bandwidth", -math.log(card.memory_gb_s * 1e9 / card.sm_count / BANDWIDTH_PER_MULTIPROCESSOR)
    if card.model in INLINE_ECC:
        yield "traffic ecc", 1.0


TRAFFIC = frozenset(
    {
        Kind.BATCH_NORM, Kind.BATCH_NORM_BACKWARD, Kind.BATCH_NORM_INFERENCE, Kind.LAYER_NORM, Kind.LAYER_NORM_BACKWARD,
        Kind.SOFTMAX, Kind.SOFTMAX_BACKWARD, Kind.DROPOUT, Kind.POOLING, Kind.REDUCTION, Kind.OPTIMIZER, Kind.COPY,
    }
)  # fmt: skip
"""Kinds with a parameter of their own."""


def _traffic(work: Work) -> Iterator[str]:
    """Parameters of how often memory is read or written beyond once: the larger, the more seconds."""
    if work.kind in CONVOLUTIONS:
        yield "traffic depthwise convolution" if work.kind is Kind.DEPTHWISE_CONVOLUTION else "traffic convolution"
    elif work.kind in TRAFFIC:
        yield f"traffic {work.kind}"
        if work.kind in (Kind.BATCH_NORM, Kind.BATCH_NORM_BACKWARD) and not work.nchw_bytes:
            yield "traffic batch norm channels_last"
