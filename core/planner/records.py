"""What is asked of the planner ("will it fit?", generated text), where its searches end, and what it answers. Every
figure of time in it is simulated. Any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Any, Literal

from msgspec.structs import asdict

from devexplorer.core.records import Calibration
from devexplorer.core.records.base import BaseCommand, BaseEvent, Record
from devexplorer.core.records.objects import ObjectSnapshot

LARGEST_BATCH = 1 << 16
"""No larger batch is looked for."""
LONGEST_CONTEXT = 1 << 24
"""Tokens; no longer one is looked for."""
ONE_GPU = "a Mac has one GPU; plan for '{}' alone"


class ServingSpec(Record):
    """One request: so many sequences with prompts of one length, to which tokens are added."""

    generate: int
    """Tokens that each sequence gets."""
    prompt: int = 512
    """Tokens of each prompt."""
    kv_dtype: str | None = None
    """dtype of the key-value cache; None: that of the activations."""
    kv_block: int | None = None
    """Tokens in a block of a paged cache; None: room for the whole sequence from the start."""
    tensor_parallel: int = 1
    """Cards over which every layer is split."""
    prefill_chunk: int | None = None
    """The most tokens of a prompt that go through the model at a time; None: the whole prompt."""
    weights: str = ""
    """A quantisation (`int4`, `gptq`, `fp8`, …) or the path of a checkpoint; empty: as the configuration says."""

    @property
    def context(self) -> int:
        """Tokens of a sequence at the end."""
        return self.prompt + self.generate


def ranged(name: str, middle: float, low: float, high: float) -> dict[str, Any]:
    """The three fields of a figure that has a range."""
    return {name: middle, f"{name}_low": low, f"{name}_high": high}


class CacheLayers(Record):
    """Layers of one model that keep the same."""

    kind: str
    """`full`, `sliding` or `state`."""
    layers: int
    tokens: int
    """Tokens that each of them has room for, for each sequence; 0 for a state, which does not grow."""
    bytes: int
    """Of all these layers and all sequences, on one card."""


class ServingFit(Record):
    """What generating takes on one card, or on several together."""

    kv_cache_bytes: int
    """The cache at the end of the request, on all cards together."""
    kv_bytes_per_token: int
    """What one more token of one sequence takes, on all cards together; layers with a full window take nothing more."""
    cache: tuple[CacheLayers, ...]
    """What it consists of, on one card."""
    largest_context: int | None = None
    """The most tokens, prompt and generated ones together, that the batch can have; 0: none; None: not looked for."""
    context_limit: str = ""
    """`memory` or `positions` (of the model): what ends the context; empty where it is not known."""
    prefill_seconds: float | None = None
    """Simulated time to the first token: the prompts of the whole batch."""
    prefill_seconds_low: float | None = None
    """The range in which a real card's would be expected, simulated."""
    prefill_seconds_high: float | None = None
    decode_step_seconds: float | None = None
    """Simulated time of a later token, the mean over those that are generated."""
    decode_tokens_per_s: float | None = None
    """Simulated, of all sequences together, the first token left out."""
    decode_tokens_per_s_low: float | None = None
    decode_tokens_per_s_high: float | None = None
    decode_tokens_per_s_per_user: float | None = None
    decode_tokens_per_s_per_card: float | None = None
    communication_share: float | None = None
    """Part of the decode step in which cards exchange results."""
    decode_bound: str | None = None
    """`compute`, `bandwidth`, `launches` or `link`: what most of a decode step's time goes to."""


Bound = Literal["compute", "bandwidth", "launches", "link"]
"""What most of a step's time goes to: the units that compute, the memory, the host that launches, or copies."""


class PlannedTensor(Record, array_like=True):
    """A parameter or buffer of a model as it is, which its source may make otherwise."""

    path: str
    shape: tuple[int, ...]
    dtype: str
    trains: bool
    tied_to: str | None = None
    """The first path of the very same tensor, when this is not the first."""


def planned_tensors(snapshot: ObjectSnapshot) -> tuple[PlannedTensor, ...]:
    """Those of a model of the workspace; a lazy one, which has no shape yet, is left out."""
    return tuple(
        PlannedTensor(
            path=row.path,
            shape=row.shape,
            dtype=row.dtype,
            trains=bool(row.requires_grad),
            tied_to=row.tied_to,
        )
        for row in snapshot.rows
        if row.kind in ("parameter", "buffer") and row.registered and row.shape is not None and row.dtype is not None
    )


