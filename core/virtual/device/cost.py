"""How long a real card would take: what a kernel does, what bounds it, a roofline over the profile with fitted
parameters and a card's own factors, and the simulated clock that adds it up. No torch; any thread.

A factor is measured over modelled: the parameters that it stands for are multiplied by it. `core.planner.calibrate`
measures them.

    kernel = (compute⁴ + memory⁴)^¼ + layout + start
    compute = padded FLOP / rate · Π parameter^exponent        memory, layout = bytes / bandwidth · Π parameter^exponent
    step    = `overlapped`: the card works while the host launches what comes next
    copy    = bytes / (slower link · LINK) + COPY

The fourth power is a roofline with a rounded knee. The parameters are in `resources/cost_model.csv`, each with its
prior, source and uncertainty: rates by unit and architecture (`half`, `half 8.0`), shares by kind of kernel, and
traffic: how often a kernel reads or writes more than once. `tests/benchmarks/fit_cost_model.py` fits them;
docs/planner.md says how, to published steps and products, and how far the model is off on rows that it has not seen.
The own factors of a calibrated card (`Profile.calibration`) change them.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Iterator, Mapping
from enum import StrEnum
from functools import cache, lru_cache
from typing import NamedTuple

from devexplorer.core.devices.profiles import Profile, resource_rows


class Kind(StrEnum):
    """Kinds of kernels that reach different shares of a card's rates."""

    PRODUCT = "matrix product"
    BATCHED_PRODUCT = "batched matrix product"
    CONVOLUTION = "convolution"
    CONVOLUTION_1X1 = "1x1 convolution"
    CONVOLUTION_3X3 = "3x3 convolution"
    """Stride 1: Winograd's algorithm can compute it."""
    GROUPED_CONVOLUTION = "grouped convolution"
    DEPTHWISE_CONVOLUTION = "depthwise convolution"
    ATTENTION = "attention"
    ATTENTION_BACKWARD = "attention backward"
    BATCH_NORM = "batch norm"
    BATCH_NORM_BACKWARD = "batch norm backward"
    BATCH_NORM_INFERENCE = "batch norm, inference"
    LAYER_NORM = "layer norm"
    LAYER_NORM_BACKWARD = "layer norm backward"
    SOFTMAX = "softmax"
    SOFTMAX_BACKWARD = "softmax backward"
    DROPOUT = "dropout"
    POOLING = "pooling"
    REDUCTION = "reduction"
    EMBEDDING = "embedding"
    OPTIMIZER = "optimizer"
    COPY = "copy"
    ELEMENTWISE = "elementwise"
    NOTHING = "no kernel"
    """Only the host works: a tensor is made, or seen in another shape."""


CONVOLUTIONS = frozenset(
    {
        Kind.CONVOLUTION,
        Kind.CONVOLUTION_1X1,
        Kind.CONVOLUTION_3X3,
        Kind.GROUPED_CONVOLUTION,
        Kind.DEPTHWISE_CONVOLUTION,
    }
)


class Pass(StrEnum):
    """Which of a convolution's results is computed."""

    FORWARD = "forward"
    INPUT_GRADIENT = "input gradient"
    WEIGHT_GRADIENT = "weight gradient"


class Product(NamedTuple):
    """(M×K)·(K×N), `batch` times."""

    m: int
    n: int
    k: int
    batch: int = 1


class Work(NamedTuple):
    """One kernel."""

    kind: Kind = Kind.ELEMENTWISE
    flop: int = 0
    nbytes: int = 0
    """What it reads and writes, each tensor once."""
    dtype: str = "float32"
    """Whose rate it computes at, `tf32` for float32 products in TF32."""
    product: Product | None = None
    """The matrix product that it is, or that a convolution is equal to."""
    part: Pass = Pass.FORWARD
    nchw_bytes: int = 0
    """Of the activations of a convolution or batch norm, where they are not in `channels_last`."""


class HostCall(StrEnum):
    """What keeps the host busy; the value is the name of the cost model's parameter for it."""

    FORWARD = "host operation"
    """An operation that is not part of a backward: from Python to the launch."""
    BACKWARD = "host backward operation"
    """Of backward, which runs in C++; convolutions apart."""
    CONVOLUTION_BACKWARD = "host backward convolution"
    VIEW = "host view"
    MODULE = "host module"
    """A call of an `nn.Module`."""


