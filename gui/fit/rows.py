"""What a plan says about each card, as rows of a table: the parts of its memory, whether it fits, batch, time. Pure,
main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from devexplorer.core.base import (
    MISSING,
    OPTIMIZERS,
    bytes_text,
    count_text,
    joined,
    number_text,
    range_text,
    seconds_text,
    sentence,
)
from devexplorer.core.planner.messages import measured
from devexplorer.core.planner.records import (
    BatchPoint,
    Bound,
    CacheLayers,
    Fit,
    FitBytes,
    FitReport,
    Help,
    ServingFit,
    ServingSpec,
)
from devexplorer.gui.widgets import Cell, Column, TableRow, numbers

BOUNDS: Final[dict[Bound, str]] = {
    "compute": "bound by compute",
    "bandwidth": "bound by memory bandwidth",
    "launches": "bound by launches: a larger batch or CUDA graphs would help",
    "link": "bound by copies between cards",
}
"""What most of a step's time goes to, in words."""
NO_POWER: Final = "No power limit is known for this card: its profile has none."
NO_STEP: Final = "Text is generated: there is no step with samples."
AT_LIMIT: Final = (
    "Samples of the simulated step over the datasheet's power limit times its seconds; a card that waits for memory or"
    " for the host draws less"
)


def step_range(item: Fit | Help | BatchPoint) -> str:
    """`280 to 450 ms`: where a real card's step would be expected."""
    return range_text(seconds_text(item.step_seconds_low), seconds_text(item.step_seconds_high))


def rate_range(fit: Fit) -> str:
    """`142 to 229`, in samples a second."""
    return range_text(number_text(fit.samples_per_s_low), number_text(fit.samples_per_s_high))


def efficiency_range(fit: Fit) -> str:
    """`2.03 to 3.27`, in samples a joule."""
    return range_text(number_text(fit.samples_per_joule_low), number_text(fit.samples_per_joule_high))


def bound_text(fit: Fit) -> str:
    """Empty where there is no step."""
    return BOUNDS[fit.bound] if fit.bound is not None else ""


def has_step(fit: Fit) -> bool:
    """Whether it has samples to be counted: not where it does not fit, nor where text is generated."""
    return fit.step_seconds is not None and fit.serving is None


def efficiency_tip(fit: Fit) -> str:
    """Where the samples per joule come from, or why there are none."""
    if not has_step(fit):
        if not fit.fits:
            return "What does not fit takes no energy"
        return NO_SECONDS if fit.serving is None else NO_STEP
    if fit.board_power_w is None:
        return NO_POWER
    return f"{AT_LIMIT}: {fit.board_power_w:g} W. Simulated."


def efficiency_text(fit: Fit) -> str:
    """A sentence for the details; empty where there is no step."""
    if not has_step(fit):
        return ""
    text = efficiency_range(fit)
    if text == MISSING:
        return NO_POWER
    return f"{text} samples/J at {fit.board_power_w:g} W."


KINDS = {"full": "full attention", "sliding": "a sliding window", "state": "a state"}


def serving_columns(columns: Sequence[Column], step: int, rate: int) -> tuple[Column, ...]:
    """The columns of the table, with those of the step in other words."""
    first = "Until the prompts of the whole batch went through: time to the first token"
    then = "Tokens of all sequences in a second, after the first one"
    changed = {step: numbers("simulated first token", first), rate: numbers("simulated tokens/s", then)}
    return tuple(changed.get(index, column) for index, column in enumerate(columns))


def serving_cells(serving: ServingFit, tip: str) -> tuple[Cell, Cell]:
    """Time to the first token, and tokens a second."""
    user = number_text(serving.decode_tokens_per_s_per_user)
    each = f"{tip}\nAbout {user} tokens/s for each user" if serving.decode_tokens_per_s else tip
    return Cell(_first(serving), tip=tip), Cell(_rate(serving), tip=each)


