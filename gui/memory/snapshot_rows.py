"""Tables of an allocator snapshot: its segments, its blocks, the places in the code. Main thread; pure functions of the
snapshot."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import MISSING, bytes_text, count_text
from devexplorer.core.records import AllocatorSnapshot, BlockRow, SegmentRow, StackRow
from devexplorer.gui.widgets.table import Cell, Column, TableRow, numbers

MOST_ROWS = 500
"""Listed at once, the largest; the filter finds the others."""
CALLERS = 4
"""Frames that are named in a row: the innermost is often the same helper."""
SEGMENT_COLUMNS = (
    Column("address"),
    numbers("device", "As torch counts."),
    Column("pool", "small: requests up to 1 MiB"),
    numbers("size"),
    numbers("in use"),
    numbers("largest free", "The largest request that fits into this segment."),
    numbers("blocks"),
    Column("map", "Filled: in use. Empty: free. As long as the segment is large."),
)
BLOCK_COLUMNS = (
    Column("address"),
    numbers("size"),
    numbers("requested", "Before the allocator rounded it up."),
    Column("state"),
    Column("allocated at"),
)
STACK_COLUMNS = (
    numbers("size"),
    numbers("share", "Of all blocks in use whose line is known."),
    numbers("blocks"),
    Column("allocated at"),
)
STATES = {
    "active_allocated": "in use",
    "active_awaiting_free": "waiting for a stream",
    "active_pending_free": "waiting for a stream",
    "inactive": "free",
}


class Finder:
    """Which segments and which places hold all words of a filter; texts are made once for a snapshot."""

    def __init__(self, snapshot: AllocatorSnapshot) -> None:
        self._places = [" ".join(stack.frames).lower() for stack in snapshot.stacks]
        self._segments = [
            f"{segment.address:#x} {segment.pool} stream {segment.stream}".lower() for segment in snapshot.segments
        ]
        self._used = [{block.frame for block in segment.blocks if block.frame >= 0} for segment in snapshot.segments]

    def find(self, query: str) -> tuple[list[int], list[int]]:
        """Numbers of the segments and of the places that match."""
        words = query.lower().split()
        places = [index for index, place in enumerate(self._places) if all(word in place for word in words)]
        hit = set(places) if words else set()
        segments = [
            index
            for index, text in enumerate(self._segments)
            if all(word in text for word in words) or not hit.isdisjoint(self._used[index])
        ]
        return segments, places


def summary(snapshot: AllocatorSnapshot) -> str:
    """The whole snapshot in a line."""
    reserved = sum(segment.bytes for segment in snapshot.segments)
    allocated = sum(segment.allocated_bytes for segment in snapshot.segments)
    largest = max(map(largest_free, snapshot.segments), default=0)
    parts = [
        f"{bytes_text(reserved)} in {count_text(len(snapshot.segments), 'segment')}",
        f"{bytes_text(allocated)} in use",
        f"largest free block {bytes_text(largest)}",
    ]
    if snapshot.trace_entries:
        parts.append(count_text(snapshot.trace_entries, "recorded step"))
    if snapshot.cut:
        parts.append(f"{count_text(snapshot.cut, 'small block')} left out")
    return ", ".join(parts)


def largest_free(segment: SegmentRow) -> int:
    """Bytes of the largest free block of a segment."""
    return max((block.bytes for block in segment.blocks if block.state == "inactive"), default=0)


def segment_rows(snapshot: AllocatorSnapshot, numbers: Sequence[int]) -> list[TableRow]:
    """The largest of these segments, as many as are listed."""
    largest = sorted(numbers, key=lambda index: -snapshot.segments[index].bytes)[:MOST_ROWS]
    return [TableRow(index, _segment_cells(snapshot.segments[index])) for index in largest]


def _segment_cells(segment: SegmentRow) -> tuple[Cell, ...]:
    free = largest_free(segment)
    return (
        Cell(f"{segment.address:#x}"),
        Cell(str(segment.device), "dim"),
        Cell(segment.pool, "dim", f"stream {segment.stream}"),
        Cell(bytes_text(segment.bytes), tip=f"{segment.bytes:,} bytes"),
        Cell(bytes_text(segment.allocated_bytes), tip=f"{segment.allocated_bytes:,} bytes"),
        Cell(bytes_text(free), "dim", f"{free:,} bytes"),
        Cell(f"{len(segment.blocks):,}", "dim"),
        Cell(""),
    )


def block_rows(snapshot: AllocatorSnapshot, segment: SegmentRow) -> list[TableRow]:
    """The largest blocks of a segment, in the order of their addresses."""
    largest = sorted(range(len(segment.blocks)), key=lambda index: -segment.blocks[index].bytes)[:MOST_ROWS]
    return [TableRow(index, _block_cells(snapshot, segment.blocks[index])) for index in sorted(largest)]


def _block_cells(snapshot: AllocatorSnapshot, block: BlockRow) -> tuple[Cell, ...]:
    is_free = block.state == "inactive"
    return (
        Cell(f"{block.address:#x}", "dim" if is_free else ""),
        Cell(bytes_text(block.bytes), "dim" if is_free else "", f"{block.bytes:,} bytes"),
        Cell(MISSING if block.requested_bytes is None else f"{block.requested_bytes:,}", "dim"),
        Cell(STATES.get(block.state, block.state), "dim" if is_free else ""),
        _place(snapshot, block),
    )


def _place(snapshot: AllocatorSnapshot, block: BlockRow) -> Cell:
    if block.state == "inactive":
        return Cell("")
    if not 0 <= block.frame < len(snapshot.stacks):
        return Cell("not recorded", "dim", "Recording was off when this block was allocated.")
    frames = snapshot.stacks[block.frame].frames
    return Cell(frames[0] if frames else MISSING, tip="\n".join(frames))


def stack_rows(snapshot: AllocatorSnapshot, numbers: Sequence[int]) -> list[TableRow]:
    """The places, largest first as in the snapshot."""
    total = sum(stack.bytes for stack in snapshot.stacks)
    return [TableRow(index, _stack_cells(snapshot.stacks[index], total)) for index in numbers[:MOST_ROWS]]


def _stack_cells(stack: StackRow, total: int) -> tuple[Cell, ...]:
    return (
        Cell(bytes_text(stack.bytes), tip=f"{stack.bytes:,} bytes"),
        Cell(f"{100 * stack.bytes / total:.1f} %" if total else MISSING, "dim"),
        Cell(f"{stack.blocks:,}", "dim"),
        Cell(" ← ".join(stack.frames[:CALLERS]) or MISSING, tip="\n".join(stack.frames)),
    )
