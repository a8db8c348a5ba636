"""The memory of a session that was not run: how each block grows with the batch, or with the prompt. No torch; any
thread.

Blocks of the cache have the sizes of its layout; of all others a straight line is taken through two runs, which a third
one has to confirm.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.planner.trace import Numbers, Trace

if TYPE_CHECKING:
    from devexplorer.core.planner.serving.session import Session

TOLERANCE = 0.002
"""Of a block: shares of experts are rounded up to whole tokens."""
NEGLIGIBLE = 1e-4
"""Of the peak: what a block may be off by in any case."""


@dataclass(frozen=True)
class Law:
    """Straight lines through blocks."""

    _trace: Trace
    _cache: Numbers
    _base: npt.NDArray[np.float64]
    _slope: npt.NDArray[np.float64]
    exact: bool = True
    """Whether the third run was foretold to the byte."""

    def at(self, x: int, cache_sizes: Sequence[int]) -> Trace:
        """The trace there, with blocks of the cache of these sizes."""
        sizes = np.ceil(np.maximum(self._base + self._slope * x, 1) - 1e-6).astype(np.int64)
        sizes[self._cache] = np.maximum(np.array(cache_sizes, dtype=np.int64), 1)
        return replace(self._trace, sizes=sizes, work={}, copies={})


def law(runs: Mapping[int, Session]) -> Law | None:
    """What three runs have in common; None where they have not."""
    (low, first), (middle, second), (high, third) = sorted(runs.items())
    same = (first.trace.events, first.cache_blocks)
    if any(
        not np.array_equal(run.trace.events, same[0]) or not np.array_equal(run.cache_blocks, same[1])
        for run in (second, third)
    ):
        return None
    sizes = [run.trace.sizes.astype(np.float64) for run in (first, second, third)]
    for some in sizes:
        some[first.cache_blocks] = 0
    slope = (sizes[2] - sizes[0]) / (high - low)
    base = sizes[0] - slope * low
    off = np.abs(base + slope * middle - sizes[1])
    if np.any(off > np.maximum(NEGLIGIBLE * second.trace.least, TOLERANCE * sizes[1])):
        return None
    return Law(first.trace, first.cache_blocks, base, slope, bool(np.all(off < 1e-3)))


class Most(NamedTuple):
    """What a search found."""

    number: int
    """0: not even the least."""
    at_least: bool
    """There was no time for more, or nothing larger was looked for."""


def most(
    fits: Callable[[int], bool], least: int, limit: int, has_time: Callable[[], bool], guess: int | None = None
) -> Most:
    """The largest number up to a limit that fits, where everything smaller does, too: from a guess, or the least, on
    doubled, then halved."""
    if least > limit:
        return Most(0, False)
    low, step, high = max(guess or least, least), 1, limit + 1
    while not fits(low):
        if low == least:
            return Most(0, False)
        high, low, step = low, max(least, low - step), 2 * step
    step = 1
    while low + step < high:
        if not has_time():
            return Most(low, True)
        if not fits(low + step):
            high = low + step
            break
        low, step = low + step, 2 * step
    while high - low > 1:
        if not has_time():
            return Most(low, True)
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Most(low, low == limit)