def _first(serving: ServingFit) -> str:
    return range_text(seconds_text(serving.prefill_seconds_low), seconds_text(serving.prefill_seconds_high))


def _rate(serving: ServingFit) -> str:
    return range_text(number_text(serving.decode_tokens_per_s_low), number_text(serving.decode_tokens_per_s_high))


def serving_text(fit: Fit, serving: ServingFit) -> str:
    """The cache, the largest batch and context, and how fast it is, in sentences."""
    said = [f"KV cache {bytes_text(serving.kv_cache_bytes)}: {', '.join(map(_layers, serving.cache))}."]
    if fit.largest_batch == 0:
        said.append("No batch fits.")
    elif fit.largest_batch is not None:
        said.append(f"Largest batch: {fit.largest_batch:,}{' or more' if fit.at_least else ''}.")
    if serving.largest_context is not None:
        said.append(_context(serving, serving.largest_context))
    if serving.prefill_seconds is not None:
        said.append(f"First token after {_first(serving)}.")
    if serving.decode_step_seconds is not None:
        said.append(_rates(serving))
    return " ".join(said)


def _rates(serving: ServingFit) -> str:
    user = number_text(serving.decode_tokens_per_s_per_user)
    rates = f"Then {_rate(serving)} tokens/s, about {user} for each user, bound by {serving.decode_bound}"
    if serving.communication_share is None:
        return f"{rates}."
    card, share = number_text(serving.decode_tokens_per_s_per_card), 100 * serving.communication_share
    return f"{rates}, {card} on each card; cards exchange results for {share:.0f} % of the time."


def _context(serving: ServingFit, tokens: int) -> str:
    if not tokens:
        return "No context fits."
    limit = ", all that the model has positions for" if serving.context_limit == "positions" else ""
    return f"Longest context: {tokens:,} tokens{limit}."


def _layers(layers: CacheLayers) -> str:
    return f"{count_text(layers.layers, 'layer')} with {KINDS[layers.kind]}"


def _cache(serving: ServingSpec) -> str:
    """`KV cache float8_e4m3fn in blocks of 16`; empty where it is of the activations' dtype and whole."""
    told = (serving.kv_dtype or "", f"in blocks of {serving.kv_block}" if serving.kv_block else "")
    return f"KV cache {joined(' ', *told)}" if any(told) else ""


def serving_caption(report: FitReport) -> str:
    """`16 prompts of 2,048 tokens, 512 generated, KV cache float8_e4m3fn`."""
    serving = report.spec.serving
    assert serving is not None
    facts = (
        report.spec.dtype or "",
        f"{count_text(report.spec.batch, 'prompt')} of {serving.prompt:,} tokens",
        f"{serving.generate:,} generated",
        _cache(serving),
        f"prefill of {serving.prefill_chunk:,} tokens at a time" if serving.prefill_chunk else "",
        f"{serving.weights} weights" if serving.weights else "",
        f"{serving.tensor_parallel} cards each" if serving.tensor_parallel > 1 else "",
    )
    return joined(", ", *facts) or MISSING


GIB: Final = 1 << 30
MANY: Final = 10
"""From so many times the capacity on, a share is given as a multiple, not in per cent."""
SIMULATED: Final = "Simulated by a cost model fitted to published steps: the range expected of a real card"
SERVED: Final = "Simulated by a cost model fitted to published steps; no real card was asked"
NOT_TIMED: Final = "What does not fit takes no time"
NO_SECONDS: Final = "Seconds are not predicted from the step of a running script"
AT_LEAST: Final = "The search ended there: a larger batch would fit too"

