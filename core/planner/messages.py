"""What the planner says in words, on the command line and in the window alike: why something does not fit, what was
found, and what the figures rest on. Pure functions; any thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import groupby

from devexplorer.core.base import (
    OPTIMIZERS,
    bytes_text,
    count_text,
    joined,
    list_text,
    number_text,
    range_text,
    seconds_text,
)
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import (
    BatchPoint,
    Fit,
    FitCard,
    FitReport,
    FitSpec,
    Help,
    ServingFit,
)
from devexplorer.core.records import Calibration
from devexplorer.core.virtual.device.cost import PAGEABLE_BYTES_S, TITLES
from devexplorer.core.virtual.device.machine import CONTEXT_BYTES

PARTS = {
    "parameters": "parameters",
    "buffers": "buffers",
    "gradients": "gradients",
    "optimizer": "optimizer state",
    "activations": "activations",
    "kv_cache": "the KV cache",
    "library_workspace": "workspaces of libraries",
    "context": "the CUDA context",
}
"""Field of `FitBytes` -> what it is called."""


CONTEXT = (
    f"The CUDA context takes {bytes_text(CONTEXT_BYTES)}; a real one differs by card and grows with the kernels in use."
)
MPS_MEMORY = (
    "An Apple chip has as much memory as macOS recommends its GPU to use (Metal's recommendedMaxWorkingSetSize): two"
    " thirds of up to 32 GB, three quarters of more; newer versions allow more of large memories. PyTorch's mps device"
    " goes on to 1.7 times that (PYTORCH_MPS_HIGH_WATERMARK_RATIO), where macOS compresses and swaps."
)
MPS_RULES = (
    "Under MPS attention is products and a softmax, as without flash attention, and there are no CUDA context and no"
    " workspaces of cuBLAS and cuDNN. Blocks follow the rules of CUDA's allocator, which MPS's is based on; its heaps"
    " of 8 MiB, 32 MiB and 1 GiB, what Metal keeps for itself and the temporary buffers of MPSGraph are not counted."
    " Code that asks for CUDA fails there."
)
MPS_SECONDS = (
    "Seconds of an Apple chip are not verified: no published step was compared, and the stated range is a factor of two"
    " either way, of up to four where the host bounds the step, as with small models. Its rate is derived from clocks"
    " and units, of which 0.63 are taken to be reached, and 0.83 of its bandwidth (an M4 in arXiv 2502.05317)."
)


BOUNDS: dict[str, str] = {
    "compute": "bound by compute",
    "bandwidth": "bound by memory bandwidth",
    "launches": "bound by launches: a larger batch or CUDA graphs would help",
    "link": "bound by copies between cards",
}
"""What most of a step's time goes to."""
LAYERS = {"full": "full attention", "sliding": "a sliding window", "state": "a state"}


def label(profiles: Iterable[Profile]) -> str:
    """`Tesla T4`, `2x Tesla T4`, `Tesla T4, NVIDIA A10`."""
    names = []
    for name, same in groupby(profile.name for profile in profiles):
        count = len(list(same))
        names.append(name if count == 1 else f"{count}x {name}")
    return ", ".join(names)


def reason(cards: Sequence[FitCard]) -> str:
    """Why it does not fit, of the card that is short of most; empty when all have room."""
    short = [card for card in cards if not card.fits]
    if not short:
        return ""
    card = max(short, key=lambda card: card.bytes.total - card.capacity_bytes)
    who = "the card"
    if len(cards) > 1:
        who = f"card {cards.index(card) + 1} ({card.gpu})"
    needs, has = bytes_text(card.bytes.total), bytes_text(card.capacity_bytes)
    if card.bytes.total <= card.capacity_bytes:
        return (
            f"it needs {needs} of the {has} that {who} has, but in blocks that do not fit into what is left of the"
            f" segments: on a larger card it would reserve {bytes_text(card.used_bytes)}"
        )
    part = max(PARTS, key=lambda field: getattr(card.bytes, field))
    return (
        f"it needs {needs}, {who} has {has}; the largest part is {PARTS[part]}, {bytes_text(getattr(card.bytes, part))}"
    )


