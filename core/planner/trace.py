"""What a run took, gave back and computed on one card; what follows from that for any card: its memory with what cuBLAS
and cuDNN take, how long the step takes and what bounds it. No torch; any thread.

What libraries take comes from PyTorch's allocator, so `max_memory_allocated` has it too.

cuBLAS: PyTorch gives it a workspace per handle and stream, and keeps it. A thread has a handle of its own
(`getCurrentCUDABlasHandle`), and autograd runs backward on a thread of its own for each device (`Engine::thread_init`
in torch/csrc/autograd/engine.cpp): training has two. The size goes by architecture (`parseChosenWorkspaceSize` in
aten/src/ATen/cuda/CublasHandlePool.cpp): `:4096:2:16:8`, which is 2 · 4096 KiB + 8 · 16 KiB = 8,519,680 B, and 32 MiB
from Hopper on (compute capability 9, 10, 12; until PyTorch 2.7 on 9.0 only); under ROCm 32 MiB, on gfx94x and gfx95x
128 MiB. CUBLAS_WORKSPACE_CONFIG changes it. cuBLASLt shares it (`TORCH_CUBLASLT_UNIFIED_WORKSPACE`, on by default);
hipBLASLt has 76 MiB of its own there.

cuDNN: an algorithm asks for what it needs, for as long as a convolution runs (here: one does at the peak), and PyTorch
sets no limit (https://github.com/pytorch/pytorch/issues/49207), so it is unknown without the card. 64 MiB is an
assumption: the limit that Caffe2, in PyTorch's own repository, gave cuDNN (`kCONV_CUDNN_WORKSPACE_LIMIT_BYTES`,
caffe2/operators/conv_op_cudnn.cc). Issue 49207 shows 36 GiB where cuDNN chose an FFT.

A trace is replayed, not modelled: the same requests in the same order go through the allocator of a card, so that what
it reserves, and whether it runs out, is what a run on a virtual GPU of that size would have shown.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import Bound, StepPart
from devexplorer.core.virtual.device.cost import (
    CONVOLUTIONS,
    PAGEABLE_BYTES_S,
    HostCall,
    Kind,
    Roofline,
    Work,
    host_seconds,
    overlapped,
    spread,
    transfer_seconds,
)
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES
from devexplorer.core.virtual.device.memory import MIN_BLOCK, Block, CachingAllocator, OutOfDeviceMemoryError

MIB = 1 << 20
THREADS_OF_TRAINING = 2
"""That run products: the caller's and autograd's."""
CUBLAS_BYTES = 2 * (4096 << 10) + 8 * (16 << 10)
CUBLAS_LARGE_BYTES = 32 * MIB
"""Hopper, Blackwell, and ROCm."""
LARGE_SINCE = 9
"""Major compute capability."""
HIPBLAS_BYTES = 128 * MIB
"""gfx94x and gfx95x."""
HIPBLASLT_BYTES = 76 * MIB
CUDNN_BYTES = 64 * MIB


def library_bytes(compute_capability: str, *, products: bool, convolutions: bool, train: bool) -> int:
    """Bytes that the libraries hold on a chip of this architecture (`7.5`, `gfx942`) for what a model runs."""
    held = cublas_bytes(compute_capability, products=products, train=train)
    if convolutions and not compute_capability.startswith("apple"):
        held += CUDNN_BYTES
    return held


def cublas_bytes(compute_capability: str, *, products: bool, train: bool) -> int:
    """What stays once a product ran: also at rest. None under MPS, which has no cuBLAS."""
    if not products or compute_capability.startswith("apple"):
        return 0
    if compute_capability.startswith(("gfx94", "gfx95")):
        workspace = HIPBLAS_BYTES + HIPBLASLT_BYTES
    elif compute_capability.startswith("gfx"):
        workspace = CUBLAS_LARGE_BYTES + HIPBLASLT_BYTES
    elif int(compute_capability.partition(".")[0]) >= LARGE_SINCE:
        workspace = CUBLAS_LARGE_BYTES
    else:
        workspace = CUBLAS_BYTES
    return THREADS_OF_TRAINING * workspace if train else workspace


def context_bytes(profile: Profile) -> int:
    """Of the CUDA context; what Metal takes for itself is not known."""
    return CONTEXT_BYTES if profile.device == "cuda" else 0


Numbers = npt.NDArray[np.int64]

KINDS = ("parameters", "buffers", "gradients", "optimizer", "activations")
"""What a block can be for; the last is everything that is nothing else."""
OTHER = KINDS[-1]
UNLIMITED = 1 << 62


class Copied(NamedTuple):
    """One copy to or from this card."""

    nbytes: int
    peer: str | None
    """The profile of the other card; None: the host."""


class Replay(NamedTuple):
    """What became of a trace on a card; where it does not fit, what would have become of it on a card without end."""

    fits: bool
    reserved: int
    """The most that was taken in segments."""
    parts: dict[str, int]
    """Bytes in blocks by kind (`KINDS`) at the moment when most was allocated, the first such moment."""
    rest: dict[str, int]
    """The same after the last step."""

    @property
    def peak(self) -> int:
        """The most that was allocated at one time: what `max_memory_allocated` says.

        Blocks are what counts, and one that is reused may be larger than the request by what is not worth splitting
        off.
        """
        return sum(self.parts.values())


@dataclass(frozen=True)
class Trace:
    """One run on one card, from the empty card on."""

    sizes: Numbers
    """Bytes that were asked for, by the number of the block."""
    events: Numbers
    """In their order: n, block n is taken; ~n, it is given back."""
    kinds: Mapping[int, str]
    """Number of a block -> one of `KINDS`; what is not in it is `activations`."""
    work: Mapping[Work, int]
    """Kernels of the last step, and how often each ran."""
    calls: Mapping[HostCall, int]
    """What the host did in the last step."""
    copies: Mapping[Copied, int]
    """Copies of the last step."""
    state_at: int | None = None
    """Where in `events` the first step of the optimizer begins."""
    rest_at: int | None = None
    """Where in `events` the last step ends; None: at their end."""
    output_bytes: int = 0
    """Of the first tensor that forward returned, on whichever card."""
    input_bytes: int = 0
    """Of the inputs that the step got."""
    attention_by_card: bool = False
    """Whether attention ran that another card has another kernel for."""

    @cached_property
    def _rounded(self) -> Numbers:
        """Bytes of each block: multiples of 512 B."""
        blocks: Numbers = np.maximum(-(-self.sizes // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
        return blocks

    @cached_property
    def _course(self) -> Numbers:
        """Bytes that are allocated after each event."""
        taken = self.events >= 0
        numbers = np.where(taken, self.events, ~self.events)
        course: Numbers = np.cumsum(np.where(taken, 1, -1) * self._rounded[numbers])
        return course

    @property
    def least(self) -> int:
        """The most that is requested at one time, rounded up: no allocator needs less."""
        return int(self._course.max()) if len(self.events) else 0

    @property
    def fullest_at(self) -> int:
        """Where in `events` most is allocated."""
        return int(self._course.argmax()) if len(self.events) else 0

    @cached_property
    def without_end(self) -> Replay:
        """On a card that is never full."""
        return self._replayed(UNLIMITED, 0)

    def replay(self, capacity_bytes: int, taken_bytes: int = 0) -> Replay:
        """Put the trace through the allocator of a card, of which `taken_bytes` belong to others."""
        room = capacity_bytes - taken_bytes
        if self.least > room:
            return self.without_end._replace(fits=False)
        if (
            self.without_end.reserved <= room
        ):  # it is never full, so it never gives segments back: the same as without end
            return self.without_end
        return self._replayed(capacity_bytes, taken_bytes)

    def _replayed(self, capacity_bytes: int, taken_bytes: int) -> Replay:
        memory = CachingAllocator(capacity_bytes, taken_bytes)
        blocks: dict[int, tuple[Block, int]] = {}
        sizes = self.sizes.tolist()
        now = dict.fromkeys(KINDS, 0)
        then, rest = now.copy(), None
        allocated = peak = reserved = 0
        for position, event in enumerate(self.events.tolist()):
            if position == self.rest_at:
                rest = now.copy()
            if event < 0:
                block, size = blocks.pop(~event)
                memory.free(block)
                allocated -= size
                now[self.kinds.get(~event, OTHER)] -= size
                continue
            try:
                block = memory.allocate(sizes[event])
            except OutOfDeviceMemoryError:
                return self.without_end._replace(fits=False)
            blocks[event] = block, block.size
            allocated += block.size
            now[self.kinds.get(event, OTHER)] += block.size
            if allocated > peak:
                peak, then = allocated, now.copy()
            if capacity_bytes != UNLIMITED:  # else nothing is given back, and the last is the most
                reserved = max(reserved, memory.reserved_bytes)
        return Replay(True, max(reserved, memory.reserved_bytes), then, rest or now)

    @property
    def flop(self) -> int:
        """Floating-point operations of the last step."""
        return sum(work.flop * times for work, times in self.work.items())

    def with_state(self, sizes: list[int]) -> Trace:
        """The same run with these blocks taken for the optimizer's state when its first step begins."""
        first = len(self.sizes)
        at = len(self.events) if self.state_at is None else self.state_at
        added = np.arange(first, first + len(sizes), dtype=np.int64)
        return replace(
            self,
            sizes=np.concatenate([self.sizes, np.array(sizes, dtype=np.int64)]),
            events=np.concatenate([self.events[:at], added, self.events[at:]]),
            kinds={**self.kinds, **dict.fromkeys(added.tolist(), "optimizer")},
            rest_at=None if self.rest_at is None else self.rest_at + len(added),
        )


