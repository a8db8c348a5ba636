"""How long the traced step takes on a card, between which limits, and what bounds it. No torch; any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import Bound, StepPart
from devexplorer.core.planner.trace import Trace
from devexplorer.core.virtual.device.cost import (
    CONVOLUTIONS,
    PAGEABLE_BYTES_S,
    Kind,
    Roofline,
    host_seconds,
    overlapped,
    spread,
    transfer_seconds,
)

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
    host = sum(host_seconds(trace.calls.items(), card) for trace, card in zip(traces, profiles, strict=True))
    copies = _copies(traces, profiles)
    if input_copy:
        copies += traces[0].input_bytes / min(PAGEABLE_BYTES_S, 1e9 * profiles[0].host_gb_s)
    parts = _parts(traces, profiles)
    device = sum(part.seconds for part in parts)
    seconds = overlapped(device, host) + copies
    factor = spread(device, host)
    doubts = (*doubts, *_of_kernels(traces, profiles))
    factor = max([factor, *(doubt.factor for doubt in doubts)])
    grouped = _share(traces, profiles, Kind.GROUPED_CONVOLUTION)
    factor = factor ** (1 - grouped) * max(factor, GROUPED.factor) ** grouped
    if grouped >= NAMED_SHARE:
        doubts = (*doubts, GROUPED)
    if any(profile.device == "mps" for profile in profiles):
        factor = max(factor, UNVERIFIED * (1 + host / (host + device) if host else 1.0))
    bound: Bound
    if copies > max(device, host):
        bound = "link"
    elif host > device:
        bound = "launches"
    else:
        bound = "compute" if sum(part.compute_bound_seconds for part in parts) > device / 2 else "bandwidth"
    return StepEstimate(seconds, seconds / factor, seconds * factor, bound, parts, doubts)


def _of_kernels(traces: Sequence[Trace], profiles: Sequence[Profile]) -> tuple[Doubt, ...]:
    """Doubts about what the kernels show."""
    for trace, profile in zip(traces, profiles, strict=True):
        half = sum(work.flop * times for work, times in trace.work.items() if work.dtype == "float16")
        if profile.compute_capability == "7.5" and trace.state_at is not None and half > trace.flop / 2:
            return (OLD_HALF,)
    return ()


def _share(traces: Sequence[Trace], profiles: Sequence[Profile], kind: Kind) -> float:
    """Of the cards' time, what kernels of this kind take."""
    found = total = 0.0
    for trace, profile in zip(traces, profiles, strict=True):
        roofline = Roofline(profile)
        for work, times in trace.work.items():
            seconds = roofline.seconds(work) * times
            total += seconds
            found += seconds if work.kind is kind else 0.0
    return found / total if total else 0.0


def step_seconds(traces: Sequence[Trace], profiles: Sequence[Profile]) -> float:
    """Of `step_estimate`, where nothing else is wanted."""
    return step_estimate(traces, profiles).seconds


def _copies(traces: Sequence[Trace], profiles: Sequence[Profile]) -> float:
    known = {profile.name: profile for profile in profiles}
    seconds = 0.0
    for trace, profile in zip(traces, profiles, strict=True):
        for copied, times in trace.copies.items():
            if copied.peer is None:
                seconds += transfer_seconds(profile, None, copied.nbytes) * times
            else:  # both ends have noted it
                seconds += transfer_seconds(profile, known[copied.peer], copied.nbytes) * times / 2
    return seconds


def _parts(traces: Sequence[Trace], profiles: Sequence[Profile]) -> tuple[StepPart, ...]:
    found: dict[str, list[float]] = {}
    for trace, profile in zip(traces, profiles, strict=True):
        roofline = Roofline(profile)
        for work, times in trace.work.items():
            if work.kind is Kind.NOTHING:
                continue
            seconds = roofline.seconds(work) * times
            compute, memory, layout = roofline.bounds(work)
            bound = seconds if compute > memory + layout else 0.0
            sums = found.setdefault(GROUPS[work.kind], [0.0] * 5)
            for index, value in enumerate((seconds, bound, work.flop * times, work.nbytes * times, times)):
                sums[index] += value
    return tuple(
        StepPart(
            operations=group,
            seconds=seconds,
            compute_bound_seconds=bound,
            flop=int(flop),
            nbytes=int(nbytes),
            kernels=int(kernels),
        )
        for group, (seconds, bound, flop, nbytes, kernels) in sorted(found.items(), key=lambda item: -item[1][0])
    )
