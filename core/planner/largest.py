"""The largest batch that fits: computed by a law where one holds, and confirmed by runs. In the planner's process."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from devexplorer.core.base import BadInput
from devexplorer.core.planner.limits import LARGEST_BATCH
from devexplorer.core.planner.run import DeviceMap, StepConfig
from devexplorer.core.planner.trace import Trace
from devexplorer.core.planner.trace_cache import SCALING_BATCHES, TraceCache

UNCONFIRMED = (
    "Largest batches that were not run themselves (those of what would help, others when time was over or they could"
    " not run here) were computed from runs with small batches, between which every block grows evenly."
)

Room = tuple[int, int]
"""Capacity of a card, and bytes of it that are not the allocator's."""


class Largest(NamedTuple):
    """What the search found."""

    batch: int
    """0: not even one fits."""
    at_least: bool
    """The search ended at its limit, or there was no time for more."""


def fit_in(traces: Sequence[Trace], rooms: Sequence[Room]) -> bool:
    """Whether every card has room for its trace."""
    return all(trace.replay(*room).fits for trace, room in zip(traces, rooms, strict=True))


def largest(
    cache: TraceCache,
    config: StepConfig,
    device_map: DeviceMap,
    rooms: Sequence[Room],
    known: int,
    *,
    confirm: bool = True,
) -> Largest:
    """Search for it; `known` is a batch that was run already."""

    def runs(batch: int) -> bool:
        return fit_in(cache.traces(config, batch, device_map), rooms)

    sure = known if runs(known) else 1
    try:
        if not smallest(runs):
            return Largest(0, False)
        scalings = cache.scalings(config, device_map, known)
    except BadInput:  # a model that takes this batch only: what is known then is the one that ran
        return Largest(known, True) if runs(known) else Largest(0, False)
    if scalings is None:
        return by_bisection(runs, lambda: cache.has_time, sure)

    def peaks(batch: int) -> bool:
        return all(
            scaling.at(batch).least <= capacity - taken
            for scaling, (capacity, taken) in zip(scalings, rooms, strict=True)
        )

    def computed(batch: int) -> bool:
        return (
            runs(batch) if batch < min(SCALING_BATCHES) else fit_in([scaling.at(batch) for scaling in scalings], rooms)
        )

    result = from_above(computed, peaks)
    if confirm and cache.has_time:
        try:
            if runs(result.batch) and (result.batch == LARGEST_BATCH or not runs(result.batch + 1)):
                return result
            return by_bisection(runs, lambda: cache.has_time, sure)
        except (
            BadInput
        ):  # that many cannot run here: whole numbers as large as that have no values, which the model looks at
            pass
    cache.notes[UNCONFIRMED] = None
    return result


def smallest(fits: Callable[[int], bool]) -> bool:
    """Whether a batch of 1 fits, or of 2 where 1 cannot run: batch normalisation trains on more than one sample."""
    try:
        return fits(1)
    except BadInput:
        return fits(2)


def from_above(fits: Callable[[int], bool], may_fit: Callable[[int], bool]) -> Largest:
    """The largest batch that fits, where a batch of 1 does; `may_fit` is quick, and True for everything that fits."""
    batches = range(LARGEST_BATCH + 1)
    high = bisect_left(batches, True, lo=2, key=lambda batch: not may_fit(batch))  # the first that cannot fit
    step, batch = max(1, high // 64), high - 1
    while batch > 1 and not fits(batch):
        high, batch, step = batch, max(1, batch - step), 2 * step
    batch = bisect_left(batches, True, lo=batch + 1, hi=high, key=lambda batch: not fits(batch)) - 1
    return Largest(batch, batch == LARGEST_BATCH)


def by_bisection(fits: Callable[[int], bool], has_time: Callable[[], bool], sure: int = 1) -> Largest:
    """By trying alone, from a batch that fits for `sure`: doubled until one does not fit, then halved in between."""
    low, high = sure, 0  # 0: none is known that does not fit
    while not high or high - low > 1:
        if low == LARGEST_BATCH or not has_time():
            return Largest(low, True)
        middle = (low + high) // 2 if high else min(2 * low, LARGEST_BATCH)
        try:
            fitted = fits(middle)
        except BadInput:
            return Largest(low, True)
        low, high = (middle, high) if fitted else (low, middle)
    return Largest(low, False)
