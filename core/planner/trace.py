"""What a run took, gave back and computed on one card, and what follows from that for any card. No torch; any thread.

A trace is replayed, not modelled: the same requests in the same order go through the allocator of a card, so that what
it reserves, and whether it runs out, is what a run on a virtual GPU of that size would have shown.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.devices.profiles import Profile
from devexplorer.core.virtual.device.cost import HostCall, Roofline, Work
from devexplorer.core.virtual.device.memory import MIN_BLOCK, Block, CachingAllocator, OutOfDeviceMemoryError

Numbers = npt.NDArray[np.int64]

KINDS = ("parameters", "buffers", "gradients", "optimizer", "activations")
"""What a block can be for; the last is everything that is nothing else."""
OTHER = KINDS[-1]
UNLIMITED = 1 << 62


class Copied(NamedTuple):
    """One copy to or from this card."""

    nbytes: int
    peer: str | None
    """The profile of the other card; None: the host."""


class Replay(NamedTuple):
    """What became of a trace on a card; where it does not fit, what would have become of it on a card without end."""

    fits: bool
    reserved: int
    """The most that was taken in segments."""
    parts: dict[str, int]
    """Bytes in blocks by kind (`KINDS`) at the moment when most was allocated, the first such moment."""
    rest: dict[str, int]
    """The same after the last step."""

    @property
    def peak(self) -> int:
        """The most that was allocated at one time: what `max_memory_allocated` says.

        Blocks are what counts, and one that is reused may be larger than the request by what is not worth splitting
        off.
        """
        return sum(self.parts.values())


@dataclass(frozen=True)
class Trace:
    """One run on one card, from the empty card on."""

    sizes: Numbers
    """Bytes that were asked for, by the number of the block."""
    events: Numbers
    """In their order: n, block n is taken; ~n, it is given back."""
    kinds: Mapping[int, str]
    """Number of a block -> one of `KINDS`; what is not in it is `activations`."""
    work: Mapping[Work, int]
    """Kernels of the last step, and how often each ran."""
    calls: Mapping[HostCall, int]
    """What the host did in the last step."""
    copies: Mapping[Copied, int]
    """Copies of the last step."""
    state_at: int | None = None
    """Where in `events` the first step of the optimizer begins."""
    rest_at: int | None = None
    """Where in `events` the last step ends; None: at their end."""
    output_bytes: int = 0
    """Of the first tensor that forward returned, on whichever card."""
    input_bytes: int = 0
    """Of the inputs that the step got."""
    attention_by_card: bool = False
    """Whether attention ran that another card has another kernel for."""

    @cached_property
    def _rounded(self) -> Numbers:
        """Bytes of each block: multiples of 512 B."""
        blocks: Numbers = np.maximum(-(-self.sizes // MIN_BLOCK) * MIN_BLOCK, MIN_BLOCK)
        return blocks

    @cached_property
    def _course(self) -> Numbers:
        """Bytes that are allocated after each event."""
        taken = self.events >= 0
        numbers = np.where(taken, self.events, ~self.events)
        course: Numbers = np.cumsum(np.where(taken, 1, -1) * self._rounded[numbers])
        return course

    @property
    def least(self) -> int:
        """The most that is requested at one time, rounded up: no allocator needs less."""
        return int(self._course.max()) if len(self.events) else 0

    @cached_property
    def without_end(self) -> Replay:
        """On a card that is never full."""
        return self._replayed(UNLIMITED, 0)

    def replay(self, capacity_bytes: int, taken_bytes: int = 0) -> Replay:
        """Put the trace through the allocator of a card, of which `taken_bytes` belong to others."""
        room = capacity_bytes - taken_bytes
        if self.least > room:
            return self.without_end._replace(fits=False)
        if (
            self.without_end.reserved <= room
        ):  # it is never full, so it never gives segments back: the same as without end
            return self.without_end
        return self._replayed(capacity_bytes, taken_bytes)

    def _replayed(self, capacity_bytes: int, taken_bytes: int) -> Replay:
        memory = CachingAllocator(capacity_bytes, taken_bytes)
        blocks: dict[int, tuple[Block, int]] = {}
        sizes, kinds = (
            self.sizes.tolist(),
            [KINDS.index(self.kinds.get(number, OTHER)) for number in range(len(self.sizes))],
        )
        now, then = [0] * len(KINDS), [0] * len(KINDS)
        rest: list[int] | None = None
        allocated = peak = reserved = 0
        for position, event in enumerate(self.events.tolist()):
            if position == self.rest_at:
                rest = now.copy()
            if event < 0:
                block, size = blocks.pop(~event)
                memory.free(block)
                allocated -= size
                now[kinds[~event]] -= size
                continue
            try:
                block = memory.allocate(sizes[event])
            except OutOfDeviceMemoryError:
                return self.without_end._replace(fits=False)
            blocks[event] = block, block.size
            allocated += block.size
            now[kinds[event]] += block.size
            if allocated > peak:
                peak, then = allocated, now.copy()
            if capacity_bytes != UNLIMITED:  # else nothing is given back, and the last is the most
                reserved = max(reserved, memory.reserved_bytes)
        at_peak, at_rest = (dict(zip(KINDS, parts, strict=True)) for parts in (then, now if rest is None else rest))
        return Replay(True, max(reserved, memory.reserved_bytes), at_peak, at_rest)

    @property
    def flop(self) -> int:
        """Floating-point operations of the last step."""
        return sum(work.flop * times for work, times in self.work.items())

    def busy_seconds(self, profile: Profile) -> float:
        """Simulated seconds that the operations of the last step take on such a card, one after the other."""
        roofline = Roofline(profile)
        return sum(roofline.seconds(work) * times for work, times in self.work.items())

    def with_state(self, sizes: list[int]) -> Trace:
        """The same run with these blocks taken for the optimizer's state when its first step begins."""
        first = len(self.sizes)
        at = len(self.events) if self.state_at is None else self.state_at
        added = np.arange(first, first + len(sizes), dtype=np.int64)
        return replace(
            self,
            sizes=np.concatenate([self.sizes, np.array(sizes, dtype=np.int64)]),
            events=np.concatenate([self.events[:at], added, self.events[at:]]),
            kinds={**self.kinds, **dict.fromkeys(added.tolist(), "optimizer")},
            rest_at=None if self.rest_at is None else self.rest_at + len(added),
        )


class BatchScaling:
    """How the size of each block grows with the batch: a + b·batch, from runs that took and gave back the same blocks
    in the same order."""

    def __init__(self, trace: Trace, batch: int, slope: Numbers) -> None:
        self._trace, self._batch, self._slope = trace, batch, slope

    def at(self, batch: int) -> Trace:
        """The trace of a batch that was not run."""
        return replace(
            self._trace, sizes=self._trace.sizes + self._slope * (batch - self._batch), work={}, calls={}, copies={}
        )


def fit_scaling(runs: Mapping[int, Trace]) -> BatchScaling | None:
    """The law that holds for three or more runs by their batch; None where there is none: then only runs can tell."""
    (first, item), (second, two), *others = sorted(runs.items())
    if not others or any(not np.array_equal(item.events, trace.events) for trace in runs.values()):
        return None
    slope, left = np.divmod(two.sizes - item.sizes, second - first)
    if left.any():
        return None
    found = BatchScaling(item, first, slope)
    if any(not np.array_equal(found.at(batch).sizes, trace.sizes) for batch, trace in others):
        return None
    return found