def measured(report: FitReport) -> list[tuple[str, str]]:
    """Of a running script: each device that it uses, and what was predicted for it beside what was measured."""
    said = []
    for one in report.measured:
        where = f"{one.device} (simulated)" if one.simulated else one.device
        words = f"{bytes_text(one.predicted_bytes)} predicted"
        if one.measured_bytes is not None:
            of_process = " by the whole process" if one.device == "cpu" else ""
            words += f", {bytes_text(one.measured_bytes)} measured{of_process}"
        if one.difference is not None:
            words += f" ({_signed(100 * one.difference)} %)"
        said.append((where, words))
    return said


def _signed(number: float) -> str:
    """
    >>> _signed(2.34), _signed(-0.01)
    ('+2.3', '0.0')
    """
    text = f"{number:+.1f}"
    return "0.0" if text in ("+0.0", "-0.0") else text


def step_text(item: Fit | Help | BatchPoint) -> str:
    """`280 to 450 ms`: where a real card's step would be expected."""
    return range_text(seconds_text(item.step_seconds_low), seconds_text(item.step_seconds_high))


def samples_text(fit: Fit) -> str:
    """`142 to 229`, in samples a second."""
    return range_text(number_text(fit.samples_per_s_low), number_text(fit.samples_per_s_high))


def first_token_text(serving: ServingFit) -> str:
    """`200 to 300 ms`, until the prompts of the whole batch went through."""
    return range_text(seconds_text(serving.prefill_seconds_low), seconds_text(serving.prefill_seconds_high))


def tokens_text(serving: ServingFit) -> str:
    """`700 to 900`, in tokens of all sequences a second."""
    return range_text(number_text(serving.decode_tokens_per_s_low), number_text(serving.decode_tokens_per_s_high))


def outcome(fit: Fit) -> list[str]:
    """The largest batch and context, the cache, and how fast it is: a part of a sentence each."""
    said = []
    serving = fit.serving
    if fit.largest_batch == 0:
        said.append("no batch fits")
    elif fit.largest_batch is not None:
        said.append(f"largest batch {fit.largest_batch:,}{' or more' if fit.at_least else ''}")
    if serving is not None:
        said += _served(serving)
    elif fit.bound is not None:
        said.append(f"one step {step_text(fit)}, {samples_text(fit)} samples/s (simulated), {BOUNDS[fit.bound]}")
    return said


def _served(serving: ServingFit) -> list[str]:
    said = []
    if serving.largest_context == 0:
        said.append("no context fits")
    elif serving.largest_context is not None:
        limit = ", all that the model has positions for" if serving.context_limit == "positions" else ""
        said.append(f"longest context {serving.largest_context:,} tokens{limit}")
    cache = [f"KV cache {bytes_text(serving.kv_cache_bytes)}"]
    for layers in serving.cache:
        room = f" and room for {layers.tokens:,} tokens" if layers.tokens else ""
        cache.append(f"{count_text(layers.layers, 'layer')} with {LAYERS[layers.kind]}{room}")
    said.append(", ".join(cache))
    if serving.prefill_seconds is not None:
        said.append(f"first token after {first_token_text(serving)} (simulated)")
    if serving.decode_bound is not None:
        user = number_text(serving.decode_tokens_per_s_per_user)
        rates = f"then {tokens_text(serving)} tokens/s (simulated), about {user} for each user"
        if serving.communication_share is not None:
            card, share = number_text(serving.decode_tokens_per_s_per_card), 100 * serving.communication_share
            rates += f", {card} on each card, which exchange results {share:.0f} % of the time"
        said.append(f"{rates}, {BOUNDS[serving.decode_bound]}")
    return said


def workload(report: FitReport) -> str:
    """`training with AdamW in bfloat16, checkpointing, batch 8, inputs 8x1024:int64`."""
    spec, serving = report.spec, report.spec.serving
    if serving is not None:
        return joined(
            ", ",
            f"{count_text(spec.batch, 'prompt')} of {serving.prompt:,} tokens",
            f"{serving.generate:,} generated",
            spec.dtype and f"in {spec.dtype}",
            serving.kv_dtype and f"KV cache in {serving.kv_dtype}",
            f"KV cache in blocks of {serving.kv_block}" if serving.kv_block else "",
            f"prefill of {serving.prefill_chunk:,} tokens at a time" if serving.prefill_chunk else "",
            serving.weights and f"{serving.weights} weights",
            f"over {serving.tensor_parallel} cards" if serving.tensor_parallel > 1 else "",
        )
    work = "a forward without gradients"
    if spec.train:
        known = OPTIMIZERS.get(spec.optimizer)
        work = f"training with {spec.optimizer if known is None else known.title}"
    return joined(
        ", ",
        f"{work} in {spec.dtype}" if spec.dtype else work,
        spec.autocast and f"autocast to {spec.autocast}",
        "checkpointing" if spec.checkpointing else "",
        "TF32" if spec.tf32 else "",
        "channels_last" if spec.channels_last else "",
        "inputs copied from the host" if spec.input_copy else "",
        f"batch {spec.batch:,}" if spec.batch else "",
        report.inputs and f"inputs {report.inputs}",
        *(f"{where}: {words}" for where, words in measured(report)),
    )