TOLERANCE = 0.002
"""Of a block, by which a law may be off: shares of experts are rounded up to whole tokens."""
NEGLIGIBLE = 1e-4
"""Of the peak: what a block may be off by in any case."""
NO_BLOCKS: Numbers = np.empty(0, dtype=np.int64)


class BatchScaling(NamedTuple):
    """How the size of each block grows with the batch, or with another number: along a straight line."""

    trace: Trace
    number: int
    """Of this trace."""
    slope: npt.NDArray[Any]
    apart: Numbers = NO_BLOCKS
    """Blocks whose sizes are known otherwise."""
    exact: bool = True
    """Whether the third run was foretold to the byte."""

    def at(self, number: int, sizes_apart: Sequence[int] = ()) -> Trace:
        """The trace of what was not run."""
        grown = self.trace.sizes + self.slope * (number - self.number)
        sizes = np.ceil(np.maximum(grown, 1) - 1e-6).astype(np.int64)
        sizes[self.apart] = np.maximum(np.array(sizes_apart, dtype=np.int64), 1)
        return replace(self.trace, sizes=sizes, work={}, calls={}, copies={})


def fit_scaling(runs: Mapping[int, Trace], apart: Numbers = NO_BLOCKS) -> BatchScaling | None:
    """What three runs that took and gave back the same blocks in the same order have in common, the second of which
    has to be foretold by the others; None where there is no law: then only runs can tell."""
    (low, first), (middle, second), (high, third) = sorted(runs.items())
    if any(not np.array_equal(first.events, other.events) for other in (second, third)):
        return None
    slope = (third.sizes - first.sizes) / (high - low)
    off = np.abs(first.sizes + slope * (middle - low) - second.sizes)
    off[apart] = 0
    if np.any(off > np.maximum(NEGLIGIBLE * second.least, TOLERANCE * second.sizes)):
        return None
    return BatchScaling(first, low, slope, apart, bool(np.all(off < 1e-3)))


