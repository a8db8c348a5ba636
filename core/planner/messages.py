"""What the planner says in words: why something does not fit, and what its figures rest on. Pure functions; any
thread."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from devexplorer.core.base import bytes_text, count_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import FitCard, FitReport, FitSpec
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


def reason(cards: Sequence[FitCard]) -> str:
    """Why it does not fit, of the card that is short of most; empty when all have room."""
    short = [card for card in cards if not card.fits]
    if not short:
        return ""
    card = max(short, key=lambda card: card.bytes.total - card.capacity_bytes)
    who = "the card" if len(cards) == 1 else f"card {cards.index(card) + 1} ({card.gpu})"
    part = max(PARTS, key=lambda field: getattr(card.bytes, field))
    needs, has = bytes_text(card.bytes.total), bytes_text(card.capacity_bytes)
    if card.bytes.total <= card.capacity_bytes:
        return (
            f"it needs {needs} of the {has} that {who} has, but in blocks that do not fit into what is left of the"
            f" segments: on a larger card it would reserve {bytes_text(card.reserved_bytes + card.bytes.context)}"
        )
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


def calibrated(profiles: Iterable[Profile]) -> list[str]:
    """A sentence for each calibrated card."""
    known = {profile.name: profile.calibration for profile in profiles if profile.calibration is not None}
    return [_calibrated(name, calibration) for name, calibration in known.items()]


def _calibrated(name: str, calibration: Calibration) -> str:
    factors = ", ".join(f"{TITLES.get(key, key)} {value:.2f}" for key, value in calibration.values.items())
    if calibration.simulated:
        origin = "measured on a virtual GPU, so they say nothing about a real card"
    else:
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
            f"What {' and '.join(compilers)} would fuse is counted operation by operation, with every tensor between"
            " them."
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
