"""What a card holds of a trace, and the search for the largest batch that fits. No torch; any thread."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Sequence
from typing import NamedTuple

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import LARGEST_BATCH, FitBytes, FitCard
from devexplorer.core.planner.trace import Trace, context_bytes, cublas_bytes, library_bytes

Room = tuple[int, int]
"""Capacity of a card, and bytes of it that are not the allocator's."""


class Libraries(NamedTuple):
    """What a step runs of libraries that take memory for themselves."""

    products: bool
    convolutions: bool
    train: bool

    def bytes_on(self, profile: Profile) -> int:
        """Bytes of workspaces on such a card."""
        chip = profile.compute_capability
        return library_bytes(chip, products=self.products, convolutions=self.convolutions, train=self.train)

    def room(self, profile: Profile) -> Room:
        """What such a card has, and what of it is not for tensors."""
        return profile.usable_bytes, context_bytes(profile) + self.bytes_on(profile)

    def card(self, trace: Trace, profile: Profile) -> FitCard:
        """What such a card would hold."""
        library, context = self.bytes_on(profile), context_bytes(profile)
        replay = trace.replay(*self.room(profile))
        kept = cublas_bytes(profile.compute_capability, products=self.products, train=self.train)
        return FitCard(
            gpu=profile.name,
            capacity_bytes=profile.usable_bytes,
            bytes=FitBytes(**replay.parts, library_workspace=library, context=context),
            rest=FitBytes(**replay.rest, library_workspace=kept, context=context),
            reserved_bytes=replay.reserved + library,
            fits=replay.fits,
            device=profile.device,
        )


class Largest(NamedTuple):
    """What the search found."""

    batch: int
    """0: not even one fits."""
    at_least: bool
    """The search ended at its limit, or there was no time for more."""


def fit_in(traces: Sequence[Trace], rooms: Sequence[Room]) -> bool:
    """Whether every card has room for its trace."""
    return all(trace.replay(*room).fits for trace, room in zip(traces, rooms, strict=True))


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