CARD, MEMORY, TOTAL, CAPACITY, FITS, BATCH, STEP, RATE, ENERGY = range(9)
COLUMNS = (
    Column("card"),
    Column("memory", "Peak memory against the card's capacity (the line); anything beyond the line does not fit"),
    numbers("takes GiB", "At the moment when most is allocated, with the CUDA context and the workspace of libraries"),
    numbers("of GiB", "Memory of the card; of all cards together where the model is split"),
    Column("fits"),
    numbers("largest batch", "The largest batch that fits"),
    numbers("simulated step", "One step of the requested batch: the range expected of a real card"),
    numbers("simulated samples/s", "Samples of the batch in a second of the simulated step"),
    numbers("simulated samples/J", AT_LIMIT),
)


def columns(report: FitReport) -> tuple[Column, ...]:
    """What the columns say about this report."""
    return COLUMNS if report.spec.serving is None else serving_columns(COLUMNS, STEP, RATE)


class MemoryPart(NamedTuple):
    """One part of the memory."""

    key: str
    """A field of `FitBytes`."""
    name: str
    meaning: str


PARTS = (
    MemoryPart("parameters", "parameters", "Weights and biases, tied ones once"),
    MemoryPart("gradients", "gradients", "One for each parameter that is trained"),
    MemoryPart("optimizer", "optimizer state", "What the optimizer keeps for each parameter"),
    MemoryPart("kv_cache", "KV cache", "Keys and values of every token, and states in their place, at the end"),
    MemoryPart("activations", "activations", "Inputs, what backward needs, and temporary tensors; at rest the inputs"),
    MemoryPart("buffers", "buffers", "Running statistics, masks, tables"),
    MemoryPart("library_workspace", "library workspace", "What cuBLAS and cuDNN take for themselves"),
    MemoryPart("context", "CUDA context", "The driver's and PyTorch's kernels on the card"),
)
"""From left to right in the bar."""


AT_PEAK, AT_REST = "at the peak", "at rest"
PEAK_TIP: Final = "At the moment when most is allocated, often when backward begins: then there is hardly a gradient"
REST_TIP: Final = "After the step, until the next one"


def sizes(found: FitBytes) -> list[tuple[MemoryPart, int]]:
    """The parts that take anything, in the order of the bar."""
    return [(part, size) for part in PARTS if (size := getattr(found, part.key))]


def fit_rows(fits: Sequence[Fit]) -> list[TableRow]:
    """A row for each card, or group of cards, known by what was asked for."""
    return [TableRow(fit.gpu, _cells(fit)) for fit in fits]


def share_text(total: int, capacity: int) -> str:
    """`80 %`, and `5,646 ×` for what is many times too large."""
    if not total or not capacity:
        return MISSING
    share = total / capacity
    return f"{100 * share:.0f} %" if share < MANY else f"{share:,.0f} ×"


def verdict(fit: Fit) -> str:
    """One or two sentences: whether it fits, and by how much."""
    total, capacity = fit.bytes.total, fit.capacity_bytes
    if not fit.fits:
        return sentence(fit.reason) or f"It needs {bytes_text(total)}, and there are {bytes_text(capacity)}."
    words = f"{bytes_text(total)} of {bytes_text(capacity)}; {bytes_text(capacity - total)} left."
    if len(fit.cards) > 1:
        shares = ", ".join(bytes_text(card.bytes.total) for card in fit.cards)
        words += f" Split over {len(fit.cards)} cards, in their order: {shares}."
    return words


def as_tools_say(fit: Fit) -> str:
    """What PyTorch and nvidia-smi would show for this: their figures count different things."""
    if not fit.bytes.total:
        return ""
    peak, rest = bytes_text(fit.bytes.from_allocator), bytes_text(fit.rest.from_allocator)
    if any(card.device == "mps" for card in fit.cards):
        return f"PyTorch would report {rest} after the step (torch.mps.current_allocated_memory)."
    return (
        f"PyTorch would report {peak} (max_memory_allocated) and {rest} after the step (memory_allocated); nvidia-smi"
        f" {bytes_text(fit.used_bytes)}, with segments that the allocator keeps and the CUDA context."
    )


