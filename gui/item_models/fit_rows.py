"""What a plan says about each card, as rows of a table: the parts of its memory, whether it fits, batch, time. Pure, main thread."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.formats import MISSING, bytes_text, number_text, seconds_text
from devexplorer.core.records.planner import Fit, FitBytes
from devexplorer.gui.item_models.rows import Cell, Column, TableRow
from devexplorer.gui.theme import Theme

CARD, MEMORY, TOTAL, CAPACITY, FITS, BATCH, STEP, RATE = range(8)
COLUMNS = (
    Column("Card"),
    Column("Memory", tip="What it would take at its peak, against the card's capacity (the line); what is beyond the line does not fit"),
    Column("Takes", True, "At the moment when most is allocated, with the CUDA context and the workspace of libraries"),
    Column("Of", True, "Memory of the card; of all cards together where the model is split"),
    Column("Fits"),
    Column("Largest batch", True, "The largest batch that fits"),
    Column("Simulated step", True, "One step of the batch that was asked for, by the roofline of the card"),
    Column("Simulated samples/s", True, "Samples of the batch in a second of the simulated step"),
)


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
    Part("activations", "activations", "Inputs, what backward needs, and temporary tensors, at the peak"),
    Part("buffers", "buffers", "Running statistics, masks, tables"),
    Part("library_workspace", "library workspace", "What cuBLAS and cuDNN take for themselves"),
    Part("context", "CUDA context", "The driver's and PyTorch's kernels on the card"),
)
"""From left to right in the bar."""


def sizes(found: FitBytes) -> list[tuple[Part, int]]:
    """The parts that take anything, in the order of the bar."""
    return [(part, size) for part in PARTS if (size := getattr(found, part.key))]


def fit_rows(fits: tuple[Fit, ...], theme: Theme) -> list[TableRow]:
    """A row for each card, or group of cards, known by what was asked for."""
    return [TableRow(fit.gpu, _cells(fit, theme)) for fit in fits]


def _cells(fit: Fit, theme: Theme) -> tuple[Cell, ...]:
    total, capacity = fit.bytes.total, fit.capacity_bytes
    share = f"{100 * total / capacity:.0f} %" if capacity and total else MISSING
    parts = "\n".join(f"{part.name}: {bytes_text(size)}" for part, size in sizes(fit.bytes))
    several = f"\nsplit over {len(fit.cards)} cards" if len(fit.cards) > 1 else ""
    verdict = Cell("✓ fits", tip=several.strip()) if fit.fits else Cell("✕ does not fit", theme.error, fit.reason)
    batch = MISSING if fit.largest_batch is None else f"{'≥ ' if fit.at_least else ''}{fit.largest_batch:,}"
    return (
        Cell(fit.gpu, tip=fit.gpu),
        Cell(share, tip=f"{parts}{several}"),
        Cell(bytes_text(total) if total else MISSING),
        Cell(bytes_text(capacity, 1)),
        verdict,
        Cell(batch, "" if fit.largest_batch else theme.dim),
        Cell(seconds_text(fit.step_seconds)),
        Cell(number_text(fit.samples_per_s)),
    )
