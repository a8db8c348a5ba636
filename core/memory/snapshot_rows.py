"""Makes an `AllocatorSnapshot` of PyTorch's snapshot format, whoever wrote it. Jobs thread of the engine.

Every value is checked, since a file can hold anything, and what is made fits into one frame of the link.

The format is that of `torch.cuda.memory._snapshot` (torch 2.13); older ones differ in that a block has no address (it
follows from those before it), and keeps its stack in a `history`.
"""

from __future__ import annotations

from heapq import nlargest
from typing import Any

import msgspec

from devexplorer.core.base.errors import BadInput
from devexplorer.core.memory.snapshot_file import NO_SNAPSHOT
from devexplorer.core.records.allocator import AllocatorSnapshot, BlockRow, SegmentRow, StackRow

MOST_READ = 1_000_000
"""Blocks in a snapshot that is read: one list of blocks can stand in a file a thousand times without making it
longer."""
MOST_SEGMENTS, MOST_BLOCKS, MOST_STACKS, MOST_FRAMES = 2_000, 20_000, 2_000, 40
"""Sent at most, the largest: within `core.engine.link`'s limit of 5,000 a list, about 2 MiB, 0.1 s of checking in the
window."""
LONGEST_TEXT = 300
STATES = ("active_allocated", "active_awaiting_free", "active_pending_free", "inactive")
"""The third is what torch writes, the second what its documentation says."""

_Stack = tuple[str, ...]


def digest(snapshot: object, source: str, *, simulated: bool | None = None) -> AllocatorSnapshot:
    """What can be browsed of a snapshot; `BadInput` in one line when it has another structure.

    `simulated` None: the file says so itself.
    """
    segments, traces, settings = _outline(snapshot)
    stacks: dict[_Stack, list[int]] = {}
    """Stack -> bytes and number of its live blocks."""
    texts: dict[int, _Stack] = {}
    read: list[SegmentRow] = []
    stack_of: dict[tuple[int, int], _Stack] = {}
    """Device and address of a block -> its stack."""
    count = 0
    for segment in segments:
        blocks = _list(_dict(segment, "a segment"), "blocks")
        count += len(blocks)
        if count > MOST_READ:
            raise BadInput(f"it has more than {MOST_READ:,} blocks; that many cannot be shown")
        row = _segment(segment, blocks)
        read.append(row)
        for result, block in zip(row.blocks, blocks, strict=True):
            frames = _frames(block, texts) if result.state != "inactive" else ()
            if frames:
                stack_of[row.device, result.address] = frames
                totals = stacks.setdefault(frames, [0, 0])
                totals[0] += result.bytes
                totals[1] += 1
    ordered = sorted(stacks, key=lambda frames: -stacks[frames][0])
    place = {frames: at for at, frames in enumerate(ordered)}
    kept, cut = _cut(read)
    return AllocatorSnapshot(
        source=source,
        segments=tuple(_with_places(row, stack_of, place) for row in kept),
        stacks=_rows(ordered, stacks),
        trace_entries=sum(len(trace) for trace in traces if isinstance(trace, list)),
        cut=cut,
        simulated="simulated" in settings if simulated is None else simulated,
    )


def _outline(snapshot: object) -> tuple[list[Any], list[Any], dict[Any, Any]]:
    """Segments, traces and settings; old snapshots are the list of segments alone."""
    if isinstance(snapshot, list):
        return snapshot, [], {}
    if not isinstance(snapshot, dict) or not isinstance(snapshot.get("segments"), list):
        raise BadInput(f"{NO_SNAPSHOT}: it has no list of segments")
    traces, settings = snapshot.get("device_traces", []), snapshot.get("allocator_settings", {})
    if not isinstance(traces, list) or not isinstance(settings, dict):
        raise BadInput(f"{NO_SNAPSHOT}: its traces or settings are something else")
    return snapshot["segments"], traces, settings


def _segment(segment: dict[str, Any], blocks: list[Any]) -> SegmentRow:
    address = _whole(segment, "address")
    rows = []
    at = address
    for block in blocks:
        size = _whole(_dict(block, "a block"), "size")
        state = block.get("state")
        if state not in STATES:
            raise BadInput(f"{NO_SNAPSHOT}: a block's state is {_told(state)}")
        requested = None if state == "inactive" else _requested(block)
        rows.append(BlockRow(_whole(block, "address", at), size, requested, state))
        at = rows[-1].address + size
    used = sum(row.bytes for row in rows if row.state == "active_allocated")
    return SegmentRow(
        device=_whole(segment, "device", 0),
        address=address,
        bytes=_whole(segment, "total_size"),
        allocated_bytes=_whole(segment, "allocated_size", used),
        pool="small" if segment.get("segment_type") == "small" else "large",
        stream=stream if type(stream := segment.get("stream")) is int and 0 <= stream < 1 << 63 else 0,
        blocks=tuple(rows),
    )


