"""The largest batch that fits: computed by a law where one holds, and confirmed by runs. In the planner's process."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from devexplorer.core.errors import BadInput
from devexplorer.core.planner.run import Placing, Way
from devexplorer.core.planner.study import LAW_BATCHES, Study
from devexplorer.core.planner.trace import Trace

LIMIT = 1 << 16
"""No larger batch is looked for."""
UNCONFIRMED = (
    "Largest batches that were not run themselves (those of what would help, and others when time was over) were computed from runs with "
    "small batches, between which every block grows evenly."
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


def largest(study: Study, way: Way, placing: Placing, rooms: Sequence[Room], known: int, *, confirm: bool = True) -> Largest:
    """Search for it; `known` is a batch that was run already. Raises `BadInput` when the model cannot run with a batch of 1 or 2."""

    def runs(batch: int) -> bool:
        return fit_in(study.traces(way, batch, placing), rooms)

    if not runs(1):
        return Largest(0, False)
    try:
        laws = study.laws(way, placing, known)
    except BadInput:  # a model that takes one batch only: what is known then is the one that ran
        return Largest(1, True)
    if laws is None:
        return by_bisection(runs, lambda: study.patient)

    def peaks(batch: int) -> bool:
        return all(law.at(batch).least <= capacity - taken for law, (capacity, taken) in zip(laws, rooms, strict=True))

    def computed(batch: int) -> bool:
        return runs(batch) if batch < min(LAW_BATCHES) else fit_in([law.at(batch) for law in laws], rooms)

    found = from_above(computed, peaks)
    if not confirm or not study.patient:
        study.notes[UNCONFIRMED] = None
        return found
    if runs(found.batch) and (found.batch == LIMIT or not runs(found.batch + 1)):
        return found
    return by_bisection(runs, lambda: study.patient)


def from_above(fits: Callable[[int], bool], may_fit: Callable[[int], bool]) -> Largest:
    """The largest batch that fits, where a batch of 1 does; `may_fit` is quick, and True for everything that fits."""
    low, high = 1, LIMIT + 1
    while high - low > 1:  # high: the first that cannot fit
        middle = (low + high) // 2
        low, high = (middle, high) if may_fit(middle) else (low, middle)
    step, batch = max(1, high // 64), high - 1
    while batch > 1 and not fits(batch):
        high, batch, step = batch, max(1, batch - step), 2 * step
    low = batch
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Largest(low, low == LIMIT)


def by_bisection(fits: Callable[[int], bool], patient: Callable[[], bool]) -> Largest:
    """By trying alone: doubled until one does not fit, then halved in between; a batch of 1 fits."""
    low, high = 1, 2
    while high <= LIMIT and patient() and fits(high):
        low, high = high, 2 * high
    if high > LIMIT or (not patient() and low * 2 == high):
        return Largest(low, True)
    while high - low > 1:
        if not patient():
            return Largest(low, True)
        middle = (low + high) // 2
        low, high = (middle, high) if fits(middle) else (low, middle)
    return Largest(low, False)
