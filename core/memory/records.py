"""What an allocator snapshot says, read from PyTorch's own format. Plain frozen records, made in the engine."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record, SentFrom


class BlockRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """One block of a segment."""

    address: int
    bytes: int
    requested_bytes: int | None
    """What was asked for, before rounding; None for a free block."""
    state: str
    """As PyTorch writes it: `active_allocated`, `active_awaiting_free`, `inactive`."""
    frame: int = -1
    """Index into `AllocatorSnapshot.stacks`; -1: no stack was recorded."""


class SegmentRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A piece that the allocator has taken from the device."""

    device: int
    address: int
    bytes: int
    allocated_bytes: int
    pool: str
    """`small` or `large`."""
    stream: int = 0
    blocks: tuple[BlockRow, ...] = ()


class StackRow(msgspec.Struct, frozen=True, omit_defaults=True):
    """A place in the code where live blocks were allocated."""

    frames: tuple[str, ...]
    """`file.py:12 forward`, innermost first."""
    bytes: int
    blocks: int


class AllocatorSnapshot(Record, omit_defaults=True):
    """Everything of one snapshot that can be browsed."""

    source: str
    """A file, or the device whose allocator was asked."""
    segments: tuple[SegmentRow, ...] = ()
    stacks: tuple[StackRow, ...] = ()
    """Largest first."""
    trace_entries: int = 0
    """Recorded allocations and frees, freed ones included."""
    cut: int = 0
    """Blocks left out because there were too many to send."""
    simulated: bool = False


class ReleaseCache(BaseCommand, tag="ReleaseCache"):
    """Give memory that the allocator keeps for later back to the device; answered with the figures before and after."""

    device: str


class RecordAllocator(BaseCommand, tag="RecordAllocator"):
    """Let the allocators record where each block is allocated, or stop that."""

    on: bool


class SaveSnapshot(BaseCommand, tag="SaveSnapshot"):
    """Write the snapshot of a device's allocator in PyTorch's own format (a pickle of plain values)."""

    device: str
    path: str
    sent_to: SentFrom | None = None
    """The file of another machine that this one is brought to."""


class OpenSnapshot(BaseCommand, tag="OpenSnapshot"):
    """Read a snapshot: of a device's allocator now, or a file of PyTorch's format. Answered with `SnapshotOpened`."""

    device: str | None = None
    path: str | None = None
    sent_from: SentFrom | None = None


class SnapshotOpened(BaseEvent, tag="SnapshotOpened"):
    """An allocator snapshot that was asked for."""

    snapshot: AllocatorSnapshot