GROUPS: Mapping[Kind, str] = {
    Kind.PRODUCT: "matrix products",
    Kind.BATCHED_PRODUCT: "matrix products",
    **dict.fromkeys(CONVOLUTIONS, "convolutions"),
    Kind.ATTENTION: "attention",
    Kind.ATTENTION_BACKWARD: "attention",
    **dict.fromkeys(
        (
            Kind.BATCH_NORM, Kind.BATCH_NORM_BACKWARD, Kind.BATCH_NORM_INFERENCE, Kind.LAYER_NORM,
            Kind.LAYER_NORM_BACKWARD,
        ),
        "normalisation",
    ),
    **dict.fromkeys((Kind.SOFTMAX, Kind.SOFTMAX_BACKWARD, Kind.REDUCTION, Kind.POOLING), "reductions"),
    Kind.DROPOUT: "elementwise",
    Kind.ELEMENTWISE: "elementwise",
    Kind.EMBEDDING: "embedding",
    Kind.OPTIMIZER: "optimizer",
    Kind.COPY: "copies",
}  # fmt: skip
"""What kinds of kernels are shown as; in the order in which they are listed."""


UNVERIFIED = 2.0
"""The factor by which a step may take longer or shorter on chips of which no published step was compared: Apple's.
Where the host bounds the step it is twice as large."""
NAMED_SHARE = 0.1
"""From this share of the cards' time on, a doubt about a kind of kernels is said."""


class Doubt(NamedTuple):
    """Something that the cost model does not know well."""

    factor: float
    """By which what is in doubt may take longer or shorter: compared steps were as far off."""
    words: str


