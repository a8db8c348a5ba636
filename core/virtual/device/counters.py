"""A quantity of an allocator as `memory_stats` has it: now, at most, and all that came and went. No torch; behind the
allocator's lock."""

from __future__ import annotations


class Counter:
    """Goes up and down, and remembers how far."""

    __slots__ = ("allocated", "current", "freed", "peak")

    def __init__(self) -> None:
        self.current = self.peak = self.allocated = self.freed = 0

    def add(self, amount: int) -> None:
        """Something came."""
        self.current += amount
        self.allocated += amount
        if self.current > self.peak:
            self.peak = self.current

    def take(self, amount: int) -> None:
        """Something went."""
        self.current -= amount
        self.freed += amount

    def as_dict(self) -> dict[str, int]:
        """Under the names that torch gives them."""
        return {"current": self.current, "peak": self.peak, "allocated": self.allocated, "freed": self.freed}
