"""What a plan says about each card, as rows of a table: the parts of its memory, whether it fits, batch, time. Pure,
main thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final, NamedTuple

from devexplorer.core.base import MISSING, OPTIMIZERS, bytes_text, sentence
from devexplorer.core.records import Fit, FitBytes, FitReport
from devexplorer.gui.fit.ranges import (
    AT_LIMIT,
    NO_STEP,
    bound_text,
    efficiency_range,
    efficiency_text,
    efficiency_tip,
    rate_range,
    step_range,
)
from devexplorer.gui.fit.serving_rows import serving_caption, serving_cells, serving_columns, serving_text
from devexplorer.gui.widgets.table import Cell, Column, TableRow, numbers

GIB: Final = 1 << 30
MANY: Final = 10
"""From so many times the capacity on, a share is given as a multiple, not in per cent."""
SIMULATED: Final = "Simulated by a cost model fitted to published steps: the range expected of a real card"
SERVED: Final = "Simulated by a cost model fitted to published steps; no real card was asked"
NOT_TIMED: Final = "What does not fit takes no time"
AT_LEAST: Final = "The search ended there: a larger batch would fit too"

CARD, MEMORY, TOTAL, CAPACITY, FITS, BATCH, STEP, RATE, ENERGY = range(9)
COLUMNS = (
    Column("card"),
    Column("memory", "Peak memory against the card's capacity (the line); anything beyond the line does not fit"),
    numbers("takes GiB", "At the moment when most is allocated, with the CUDA context and the workspace of libraries"),
    numbers("of GiB", "Memory of the card; of all cards together where the model is split"),
    Column("fits"),
    numbers("largest batch", "The largest batch that fits"),
    numbers("simulated step", "One step of the batch that was asked for: the range expected of a real card"),
    numbers("simulated samples/s", "Samples of the batch in a second of the simulated step"),
    numbers("simulated samples/J", AT_LIMIT),
)


def columns(report: FitReport) -> tuple[Column, ...]:
    """What the columns say about this report."""
    return COLUMNS if report.spec.serving is None else serving_columns(COLUMNS, STEP, RATE)


class Part(NamedTuple):
    """One part of the memory."""

    key: str
    """A field of `FitBytes`."""
    name: str
    meaning: str


PARTS = (
    Part("parameters", "parameters", "Weights and biases, tied ones once"),
    Part("gradients", "gradients", "One for each parameter that is trained"),
    Part("optimizer", "optimizer state", "What the optimizer keeps for each parameter"),
    Part("kv_cache", "KV cache", "Keys and values of every token, and states in their place, at the end"),
    Part("activations", "activations", "Inputs, what backward needs, and temporary tensors; at rest the inputs"),
    Part("buffers", "buffers", "Running statistics, masks, tables"),
    Part("library_workspace", "library workspace", "What cuBLAS and cuDNN take for themselves"),
    Part("context", "CUDA context", "The driver's and PyTorch's kernels on the card"),
)
"""From left to right in the bar."""


AT_PEAK, AT_REST = "at the peak", "at rest"
PEAK_TIP: Final = "At the moment when most is allocated, often when backward begins: then there is hardly a gradient"
REST_TIP: Final = "After the step, until the next one"


def sizes(found: FitBytes) -> list[tuple[Part, int]]:
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
    words = f"{bytes_text(total)} of {bytes_text(capacity)}; {bytes_text(capacity - total)} are left."
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
        return f"PyTorch would say {rest} after the step (torch.mps.current_allocated_memory)."
    return (
        f"PyTorch would say {peak} (max_memory_allocated) and {rest} after the step (memory_allocated); nvidia-smi"
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
    work = f"training with {OPTIMIZERS[spec.optimizer].title}" if spec.train else "a forward without gradients"
    facts = (
        work,
        "checkpointing" if spec.checkpointing else "",
        precision,
        "TF32" if spec.tf32 else "",
        "channels_last" if spec.channels_last else "",
        f"batch {spec.batch:,}",
        f"inputs {report.inputs}",
    )
    return f"{result} (simulated): {', '.join(filter(None, facts))}"


def _cells(fit: Fit) -> tuple[Cell, ...]:
    total, capacity = fit.bytes.total, fit.capacity_bytes
    parts = "\n".join(f"{part.name}: {bytes_text(size)}" for part, size in sizes(fit.bytes))
    several = f", split over {len(fit.cards)} cards" if len(fit.cards) > 1 else ""
    fits = Cell("✓ yes", tip=verdict(fit)) if fit.fits else Cell("✕ no", "error", verdict(fit))
    batch = MISSING if fit.largest_batch is None else f"{'≥ ' if fit.at_least else ''}{fit.largest_batch:,}"
    clock = "\n".join(filter(None, (SIMULATED, sentence(bound_text(fit))))) if fit.step_seconds else NOT_TIMED
    times = (
        (
            Cell(step_range(fit), tip=clock),
            Cell(rate_range(fit), tip=clock),
            Cell(efficiency_range(fit), tip=efficiency_tip(fit)),
        )
        if fit.serving is None
        else (*serving_cells(fit.serving, SERVED if fit.fits else NOT_TIMED), Cell(MISSING, tip=NO_STEP))
    )
    return (
        Cell(fit.gpu, tip=f"{fit.gpu}, simulated{several}\n{batch_and_step(fit)}".rstrip()),
        Cell(share_text(total, capacity), tip=f"{fit.gpu}, simulated{several}\n{parts}"),
        Cell(f"{total / GIB:,.2f}" if total else MISSING, tip=f"{bytes_text(total)}, simulated" if total else ""),
        Cell(f"{capacity / GIB:,.1f}", tip=bytes_text(capacity)),
        fits,
        Cell(batch, "" if fit.largest_batch else "dim", AT_LEAST if fit.at_least else ""),
        *times,
    )
