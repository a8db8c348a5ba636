"""Breakdown of a device's memory, from the figures of the driver and the allocator. Main thread; no torch, no Qt."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.records import AllocatorSample, DeviceSample, ProcessUse


class MemoryParts(NamedTuple):
    """The parts of a device's memory in bytes; None where it cannot be known. They add up to the total where all are
    known."""

    workspace: int | None
    """Storages that named objects of the workspace hold."""
    other_allocated: int | None
    """Other live tensors of the engine: benchmark operands, activations, what Undo keeps, what the allocator rounds up
    to."""
    cached: int | None
    """Reserved by the caching allocator and not allocated: given back by "release cache"."""
    context: int | None
    """CUDA context and libraries of the engine process: given back only when it ends. Where None, `other_processes`
    includes it."""
    other_processes: int | None
    free: int | None
    driver: int | None = None
    """Kept by driver and firmware, counted as neither used nor free (NVML's `reserved`); None where it is not
    reported."""

    @property
    def used(self) -> int | None:
        """All parts but the free ones; None where the use by other processes is not known."""
        if self.other_processes is None:
            return None
        return sum(
            part or 0
            for part in (self.workspace, self.other_allocated, self.cached, self.context, self.other_processes)
        )


class PartText(NamedTuple):
    """The texts of a part."""

    short: str
    """In the bar of a card."""
    title: str
    definition: str
    remedy: str
    """How it becomes free."""


PART_TEXTS = {
    "workspace": PartText(
        "workspace",
        "tensors of this workspace",
        "named objects, shared memory counted once",
        "Remove or move the object.",
    ),
    "other_allocated": PartText(
        "other allocations",
        "other live tensors",
        "activations, operands, kept for Undo, rounding",
        "Freed when the last reference is dropped.",
    ),
    "cached": PartText(
        "cached",
        "cached by the allocator",
        "kept by torch's caching allocator, not in use now",
        "“Release cache” returns the segments that hold no tensor.",
    ),
    "context": PartText(
        "context",
        "CUDA context and libraries",
        "driver, torch's kernels, libraries such as cuBLAS",
        "Freed when the engine ends: “Restart engine”.",
    ),
    "other_processes": PartText(
        "other processes", "other processes", "all other processes on this card", "Only those processes can free it."
    ),
    "unsplit": PartText(
        "context and other processes",
        "context and other processes",
        "the driver does not report the two separately here",
        "",
    ),
    "used": PartText("used", "used", "all processes; no breakdown is available here", ""),
    "driver": PartText(
        "driver",
        "kept by the driver",
        "for driver and firmware, apart from used and free",
        "",
    ),
    "free": PartText("free", "free", "not in use", ""),
}
"""The texts of each part, by its name in `MemoryParts`, in the order of the bar. `unsplit` replaces `other_processes`
where the context is not known, `used` where only the sum is."""


def memory_parts(
    used: int | None,
    total: int | None,
    allocator: AllocatorSample | None,
    context: int | None,
    driver: int | None = None,
) -> MemoryParts:
    """The parts of one moment.

    `context` is what `ContextEstimator` found, for allocators that do not know it; `driver` what driver and firmware
    keep for themselves. A virtual GPU has no other users, so its allocator alone tells everything: the parts
    then add up to the byte. On a real card `used` and the allocator are read up to a tick apart, by which the sum can
    be off while memory is taken or given back.
    """
    if allocator is None:
        return MemoryParts(None, None, None, None, used, _free(used, total, driver), driver)
    if allocator.context_bytes is not None:
        context = allocator.context_bytes
    if allocator.simulated:
        used = allocator.reserved_bytes + (context or 0)
    # What is published about objects and what the allocator counts are moments apart while an object comes or goes.
    workspace = min(allocator.workspace_bytes or 0, allocator.allocated_bytes)
    cached = max(allocator.reserved_bytes - allocator.allocated_bytes, 0)
    rest = None if used is None else max(used - allocator.reserved_bytes - (context or 0), 0)
    return MemoryParts(
        workspace, allocator.allocated_bytes - workspace, cached, context, rest, _free(used, total, driver), driver
    )


def _free(used: int | None, total: int | None, driver: int | None) -> int | None:
    return None if used is None or total is None else max(total - used - (driver or 0), 0)


class ContextEstimator:
    """What CUDA context and libraries of the engine take on a card, from readings that arrive one by one.

    It is what the driver says that the process uses, less what the allocator has reserved. The list of processes is
    read only every few seconds and repeated in the samples between, so the two are subtracted only when the list is
    new, and only when the allocator had reserved the same before and after it; until then the last result is kept.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None
        """None: not known yet."""
        self._list: tuple[ProcessUse, ...] | None = None
        self._repeats = False
        """Whether this source repeats the very same list between two readings, so that another one is a new reading
        even where it is equal. A recording that is replayed does not."""
        self._reserved: int | None = None
        self._listed: int | None = None
        """What the newest list says, until the allocator has confirmed that it reserved nothing meanwhile."""

    def see_sample(self, sample: DeviceSample, pid: int | None) -> None:
        """Take over a reading of the card; `pid` is the engine's."""
        result, before = sample.processes, self._list
        self._list = result
        self._repeats |= result is not None and result is before
        if result is None or result is before or (result == before and not self._repeats):
            return
        self._listed = next((use.memory_bytes for use in result if use.pid == pid), None)

    def see_allocator(self, sample: AllocatorSample) -> None:
        """Take over a reading of the engine's allocator on that card."""
        settled = sample.reserved_bytes == self._reserved
        self._reserved = sample.reserved_bytes
        if self._listed is not None and settled and self._listed >= sample.reserved_bytes:
            self.bytes = self._listed - sample.reserved_bytes
        self._listed = None

    def forget(self) -> None:
        """The engine has ended, and its context with it."""
        self.bytes = self._reserved = self._listed = None
