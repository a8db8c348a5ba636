"""What a plan says about each card, as rows of a table: the parts of its memory, whether it fits, batch, time. Pure,
main thread."""

from __future__ import annotations

from typing import Final, NamedTuple

from devexplorer.core.base import MISSING, bytes_text, joined, number_text, range_text, sentence
from devexplorer.core.planner.messages import (
    BOUNDS,
    first_token_text,
    outcome,
    samples_text,
    step_text,
    tokens_text,
    workload,
)
from devexplorer.core.planner.records import Fit, FitBytes, FitReport
from devexplorer.gui.widgets import Cell, Column, TableRow, numbers

NO_POWER: Final = "No power limit is known for this card: its profile has none."
NO_STEP: Final = "Text is generated: there is no step with samples."
AT_LIMIT: Final = (
    "Samples of the simulated step over the datasheet's power limit times its seconds; a card that waits for memory or"
    " for the host draws less"
)
GIB: Final = 1 << 30
MANY: Final = 10
"""From so many times the capacity on, a share is given as a multiple, not in per cent."""
SIMULATED: Final = "Simulated by a cost model fitted to published steps: the range expected of a real card"
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
SERVING_COLUMNS = (
    *COLUMNS[:STEP],
    numbers("simulated first token", "Until the prompts of the whole batch went through: time to the first token"),
    numbers("simulated tokens/s", "Tokens of all sequences in a second, after the first one"),
    COLUMNS[ENERGY],
)


def columns(report: FitReport) -> tuple[Column, ...]:
    """What the columns say about this report."""
    return COLUMNS if report.spec.serving is None else SERVING_COLUMNS


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


def sizes(found: FitBytes) -> list[tuple[MemoryPart, int]]:
    """The parts that take anything, in the order of the bar."""
    return [(part, size) for part in PARTS if (size := getattr(found, part.key))]


def share_text(total: int, capacity: int) -> str:
    """`80 %`, and `5,646 ×` for what is many times too large."""
    if not total or not capacity:
        return MISSING
    share = total / capacity
    return f"{100 * share:.0f} %" if share < MANY else f"{share:,.0f} ×"


def has_step(fit: Fit) -> bool:
    """Whether it has samples to be counted: not where it does not fit, nor where text is generated."""
    return fit.step_seconds is not None and fit.serving is None


def efficiency_text(fit: Fit) -> str:
    """`2.03 to 3.27`, in samples a joule."""
    return range_text(number_text(fit.samples_per_joule_low), number_text(fit.samples_per_joule_high))


def efficiency_tip(fit: Fit) -> str:
    """Where the samples per joule come from, or why there are none."""
    if not has_step(fit):
        if not fit.fits:
            return "What does not fit takes no energy"
        return NO_SECONDS if fit.serving is None else NO_STEP
    if fit.board_power_w is None:
        return NO_POWER
    return f"{AT_LIMIT}: {fit.board_power_w:g} W. Simulated."


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
    """What the table has columns for where it is wide enough: the largest batch, and how fast it is."""
    said = outcome(fit)
    if has_step(fit):
        energy = f"{efficiency_text(fit)} samples/J at {fit.board_power_w:g} W" if fit.board_power_w else NO_POWER
        said.append(energy)
    return " ".join(map(sentence, said))


def caption(report: FitReport, name: str) -> str:
    """`gpt2 fits 20 of 22 cards (simulated): training with AdamW, batch 8, inputs 8x1024:int64`, for the line above the
    table."""
    if len(report.fits) == 1:
        [only] = report.fits
        result = f"{name} {'fits' if only.fits else 'does not fit'} {only.gpu}"
    else:
        result = f"{name} fits {sum(fit.fits for fit in report.fits) or 'none'} of {len(report.fits)} cards"
    if report.late:
        result += f"; no time was left for {len(report.late)} more"
    return f"{result} (simulated): {workload(report)}"


def fit_row(fit: Fit) -> TableRow:
    """The row of a card, or group of cards, known by what was asked for."""
    total, capacity, serving = fit.bytes.total, fit.capacity_bytes, fit.serving
    parts = "\n".join(f"{part.name}: {bytes_text(size)}" for part, size in sizes(fit.bytes))
    what = f"{fit.gpu}, simulated"
    if len(fit.cards) > 1:
        what += f", split over {len(fit.cards)} cards"
    batch = MISSING
    if fit.largest_batch is not None:
        batch = f"{'≥ ' if fit.at_least else ''}{fit.largest_batch:,}"
    clock = NOT_TIMED
    if fit.fits:
        clock = NO_SECONDS if fit.step_seconds is None else SIMULATED
    if serving is None:
        if fit.bound is not None:
            clock += f"\n{sentence(BOUNDS[fit.bound])}"
        times = step_text(fit), samples_text(fit), efficiency_text(fit)
    else:
        if serving.decode_tokens_per_s_per_user is not None:
            clock += f"\nAbout {number_text(serving.decode_tokens_per_s_per_user)} tokens/s for each user"
        times = first_token_text(serving), tokens_text(serving), MISSING
    cells = (
        Cell(fit.gpu, tip=joined("\n", what, batch_and_step(fit))),
        Cell(share_text(total, capacity), tip=f"{what}\n{parts}"),
        Cell(f"{total / GIB:,.2f}" if total else MISSING, tip=f"{bytes_text(total)}, simulated" if total else ""),
        Cell(f"{capacity / GIB:,.1f}", tip=bytes_text(capacity)),
        Cell("✓ yes" if fit.fits else "✕ no", "" if fit.fits else "error", verdict(fit)),
        Cell(batch, "" if fit.largest_batch else "dim", AT_LEAST if fit.at_least else ""),
        Cell(times[0], tip=clock),
        Cell(times[1], tip=clock),
        Cell(times[2], tip=efficiency_tip(fit)),
    )
    return TableRow(fit.gpu, cells)