def calibrated(profiles: Iterable[Profile]) -> list[str]:
    """A sentence for each calibrated card."""
    return list(dict.fromkeys(_calibrated(profile.name, own) for profile in profiles if (own := profile.calibration)))


def _calibrated(name: str, calibration: Calibration) -> str:
    factors = ", ".join(f"{TITLES.get(key, key)} {value:.2f}" for key, value in calibration.values.items())
    origin = "measured on a virtual GPU, so they say nothing about a real card"
    if not calibration.simulated:
        where = f"{calibration.device} of {calibration.host or 'this machine'}"
        origin = f"measured on {where} with torch {calibration.torch_version}"
    return f"{name} has its own factors instead of the cost model's averages ({factors}), {origin}."


def assumptions(
    spec: FitSpec,
    *,
    devices: Sequence[str],
    products: bool,
    convolutions: bool,
    recurrent: bool,
    compilers: Sequence[str],
    second: str | None,
    output_bytes: int,
    changed: int = 0,
    sparse: bool = False,
) -> list[str]:
    """What the figures rest on, a sentence each. `second`: a layer whose second dimension is the batch. `output_bytes`:
    0 where the model returns its loss."""
    sentences = [
        "Nothing ran on a real card: memory is counted by the rules of PyTorch's caching allocator, seconds are"
        " simulated by a cost model that was fitted to published steps."
    ]
    if changed:
        sentences.append(as_it_is(changed))
    cuda = "cuda" in devices
    if cuda:
        sentences.append(CONTEXT)
    if "mps" in devices:
        sentences += [MPS_MEMORY, MPS_RULES, MPS_SECONDS]
    if products and cuda:
        sentences.append("cuBLAS takes the workspace that PyTorch gives it by default on each architecture.")
    if convolutions and cuda:
        sentences.append(
            "cuDNN takes 64 MiB for a convolution. This is an estimate: it depends on the algorithm that it chooses"
            " on the card."
        )
    if recurrent and cuda:
        sentences.append(
            "Recurrent layers are one call of the host, as with cuDNN; what their kernels take is counted step by step,"
            " without cuDNN's workspace: an H200 took half of the time for an LSTM."
        )
    if second is not None:
        sentences.append(
            f"The batch is the first dimension of every input; '{second}' was made with batch_first=False, so unless"
            " the model swaps them the batch here is the length of its sequences, and the second dimension in the"
            " given shapes is the batch."
        )
    if sparse:
        sentences.append(
            "Embeddings with sparse gradients (sparse=True) are planned for with dense ones: a real step takes less"
            " memory and time. PyTorch's Adam and AdamW refuse sparse gradients; SGD without momentum takes them."
        )
    if compilers:
        sentences.append(
            f"What {list_text(compilers)} would fuse is counted operation by operation, with every tensor between them."
        )
    if spec.input_copy:
        sentences.append(
            f"Each step waits for a copy of its inputs from pageable memory, {PAGEABLE_BYTES_S / 1e9:g} GB/s beside the"
            " workers of a data loader; with pinned memory and non_blocking=True it would take less."
        )
    if spec.train:
        sentences.append(
            "Every parameter that requires a gradient is trained. The loop is the usual one: optimizer.zero_grad() (to"
            " None), output = model(input), loss, loss.backward(), optimizer.step(); output and loss live until the"
            " next forward replaces them; del output, loss would free them earlier."
        )
        if output_bytes:
            sentences.append(
                "The loss is the sum of the outputs; a cross entropy over them would keep about "
                f"{bytes_text(output_bytes)} and take as much again in its backward."
            )
        else:
            sentences.append("The loss is the one that the model returns.")
    return sentences


def as_it_is(changed: int) -> str:
    """Of a model whose tensors are not as its source makes them."""
    return (
        f"The model is planned for as it is in the workspace, with {count_text(changed, 'tensor')} unlike what its"
        " source makes: frozen or trained, tied or not, in another dtype or shape."
    )
