"""What is kept of a check of a fleet. Plain frozen records, made on any thread."""

from __future__ import annotations

from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.records.base import Record


class CardMedian(Record, omit_defaults=True):
    """What one card reached in one kind of measurement."""

    machine: str
    device: str
    name: str
    kind: MeasuredKind
    median: float
    """Of its blocks: TFLOP/s of products, samples/s of models, decimal GB/s of everything else."""
    dtype: str = ""
    uuid: str | None = None
    simulated: bool = False


class StoredCheck(Record, omit_defaults=True):
    """One check of a fleet in the history."""

    started_unix_s: float
    ended_unix_s: float
    medians: tuple[CardMedian, ...]
    id: int = 0
    """0: it is not stored yet."""
    simulated: bool = False
    """All of its cards are."""
    fleet: str = ""
    """Which simulated fleet it was; cards of two of them have nothing in common but their names."""
    in_turn: bool = False
    soaked: bool = False
    """Products ran for a while before they were measured."""
    cards: int = 0
    slow: tuple[str, ...] = ()
    """`MACHINE/DEVICE` of each slow card."""
    failed: tuple[str, ...] = ()
