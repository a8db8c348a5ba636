"""The smallest equal budgets that hold a model's blocks. Plain numbers: the window asks too, which has no torch. Any
thread."""

from __future__ import annotations

import math
from collections.abc import Sequence


def even_budget(sizes: Sequence[int], devices: int) -> int:
    """Bytes per device with which so many devices, filled one after the other, hold all of these; `sizes` must not be
    empty."""
    low, high = -(-sum(sizes) // devices), sum(sizes)
    while low < high:
        middle = (low + high) // 2
        if _needed(sizes, middle) <= devices:
            high = middle
        else:
            low = middle + 1
    return high


def _needed(sizes: Sequence[int], budget: int) -> float:
    if max(sizes) > budget:
        return math.inf
    needed, load = 1, 0
    for item in sizes:
        if load + item > budget:
            needed, load = needed + 1, 0
        load += item
    return needed