MEMORY, KERNEL, HOST, LINK = "memory", "kernel", "host", "link"
EIGHT_BIT_PRODUCTS = "8-bit"
CONVOLUTION = "convolution"
"""Followed by a unit: `convolution half`."""

SCALED: Mapping[str, tuple[str, ...]] = {
    MEMORY: ("bandwidth",),
    KERNEL: ("kernel",),
    HOST: tuple(HostCall),
    "vector": ("vector",),
    "tf32": ("tf32",),
    "half": ("half",),
    EIGHT_BIT_PRODUCTS: ("share 8-bit product",),
    "convolution vector": ("share convolution vector",),
    "convolution tf32": ("share convolution tf32",),
    "convolution half": ("share convolution half",),
    LINK: (),
}
"""Factor -> parameters of the cost model. `host`: what is measured is an operation of forward; backward, views and
modules run on the same processor. `link` scales the share of the host link's rate that a large copy reaches
(`cost.transfer_seconds`)."""

TITLES: Mapping[str, str] = {
    MEMORY: "memory bandwidth",
    KERNEL: "time per kernel",
    HOST: "host time per operation",
    "vector": "float32 products",
    "tf32": "TF32 products",
    "half": "16-bit products",
    EIGHT_BIT_PRODUCTS: "8-bit products",
    "convolution vector": "float32 convolutions",
    "convolution tf32": "TF32 convolutions",
    "convolution half": "16-bit convolutions",
    LINK: "host link",
}
"""Factor -> what it is called."""

TIMES = frozenset({KERNEL, HOST})
"""Factors of times; the others are of rates."""


def scaled(parameters: Mapping[str, float], factors: Mapping[str, float]) -> dict[str, float]:
    """The parameters of a card with these factors; unknown names, of a newer version, change nothing."""
    result = dict(parameters)
    for name, factor in factors.items():
        for parameter in SCALED.get(name, ()):
            result[parameter] = result[parameter] * factor
    return result


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


KNEE = 4
"""How round the knee of the roofline is, and that between a host-bound and a device-bound step: sums of this power. An
assumption: at equal parts it takes 1.19 times as long as either."""

SPREAD, HOST_SPREAD = 0.22, 0.7
"""Of the logarithm of a step's seconds: for a step that the card bounds, and what the host's part adds. Chosen so that
the range holds at least 85 % of the published steps, each predicted without its model, and without its card
(docs/planner.md)."""

LINK_EFFICIENCY = 12.36 / 15.75
"""Share of a link's rate that a large copy reaches: the sample output in nvbandwidth's README, 12.36 GB/s, taken to be
PCIe 3 x16."""

NETWORK_GB_S = 50.0
"""Each card's share of the network between machines, one direction: 400 Gbit/s, as the eight ConnectX-7 of a DGX H100
have it for its eight cards (NVIDIA's datasheet). An assumption wherever machines are simulated."""

PAGEABLE_BYTES_S = 2.3e9
"""Bytes a second that reach a card from pageable memory, beside the workers of a data loader: fitted to the published
steps that copy their input (tests/benchmarks/fit_cost_model.py)."""

COPY_SECONDS = 6e-6
"""What each copy costs beyond its bytes: "approximately 5-7 µs" for cudaMemcpyAsync (DualPath, arXiv 2602.21548,
section 5.2)."""


@cache
def cost_parameters() -> Mapping[str, float]:
    """The fitted parameters by name: shares and factors as they are, times in seconds."""
    return {row["parameter"]: float(row["value"]) for row in resource_rows("cost_model.csv")}


def parameters_of(profile: Profile) -> Mapping[str, float]:
    """Of a card: the fitted ones, changed by its own factors where it was calibrated."""
    fitted = cost_parameters()
    return fitted if profile.calibration is None else scaled(fitted, profile.calibration.values)


def launch_seconds() -> float:
    """What an operation keeps the host busy for, called from Python."""
    return cost_parameters()[HostCall.FORWARD]


def overlapped(device_seconds: float, host_seconds: float) -> float:
    """Seconds of a step whose kernels take so long on the card and their launches on the host: they overlap, so that
    the slower of the two bounds it."""
    return float(math.hypot(device_seconds**2, host_seconds**2) ** (2 / KNEE))