class FitSpec(Record):
    """What to run, and how."""

    source: str
    """A sample model's name, or a source as `core.isolation.model_source` reads it."""
    folder: str = ""
    """The folder that is importable; empty: the current one."""
    gpus: tuple[str, ...] = ()
    """Each `[Nx ]PROFILE[, ...]`: one card, or several over which the model is split. Empty: every profile, one card
    each."""
    batch: int = 1
    dtype: str | None = None
    """dtype of parameters and inputs; None: the model's own."""
    autocast: str | None = None
    """`float16`, `bfloat16`: what products are computed in."""
    train: bool = False
    """Forward, backward and a step of the optimizer; otherwise a forward without gradients."""
    optimizer: str = "adamw"
    """`sgd`, `momentum`, `adam`, `adamw`; of meaning with `train` only."""
    checkpointing: bool = False
    """Compute the activations of repeated blocks again in backward instead of keeping them."""
    tf32: bool = False
    """float32 matrix products in TF32 too; convolutions may use it anyway, as PyTorch's defaults have it."""
    channels_last: bool = False
    """Weights of convolutions and images in `torch.channels_last`."""
    input_copy: bool = False
    """The step copies its inputs from pageable memory of the host, and waits for them."""
    inputs: str = ""
    """Shapes as `--input` takes them (the first dimension is replaced by `batch`); empty: a guess."""
    search: bool = True
    """Look for the largest batch."""
    options: bool = True
    """Work out what would help."""
    curve: bool = False
    """Work out time and memory over the batch, on the first of `gpus`."""
    patience_seconds: float = 15.0
    """After so long only what was asked for is worked out: largest batches are computed, and what would help is
    named."""
    calibrations: tuple[Calibration, ...] = ()
    """Cards that `gpus` can name beside the profiles, with factors of their own; without `gpus` they are planned for
    too."""
    tensors: tuple[PlannedTensor, ...] = ()
    """Of a model of the workspace: what `source` makes is planned for as if it had these. Empty: as it is made."""
    serving: ServingSpec | None = None
    """Generate text; a step is then the whole request: prompts, and tokens one after the other."""


class FitBytes(Record):
    """Where the memory is at one moment, in blocks of the allocator (multiples of 512 B)."""

    parameters: int = 0
    buffers: int = 0
    gradients: int = 0
    optimizer: int = 0
    activations: int = 0
    """Everything else that is alive then: inputs, what backward needs, temporary tensors."""
    kv_cache: int = 0
    """Keys and values of a model that generates, and states in their place."""
    library_workspace: int = 0
    """cuBLAS and cuDNN. It comes from PyTorch's allocator."""
    context: int = 0
    """The CUDA context."""

    @property
    def allocated(self) -> int:
        """All tensors."""
        return self.parameters + self.buffers + self.gradients + self.optimizer + self.activations + self.kv_cache

    @property
    def from_allocator(self) -> int:
        """What `torch.cuda.memory_allocated` would say: everything without the context."""
        return self.allocated + self.library_workspace

    @property
    def total(self) -> int:
        """Everything."""
        return self.from_allocator + self.context


class FitCard(Record, omit_defaults=True):
    """One card of a fit."""

    gpu: str
    """The profile's name."""
    capacity_bytes: int
    """Without what the driver reserves."""
    bytes: FitBytes
    """At the moment when most is allocated."""
    reserved_bytes: int
    """The most that the allocator would have taken from the card, without context: with what its blocks leave over."""
    fits: bool
    rest: FitBytes = FitBytes()
    """After the step: what stays until the next one."""
    device: Literal["cuda", "mps"] = "cuda"
    """What PyTorch calls it; what MPS would reserve is not known, and no nvidia-smi sees it."""

    @property
    def used_bytes(self) -> int:
        """What nvidia-smi would say afterwards, of a card that nothing else uses: the allocator keeps its segments."""
        return self.reserved_bytes + self.bytes.context


class StepPart(Record):
    """A class of operations in a step; all simulated."""

    operations: str
    """`matrix products`, `convolutions`, …"""
    seconds: float
    """On the cards."""
    compute_bound_seconds: float
    """The part of it in kernels that are bound by computing rather than by memory."""
    flop: int
    nbytes: int
    """Read and written, each tensor of a kernel once."""
    kernels: int