GROUPED = Doubt(
    2.3,
    "Grouped convolutions depend on the width of a group and on the algorithm that cuDNN has for it, which the cost"
    " model does not know: the range of seconds is wider by their share.",
)
OLD_HALF = Doubt(
    1.4,
    "Training in float16 on cards of compute capability 7.5 was compared too little: the range of seconds is wider.",
)
COMPILED = Doubt(
    1.95,
    "Compiled code launches and moves less than the operations that are counted here: the range of seconds is wider.",
)
GROUP_NORM = Doubt(
    1.5,
    "Convolutions with group normalisation (as in the UNet of Stable Diffusion) rearrange their tensors in ways that"
    " the cost model does not know: the range of seconds is wider.",
)
PACKED_FROM = 4
"""Sequences from which `PACKED` holds."""
PACKED = Doubt(
    3.0,
    "From four sequences on, kernels for packed weights may unpack them first, which the cost model does not know: the"
    " range of seconds is wider.",
)


class StepEstimate(NamedTuple):
    """Simulated seconds of a step."""

    seconds: float
    low: float
    high: float
    bound: Bound
    parts: tuple[StepPart, ...]
    """By class of operation, what takes longest first; together the time of the cards."""
    doubts: tuple[Doubt, ...] = ()
    """What made the range wider."""


def step_estimate(
    traces: Sequence[Trace], profiles: Sequence[Profile], doubts: Sequence[Doubt] = (), *, input_copy: bool = False
) -> StepEstimate:
    """Of a step on these cards: they work one after the other, as a split model's do, while the host launches what
    comes next; each copy takes its time once. `doubts`: what is known of the model beforehand. `input_copy`: the step
    begins with a copy of its inputs from pageable memory, for which it waits."""
    known = {profile.name: profile for profile in profiles}
    host = copies = grouped = 0.0
    sums: defaultdict[str, StepSums] = defaultdict(StepSums)
    doubts = [*doubts]
    for trace, profile in zip(traces, profiles, strict=True):
        host += host_seconds(trace.calls.items(), profile)
        for copied, times in trace.copies.items():
            peer = None if copied.peer is None else known[copied.peer]
            each = transfer_seconds(profile, peer, copied.nbytes) * times
            copies += each if peer is None else each / 2  # both ends have noted it
        half = 0
        roofline = Roofline(profile)
        for work, times in trace.work.items():
            if work.kind is Kind.NOTHING:
                continue
            seconds = roofline.seconds(work) * times
            compute, memory, layout = roofline.bounds(work)
            sums[GROUPS[work.kind]].add(work, times, seconds, compute > memory + layout)
            if work.kind is Kind.GROUPED_CONVOLUTION:
                grouped += seconds
            if work.dtype == "float16":
                half += work.flop * times
        trains = trace.state_at is not None
        if profile.compute_capability == "7.5" and trains and half > trace.flop / 2 and OLD_HALF not in doubts:
            doubts.append(OLD_HALF)
    if input_copy:
        copies += traces[0].input_bytes / min(PAGEABLE_BYTES_S, 1e9 * profiles[0].host_gb_s)
    parts = sorted((StepPart(operations=name, **vars(some)) for name, some in sums.items()), key=lambda x: -x.seconds)
    device = sum(part.seconds for part in parts)
    seconds = overlapped(device, host) + copies
    factor = max([spread(device, host), *(doubt.factor for doubt in doubts)])
    share = grouped / device if device else 0.0
    factor = factor ** (1 - share) * max(factor, GROUPED.factor) ** share
    if share >= NAMED_SHARE:
        doubts.append(GROUPED)
    if any(profile.device == "mps" for profile in profiles):
        factor = max(factor, UNVERIFIED * (1 + host / (host + device) if host else 1.0))
    bound: Bound = "bandwidth"
    if copies > max(device, host):
        bound = "link"
    elif host > device:
        bound = "launches"
    elif sum(part.compute_bound_seconds for part in parts) > device / 2:
        bound = "compute"
    return StepEstimate(seconds, seconds / factor, seconds * factor, bound, tuple(parts), tuple(doubts))


@dataclass
class StepSums:
    """Of a class of operations, as `StepPart` has them."""

    seconds: float = 0.0
    compute_bound_seconds: float = 0.0
    flop: int = 0
    nbytes: int = 0
    kernels: int = 0

    def add(self, work: Work, times: int, seconds: float, compute_bound: bool) -> None:
        """So many kernels."""
        self.seconds += seconds
        self.compute_bound_seconds += seconds if compute_bound else 0.0
        self.flop += work.flop * times
        self.nbytes += work.nbytes * times
        self.kernels += times
