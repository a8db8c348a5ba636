"""What all runs have in common: the length of a block, and which samples are kept. No torch, no thread."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Generic, TypeVar

T = TypeVar("T")

STOPPED_EARLY = "stopped early"
"""Why a run that the user stopped has no result."""
BLOCK_SECONDS = 0.05
LONGEST_BLOCK = 10_000
"""Iterations."""
MOST_SAMPLES = 200_000
"""Kept for the percentiles."""


def block_length(each: float) -> int:
    """Iterations of `each` seconds that fill a block: 1 at least."""
    return int(min(max(BLOCK_SECONDS / each, 1), LONGEST_BLOCK)) if each > 0 else LONGEST_BLOCK


class Samples(Generic[T]):
    """Figures in the order in which they were measured. When there are too many, every second one is kept, then every
    fourth, …"""

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self.kept: list[T] = []
        self._most = most
        self._stride = 1
        self._seen = 0

    def add(self, samples: Iterable[T]) -> None:
        """Remember samples."""
        for sample in samples:
            if self._seen % self._stride == 0:
                self.kept.append(sample)
            self._seen += 1
            if len(self.kept) > self._most:
                del self.kept[1::2]
                self._stride *= 2