class Fit(Record):
    """The answer for one card, or for several over which the model is split."""

    gpu: str
    """As it was asked for: `Tesla T4`, `2x Tesla T4`."""
    fits: bool
    cards: tuple[FitCard, ...]
    """One for each card."""
    largest_batch: int | None = None
    """The largest batch that fits; 0: not even one; None: not looked for."""
    at_least: bool = False
    """The search ended at its limit: a larger batch would fit too."""
    step_seconds: float | None = None
    """Simulated, by the cost model; None where it does not fit."""
    step_seconds_low: float | None = None
    """The range in which a real card's would be expected, simulated."""
    step_seconds_high: float | None = None
    samples_per_s: float | None = None
    """Simulated."""
    samples_per_s_low: float | None = None
    samples_per_s_high: float | None = None
    board_power_w: float | None = None
    """The datasheet's power limit, of all cards together; None where a profile has none."""
    bound: Bound | None = None
    """What bounds the step."""
    parts: tuple[StepPart, ...] = ()
    """The step by class of operation, what takes longest first."""
    reason: str = ""
    """Why it does not fit, or could not be split; empty otherwise."""
    serving: ServingFit | None = None
    """Where text is generated."""

    @property
    def samples_per_joule(self) -> float | None:
        """At the power limit, simulated: a card that waits for the host or for memory draws less."""
        return _per_joule(self.samples_per_s, self.board_power_w)

    @property
    def samples_per_joule_low(self) -> float | None:
        """Of the slowest step of the range."""
        return _per_joule(self.samples_per_s_low, self.board_power_w)

    @property
    def samples_per_joule_high(self) -> float | None:
        """Of the fastest step of the range."""
        return _per_joule(self.samples_per_s_high, self.board_power_w)

    @property
    def capacity_bytes(self) -> int:
        """Of all cards together."""
        return sum(card.capacity_bytes for card in self.cards)

    @property
    def bytes(self) -> FitBytes:
        """Of all cards together."""
        return _together(card.bytes for card in self.cards)

    @property
    def rest(self) -> FitBytes:
        """Of all cards together."""
        return _together(card.rest for card in self.cards)

    @property
    def reserved_bytes(self) -> int:
        """Of all cards together."""
        return sum(card.reserved_bytes for card in self.cards)

    @property
    def used_bytes(self) -> int:
        """Of all cards together."""
        return sum(card.used_bytes for card in self.cards)


def _per_joule(samples_per_s: float | None, watts: float | None) -> float | None:
    return samples_per_s / watts if samples_per_s is not None and watts else None


def _together(parts: Iterable[FitBytes]) -> FitBytes:
    found: Counter[str] = Counter()
    for each in parts:
        found.update(asdict(each))
    return FitBytes(**found)


class Help(Record):
    """Something that would make it smaller, worked out for the same batch."""

    key: str
    """`bfloat16`, `autocast`, `checkpointing`, `sgd`, `adam8bit`, `two-cards`, `half-batch`, …"""
    title: str
    """`Parameters and activations in bfloat16`"""
    words: str
    """One sentence with the numbers."""
    gpu: str
    """For which card the figures are."""
    total_bytes: int
    """What it would take then, on the fullest card."""
    saved_bytes: int
    """Against now, on the fullest card; negative: it takes more."""
    fits: bool
    largest_batch: int | None = None
    step_seconds: float | None = None
    """Simulated."""
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None


class BatchPoint(Record):
    """One batch of the curve; all simulated."""

    batch: int
    total_bytes: int
    """At the peak, on the fullest card."""
    capacity_bytes: int
    """Of that card."""
    fits: bool
    step_seconds: float | None = None
    """None where it does not fit."""
    step_seconds_low: float | None = None
    step_seconds_high: float | None = None


class MeasuredPeak(Record):
    """A device that a running script uses."""

    device: str
    """As the script calls it."""
    name: str
    """`Tesla T4`; empty: not known."""
    predicted_bytes: int
    """The most that a step would have allocated there."""
    measured_bytes: int | None
    """The most that was allocated so far; of the CPU: what the whole process had in memory. None: not counted."""
    simulated: bool

    @property
    def difference(self) -> float | None:
        """The prediction over what was measured, less 1; None where the two do not count the same."""
        if self.device == "cpu" or not self.measured_bytes:
            return None
        return self.predicted_bytes / self.measured_bytes - 1


class FitReport(Record):
    """Everything about one `FitSpec`."""

    spec: FitSpec
    fits: tuple[Fit, ...]
    """In the order of `spec.gpus`, or of the profiles."""
    late: tuple[str, ...] = ()
    """Cards that were asked for and that there was no time for."""
    helps: tuple[Help, ...] = ()
    """For the first of `spec.gpus` only."""
    untried: tuple[str, ...] = ()
    """Titles of what might help and was not worked out for want of time."""
    curve: tuple[BatchPoint, ...] = ()
    """By batch, on the first of `spec.gpus`; the last may be one that does not fit."""
    parameters: int = 0
    """Elements; tied ones once."""
    changed_tensors: int = 0
    """How many of `spec.tensors` the source makes otherwise."""
    inputs: str = ""
    """Shapes that were used."""
    flop_per_step: int | None = None
    assumptions: tuple[str, ...] = ()
    """What the figures rest on, a sentence each."""
    simulated: bool = True
    """Always: no card was asked."""
    measured: tuple[MeasuredPeak, ...] = ()
    """Of a running script, whose step was predicted from what it was seen to hold: the devices that it uses."""


class PlanFit(BaseCommand, tag="PlanFit"):
    """Ask the planner; runs in its own process and changes nothing. Answered with `FitPlanned`."""

    spec: FitSpec
    target: str = ""
    """A model of the workspace: then its source replaces `spec.source`."""


class FitPlanned(BaseEvent, tag="FitPlanned"):
    """What the planner says."""

    target: str
    report: FitReport
