"""Files of allocator snapshots in PyTorch's own format, a pickle of plain values: writes them, reads them from any
writer, and makes an `AllocatorSnapshot` of them. Jobs thread of the engine.

`plain_pickle` reads the file piece by piece, so that its size does not matter: each segment becomes a row as soon as it
is complete. msgspec checks every value, since a file can hold anything, and the result fits into one frame of the link.

The format is that of `torch.cuda.memory._snapshot` (torch 2.13); in older ones a block has no address (it follows from
those before it), and keeps its stack in a `history`.
"""

from __future__ import annotations

import os
import pickle
from heapq import nlargest
from pathlib import Path
from typing import Annotated, Any, BinaryIO, Literal, TypeVar

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Cancelled, open_regular, replacing
from devexplorer.core.memory.plain_pickle import Counted, PassedOver, Progress, Segments, read_plain
from devexplorer.core.memory.records import AllocatorSnapshot, BlockRow, SegmentRow, StackRow

PROTOCOL = 4
"""What `torch.cuda.memory._dump_snapshot` writes with Python 3.8 to 3.13, and what the viewer at pytorch.org reads."""
NO_SNAPSHOT = "it is no allocator snapshot"


def save(snapshot: dict[str, Any], path: str) -> int:
    """Write the snapshot; returns the bytes. All of it or nothing: `BadInput` leaves what was there before as it
    was."""
    data = pickle.dumps(snapshot, protocol=PROTOCOL)
    target = Path(path).expanduser()
    if os.path.isdir(target):
        raise BadInput(f"{path} is a folder; name a file")
    try:
        with replacing(target) as temporary:
            temporary.write_bytes(data)
    except OSError as error:
        raise BadInput(f"the snapshot could not be written to {path}: {error.strerror or error}") from error
    return len(data)


def load(path: str, source: str, progress: Progress = lambda share: None, known_as: str = "") -> AllocatorSnapshot:
    """What can be browsed of a file; `BadInput` in one line when it cannot be read or holds anything else. `source`:
    what the snapshot is called; `known_as`: the file that people know, where this one is a copy of it."""
    name = known_as or path
    try:
        with open_regular(Path(path).expanduser()) as file:
            return read(file, os.fstat(file.fileno()).st_size, name, source, progress)
    except OSError as error:
        raise BadInput(f"{name} could not be read: {error.strerror or error}") from error


def read(
    file: BinaryIO, size: int, name: str, source: str, progress: Progress = lambda share: None
) -> AllocatorSnapshot:
    """As `load`, from an open file; `name` is what messages call it."""
    try:
        try:
            digest = Digest(most=None)
            root = read_plain(file, size, digest.add, progress)
        except PassedOver:
            digest = Digest(most=MOST_READ)
            file.seek(0)
            root = read_plain(file, size, digest.add, progress, whole=True)
        return digest.result(root, source)
    except BadInput as error:
        raise BadInput(f"{name} was not opened: {error}") from None
    except (Cancelled, OSError):
        raise
    except (
        Exception
    ) as error:  # a damaged pickle can fail in any way: EOFError, KeyError, IndexError, ValueError, MemoryError, …
        raise BadInput(
            f"{name} was not opened: {NO_SNAPSHOT}, or it is damaged or cut off ({type(error).__name__})"
        ) from None


