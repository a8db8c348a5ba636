"""A counter of an allocator, with the fields that `memory_stats` reports. Guarded by the allocator's lock; no torch."""

from __future__ import annotations


class Counter:
    """Current and peak value, total added and removed."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Increase the current value."""
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def take(self, amount: int) -> None:
        """Decrease the current value."""
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        """Values under torch's names."""
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}