def batch_and_step(fit: Fit) -> str:
    """What the table has columns for where it is wide enough: the largest batch, and how long a step takes."""
    if fit.serving is not None:
        return serving_text(fit, fit.serving)
    said = ["No batch fits."] if fit.largest_batch == 0 else []
    if fit.largest_batch:
        said.append(f"Largest batch: {fit.largest_batch:,}{' or more' if fit.at_least else ''}.")
    if fit.step_seconds is not None:
        bound = f", {bound_text(fit)}" if fit.bound is not None else ""
        said.append(f"A step takes {step_range(fit)}, {rate_range(fit)} samples/s{bound}.")
        said.append(efficiency_text(fit))
    return " ".join(said)


def caption(report: FitReport, name: str) -> str:
    """`gpt2 fits 20 of 22 cards (simulated): training with AdamW, batch 8, inputs 8x1024:int64`, for the line above the
    table."""
    spec = report.spec
    if len(report.fits) == 1:
        (only,) = report.fits
        result = f"{name} {'fits' if only.fits else 'does not fit'} {only.gpu}"
    else:
        result = f"{name} fits {sum(fit.fits for fit in report.fits) or 'none'} of {len(report.fits)} cards"
    if report.late:
        result += f"; no time was left for {len(report.late)} more"
    if spec.serving is not None:
        return f"{result} (simulated): {serving_caption(report)}"
    precision = f"autocast {spec.autocast}" if spec.autocast else spec.dtype or ""
    known = OPTIMIZERS.get(spec.optimizer)
    optimizer = spec.optimizer if known is None else known.title
    work = f"training with {optimizer}" if spec.train else "a forward without gradients"
    facts = (
        work,
        "checkpointing" if spec.checkpointing else "",
        precision,
        "TF32" if spec.tf32 else "",
        "channels_last" if spec.channels_last else "",
        "inputs copied from the host" if spec.input_copy else "",
        f"batch {spec.batch:,}" if spec.batch else "",
        f"inputs {report.inputs}" if report.inputs else "",
        *(f"{where}: {words}" for where, words in measured(report)),
    )
    return f"{result} (simulated): {joined(', ', *facts)}"


def _cells(fit: Fit) -> tuple[Cell, ...]:
    total, capacity = fit.bytes.total, fit.capacity_bytes
    parts = "\n".join(f"{part.name}: {bytes_text(size)}" for part, size in sizes(fit.bytes))
    several = f", split over {len(fit.cards)} cards" if len(fit.cards) > 1 else ""
    fits = Cell("✓ yes", tip=verdict(fit)) if fit.fits else Cell("✕ no", "error", verdict(fit))
    batch = MISSING
    if fit.largest_batch is not None:
        batch = f"{'≥ ' if fit.at_least else ''}{fit.largest_batch:,}"
    clock = NO_SECONDS if fit.fits else NOT_TIMED
    if fit.step_seconds:
        clock = joined("\n", SIMULATED, sentence(bound_text(fit)))
    if fit.serving is None:
        times = (
            Cell(step_range(fit), tip=clock),
            Cell(rate_range(fit), tip=clock),
            Cell(efficiency_range(fit), tip=efficiency_tip(fit)),
        )
    else:
        times = (*serving_cells(fit.serving, SERVED if fit.fits else NOT_TIMED), Cell(MISSING, tip=NO_STEP))
    return (
        Cell(fit.gpu, tip=f"{fit.gpu}, simulated{several}\n{batch_and_step(fit)}".rstrip()),
        Cell(share_text(total, capacity), tip=f"{fit.gpu}, simulated{several}\n{parts}"),
        Cell(f"{total / GIB:,.2f}" if total else MISSING, tip=f"{bytes_text(total)}, simulated" if total else ""),
        Cell(f"{capacity / GIB:,.1f}", tip=bytes_text(capacity)),
        fits,
        Cell(batch, "" if fit.largest_batch else "dim", AT_LEAST if fit.at_least else ""),
        *times,
    )