MOST_READ = 1_000_000
"""Blocks in a segment, and rows of blocks that are held: beyond, only the largest stay. A snapshot that is held whole
has no more in all: it can refer to one list of blocks a thousand times without growing."""
MOST_PLACES, MOST_TEXTS = 100_000, 200_000
"""Places in the code that are told apart, and lines of code in their stacks."""
MOST_SEGMENTS, MOST_BLOCKS, MOST_STACKS, MOST_FRAMES = 2_000, 20_000, 2_000, 40
"""Sent at most, the largest: within `core.engine.link`'s limit of 5,000 a list, about 2 MiB, 0.1 s of checking in the
window."""
LONGEST_TEXT = 300
T = TypeVar("T")
_Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A count of bytes, or an address."""


class _Frame(msgspec.Struct):
    filename: str
    line: Annotated[int, msgspec.Meta(ge=-(1 << 63), le=(1 << 63) - 1)]
    name: str


class _History(msgspec.Struct):
    real_size: _Size
    frames: Any = None


class _Block(msgspec.Struct):
    """Stacks and histories are converted later: blocks share them, and converting here would copy them."""

    size: _Size
    state: Literal["active_allocated", "active_awaiting_free", "active_pending_free", "inactive"]
    """The third is what torch writes, the second what its documentation says."""
    address: _Size | None = None
    requested_size: _Size | None = None
    frames: Any = None
    history: Any = None


class _Segment(msgspec.Struct):
    address: _Size
    total_size: _Size
    blocks: Any
    device: _Size = 0
    allocated_size: _Size | None = None
    segment_type: Any = "large"
    stream: Any = 0


class _Snapshot(msgspec.Struct):
    segments: list[Any]
    device_traces: list[Any] = []
    allocator_settings: dict[Any, Any] = {}


def _read(value: object, kind: type[T]) -> T:
    try:
        return msgspec.convert(value, type=kind)
    except msgspec.ValidationError as error:
        raise BadInput(f"{NO_SNAPSHOT}: {error}") from None


class CheckedStack(tuple[str, ...]):
    """The lines of a stack, innermost first. No file can hold one: what is one has been checked."""


OTHERS = CheckedStack()
"""Stands for the places that are too many to be told apart."""


class Digest:
    """What can be browsed of a snapshot, segment by segment; `BadInput` in one line when it has another structure."""

    def __init__(self, most: int | None) -> None:
        """`most`: blocks, in all; None: any number."""
        self._most = most
        self._rows: list[SegmentRow] = []
        self._read_blocks = self._held_blocks = self._cut = 0
        self._places: dict[CheckedStack, int] = {}
        self._stacks: list[CheckedStack] = []
        self._totals: list[list[int]] = []
        """Bytes and number of the live blocks of each place."""
        self._others = [0, 0]
        self._texts: dict[str, str] = {}

    def add(self, item: object) -> tuple[set[int], dict[int, CheckedStack]]:
        """Take a segment. Returns what `plain_pickle.Take` says."""
        segment = _read(item, _Segment)
        count = len(segment.blocks) if isinstance(segment.blocks, list) else 0
        self._read_blocks += count
        if count > MOST_READ or (self._most is not None and self._read_blocks > self._most):
            raise BadInput(f"it has more than {MOST_READ:,} blocks; that many cannot be shown")
        stacks: dict[int, CheckedStack] = {}
        blocks = _read(segment.blocks, list[_Block])
        self._rows.append(self._row(segment, blocks, stacks))
        self._held_blocks += count
        if self._held_blocks > MOST_READ:
            self._rows, cut = _cut(self._rows)
            self._cut += cut
            self._held_blocks -= cut
        gone = {id(item), id(segment.blocks), *map(id, segment.blocks)}
        for block in blocks:
            if isinstance(block.history, list):
                gone.update((id(block.history), *map(id, block.history)))
        return gone, stacks

    def _row(self, segment: _Segment, blocks: list[_Block], stacks: dict[int, CheckedStack]) -> SegmentRow:
        rows = []
        address = segment.address
        for block in blocks:
            address = address if block.address is None else block.address
            history = _history(block)
            requested = block.requested_size if history is None else history.real_size
            if block.state == "inactive":
                rows.append(BlockRow(address, block.size, None, block.state))
            else:
                place = self._place(self._stack(block, stacks), block.size)
                rows.append(BlockRow(address, block.size, requested, block.state, place))
            address += block.size
        used = sum(row.bytes for row in rows if row.state == "active_allocated")
        return SegmentRow(
            device=segment.device,
            address=segment.address,
            bytes=segment.total_size,
            allocated_bytes=used if segment.allocated_size is None else segment.allocated_size,
            pool="small" if segment.segment_type == "small" else "large",
            stream=segment.stream if type(segment.stream) is int and 0 <= segment.stream < 1 << 63 else 0,
            blocks=tuple(rows),
        )

    def _stack(self, block: _Block, stacks: dict[int, CheckedStack]) -> CheckedStack | None:
        """The stack of a block; blocks share lists of frames, and one is read once in a segment."""
        frames = (_history(block) or block).frames
        if not frames:
            return OTHERS if frames is OTHERS else None
        if type(frames) is CheckedStack:
            return frames
        if id(frames) not in stacks:
            shown = frames[:MOST_FRAMES] if isinstance(frames, list) else frames
            stacks[id(frames)] = self._known(CheckedStack(map(_text, _read(shown, list[_Frame]))))
        return stacks[id(frames)]

    def _known(self, stack: CheckedStack) -> CheckedStack:
        place = self._places.get(stack)
        if place is not None:
            return self._stacks[place]  # the same texts again would stay with the memo
        if len(self._places) >= MOST_PLACES or len(self._texts) >= MOST_TEXTS:
            return OTHERS
        stack = CheckedStack(self._texts.setdefault(line, line) for line in stack)
        self._places[stack] = len(self._totals)
        self._stacks.append(stack)
        self._totals.append([0, 0])
        return stack

    def _place(self, stack: CheckedStack | None, size: int) -> int:
        """Number of the place, in the order in which they came, and -1 for none; counts the block there."""
        if stack is None:
            return -1
        place = self._places.get(stack, MANY)
        totals = self._others if place == MANY else self._totals[place]
        totals[0] += size
        totals[1] += 1
        return place

    def result(self, root: object, source: str, *, simulated: bool | None = None) -> AllocatorSnapshot:
        """Of the segments that were added and of the rest of the snapshot. `simulated` None: it says so itself."""
        if isinstance(root, (list, Segments)):
            root = {"segments": root}  # old snapshots are the list of segments alone
        trace_entries = 0
        if isinstance(root, dict):
            traces = root.get("device_traces")
            if isinstance(traces, Counted):
                trace_entries = sum(trace.count for trace in traces.lists)
                root = {**root, "device_traces": []}
            if isinstance(root.get("segments"), Segments):
                root = {**root, "segments": []}
        whole = _read(root, _Snapshot)
        for item in whole.segments:
            self.add(item)
        order = sorted(range(len(self._totals)), key=lambda place: -self._totals[place][0])
        ranks = {place: min(rank, MOST_STACKS) for rank, place in enumerate(order)}
        ranks[MANY] = min(len(order), MOST_STACKS)
        kept, cut = _cut(self._rows)
        return AllocatorSnapshot(
            source=source,
            segments=tuple(_with_ranks(row, ranks) for row in kept),
            stacks=self._stack_rows(order),
            trace_entries=trace_entries + sum(len(trace) for trace in whole.device_traces if isinstance(trace, list)),
            cut=self._cut + cut,
            simulated="simulated" in whole.allocator_settings if simulated is None else simulated,
        )

    def _stack_rows(self, order: list[int]) -> tuple[StackRow, ...]:
        """The largest places; what is left is one row more."""
        rows = [StackRow(tuple(self._stacks[place]), *self._totals[place]) for place in order[:MOST_STACKS]]
        rest = [self._totals[place] for place in order[MOST_STACKS:]]
        if rest or self._others[1]:
            words = f"{len(rest):,} more places"
            if self._others[1]:
                words = f"more than {words}"
            sizes, blocks = (sum(column) for column in zip(*rest, self._others, strict=True))
            rows.append(StackRow((words,), sizes, blocks))
        return tuple(rows)


MANY = -2
"""The place of blocks whose place is one of `OTHERS`."""


def digest(snapshot: object, source: str, *, simulated: bool | None = None) -> AllocatorSnapshot:
    """What can be browsed of a snapshot that is in memory."""
    return Digest(most=MOST_READ).result(snapshot, source, simulated=simulated)


def _history(block: _Block) -> _History | None:
    return _read(block.history[0], _History) if isinstance(block.history, list) and block.history else None


def _text(frame: _Frame) -> str:
    short = frame.filename.replace("\\", "/").rpartition("/")[2]
    return f"{short[:LONGEST_TEXT]}:{frame.line} {frame.name[:LONGEST_TEXT]}"


def _cut(segments: list[SegmentRow]) -> tuple[list[SegmentRow], int]:
    """The largest segments with their largest blocks, in the order of the file, and how many blocks that leaves out."""
    chosen = set(nlargest(MOST_SEGMENTS, range(len(segments)), key=lambda index: segments[index].bytes))
    blocks = [(block.bytes, index, number) for index in chosen for number, block in enumerate(segments[index].blocks)]
    total = sum(len(segment.blocks) for segment in segments)
    if (
        len(chosen) == len(segments)
        and total <= MOST_BLOCKS
        and all(len(segment.blocks) <= MOST_BLOCKS // 5 for segment in segments)
    ):
        return segments, 0
    kept: dict[int, list[int]] = {index: [] for index in chosen}
    left = MOST_BLOCKS
    for _, index, number in sorted(blocks, reverse=True):
        if left and len(kept[index]) < MOST_BLOCKS // 5:
            kept[index].append(number)
            left -= 1
    rows = [
        replace(segments[index], blocks=tuple(segments[index].blocks[number] for number in sorted(kept[index])))
        for index in sorted(chosen)
    ]
    return rows, total - sum(len(row.blocks) for row in rows)


def _with_ranks(row: SegmentRow, ranks: dict[int, int]) -> SegmentRow:
    """The places of the blocks by size, where they were numbered as they came."""
    blocks = tuple(replace(block, frame=ranks[block.frame]) if block.frame != -1 else block for block in row.blocks)
    return replace(row, blocks=blocks)