class Roofline:
    """Seconds that kernels take on one profile."""

    def __init__(self, profile: Profile, parameters: Mapping[str, float] | None = None) -> None:
        """`parameters`: others than the card's."""
        self.profile = profile
        self._parameters = parameters_of(profile) if parameters is None else parameters
        self._known: dict[Work, float] = {}

    def seconds(self, *works: Work) -> float:
        """Of kernels one after the other."""
        known, total = self._known, 0.0
        for work in works:
            spent = known.get(work)
            if spent is None:
                spent = known[work] = self._kernel(work)
            total += spent
        return total

    def _kernel(self, work: Work) -> float:
        compute, memory, layout = self.bounds(work)
        if not memory and not compute:
            return 0.0
        return float(math.hypot(compute**2, memory**2) ** (2 / KNEE)) + layout + self._parameters["kernel"]

    def bounds(self, work: Work) -> tuple[float, float, float]:
        """Seconds that a kernel would take if it only computed, only read and wrote, and only rearranged."""
        compute, memory, layout = (self._term(term) for term in terms(work, self.profile))
        return compute, memory, layout

    def _term(self, term: Term | None) -> float:
        if term is None:
            return 0.0
        known = self._parameters
        return float(term.seconds * math.prod(known.get(name, 1.0) ** power for name, power in term.parameters.items()))

    def operation_seconds(self, flop: int, nbytes: int, dtype: str = "float32") -> float:
        """Of a kernel of which nothing else is known."""
        return self.seconds(Work(flop=flop, nbytes=nbytes, dtype=dtype))

    def call_seconds(self, call: HostCall) -> float:
        """What a call keeps the host busy for."""
        return self._parameters[call]

    def copy_seconds(self, other: Profile | None, nbytes: int) -> float:
        """Seconds of a copy between this card and one of another profile, or the host (None)."""
        return transfer_seconds(self.profile, other, nbytes)


def spread(device_seconds: float, host_seconds: float) -> float:
    """The factor by which a step may take longer or shorter than it is predicted to.

    Wider where the host bounds the step: the processor, and how a loop is written, are not known.
    """
    share = host_seconds / (device_seconds + host_seconds) if host_seconds else 0.0
    return math.exp(math.hypot(SPREAD, HOST_SPREAD * share))


def host_seconds(calls: Iterable[tuple[HostCall, int]], profile: Profile | None = None) -> float:
    """What so many calls keep the host of a card busy for; None: an average host."""
    parameters = cost_parameters() if profile is None else parameters_of(profile)
    return sum(parameters[call] * times for call, times in calls)


def transfer_seconds(source: Profile | None, destination: Profile | None, nbytes: int) -> float:
    """Seconds of a copy between two cards, over the slower of their peer links; None is the host: then over the card's
    host link."""
    share = LINK_EFFICIENCY
    if source is not None and destination is not None:
        link_gb_s = min(source.link_gb_s, destination.link_gb_s)
    else:
        card = source or destination
        if card is None:
            return 0.0
        link_gb_s = card.host_gb_s
        share *= 1.0 if card.calibration is None else card.calibration.values.get(LINK, 1.0)
    return nbytes / (link_gb_s * 1e9 * share) + COPY_SECONDS


class _CostLocal(threading.local):
    device_seconds = 0.0
    host_seconds = 0.0


class SimulatedClock:
    """Totals of one virtual GPU: simulated busy seconds, and real CPU seconds spent on the simulation; of each thread
    also what its launches would have kept the host busy for."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self.busy_seconds = 0.0
        """Simulated seconds during which the card was busy."""
        self.cpu_seconds = 0.0
        """Real seconds that the CPU spent computing."""
        self._thread = _CostLocal()

    def advance(self, seconds: float, cpu_seconds: float = 0.0) -> None:
        """Add work of the calling thread: `seconds` of the card, `cpu_seconds` of wall time on the CPU."""
        self._thread.device_seconds += seconds
        with self._lock:
            self.busy_seconds += seconds
            self.cpu_seconds += cpu_seconds

    def call(self, seconds: float) -> None:
        """Add what the calling thread's launches would have kept the host busy for."""
        self._thread.host_seconds += seconds

    @property
    def thread_seconds(self) -> float:
        """The part of `busy_seconds` caused by the calling thread."""
        return self._thread.device_seconds

    @property
    def thread_host_seconds(self) -> float:
        """The calling thread's launches."""
        return self._thread.host_seconds
