"""The smallest equal budgets that hold a model's blocks. Plain numbers: the window asks too, which has no torch. Any
thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Sequence


def even_budget(sizes: Sequence[int], devices: int) -> int:
    """Bytes per device with which so many devices, filled one after the other, hold all of these; `sizes` must not be
    empty."""
    least = max(*sizes, -(-sum(sizes) // devices))
    budgets = range(least, sum(sizes))
    return least + bisect_left(budgets, True, key=lambda budget: _needed(sizes, budget) <= devices)


def _needed(sizes: Sequence[int], budget: int) -> int:
    needed, load = 1, 0
    for item in sizes:
        if load + item > budget:
            needed, load = needed + 1, 0
        load += item
    return needed