def _requested(block: dict[str, Any]) -> int | None:
    old = _history(block)
    if old is not None:
        return _whole(old, "real_size")
    return _whole(block, "requested_size") if "requested_size" in block else None


def _history(block: dict[str, Any]) -> dict[str, Any] | None:
    history = block.get("history")
    return history[0] if isinstance(history, list) and history and isinstance(history[0], dict) else None


def _frames(block: dict[str, Any], texts: dict[int, _Stack]) -> _Stack:
    """The stack as texts, innermost first; many blocks share one list, which is read once."""
    frames = (_history(block) or block).get("frames")
    if not frames:
        return ()
    if id(frames) not in texts:
        if not isinstance(frames, list):
            raise BadInput(f"{NO_SNAPSHOT}: the stack of a block is no list")
        texts[id(frames)] = tuple(_frame(_dict(frame, "a frame")) for frame in frames[:MOST_FRAMES])
    return texts[id(frames)]


def _frame(frame: dict[str, Any]) -> str:
    file, line, name = (frame.get(key) for key in ("filename", "line", "name"))
    if not isinstance(file, str) or not isinstance(name, str) or type(line) is not int or abs(line) >= 1 << 63:
        raise BadInput(f"{NO_SNAPSHOT}: a frame of a stack is no file, line and function")
    short = file.replace("\\", "/").rpartition("/")[2]
    return f"{short[:LONGEST_TEXT]}:{line} {name[:LONGEST_TEXT]}"


def _cut(segments: list[SegmentRow]) -> tuple[list[SegmentRow], int]:
    """The largest segments with their largest blocks, in the order of the file, and how many blocks that leaves out."""
    chosen = set(nlargest(MOST_SEGMENTS, range(len(segments)), key=lambda at: segments[at].bytes))
    blocks = [(block.bytes, at, number) for at in chosen for number, block in enumerate(segments[at].blocks)]
    total = sum(len(segment.blocks) for segment in segments)
    if (
        len(chosen) == len(segments)
        and total <= MOST_BLOCKS
        and all(len(segment.blocks) <= MOST_BLOCKS // 5 for segment in segments)
    ):
        return segments, 0
    kept: dict[int, list[int]] = {at: [] for at in chosen}
    left = MOST_BLOCKS
    for _, at, number in sorted(blocks, reverse=True):
        if left and len(kept[at]) < MOST_BLOCKS // 5:
            kept[at].append(number)
            left -= 1
    rows = [
        msgspec.structs.replace(segments[at], blocks=tuple(segments[at].blocks[number] for number in sorted(kept[at])))
        for at in sorted(chosen)
    ]
    return rows, total - sum(len(row.blocks) for row in rows)


def _with_places(row: SegmentRow, stack_of: dict[tuple[int, int], _Stack], place: dict[_Stack, int]) -> SegmentRow:
    def number(block: BlockRow) -> int:
        frames = stack_of.get((row.device, block.address))
        return -1 if frames is None else min(place[frames], MOST_STACKS)

    return msgspec.structs.replace(
        row,
        blocks=tuple(
            msgspec.structs.replace(block, frame=number(block)) if number(block) >= 0 else block for block in row.blocks
        ),
    )


def _rows(ordered: list[_Stack], stacks: dict[_Stack, list[int]]) -> tuple[StackRow, ...]:
    """The largest places; what is left is one row more."""
    rows = [StackRow(frames, *stacks[frames]) for frames in ordered[:MOST_STACKS]]
    rest = ordered[MOST_STACKS:]
    if rest:
        words = (f"{len(rest):,} more places",)
        rows.append(
            StackRow(words, sum(stacks[frames][0] for frames in rest), sum(stacks[frames][1] for frames in rest))
        )
    return tuple(rows)


def _dict(value: object, what: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise BadInput(f"{NO_SNAPSHOT}: {what} is no dict")
    return value


def _list(value: dict[str, Any], key: str) -> list[Any]:
    result = value.get(key)
    if not isinstance(result, list):
        raise BadInput(f"{NO_SNAPSHOT}: '{key}' is no list")
    return result


def _whole(value: dict[str, Any], key: str, default: int | None = None) -> int:
    """A count of bytes or an address; bool and float are none."""
    result = value.get(key, default)
    if type(result) is not int or not 0 <= result < 1 << 63:
        raise BadInput(f"{NO_SNAPSHOT}: '{key}' is {_told(result)}, no number of bytes")
    return result


def _told(value: object) -> str:
    """A value in a message: never all of a list, whose text can be endless."""
    if isinstance(value, str):
        return repr(value[:40])
    if isinstance(value, int | float) and abs(value) < 1 << 64:
        return str(value)
    return "missing" if value is None else f"of type {type(value).__name__}"
