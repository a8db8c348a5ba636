"""Files of allocator snapshots in PyTorch's own format, a pickle of plain values: writes them, reads them from any
writer, and makes an `AllocatorSnapshot` of them. Jobs thread of the engine.

A pickle can name any function and have it called. `PlainUnpickler` knows no name at all, so that what it reads is
numbers, texts, tuples, lists and dicts, or nothing. It is Python's own unpickler, not the one in C: that one believes
the memo indices in a file and reserves 16 bytes for each below the largest (measured: one opcode, 128 MiB; it can ask
for 64 GiB). Python's reads about 10 MB a second.

msgspec checks every value, since a file can hold anything, and the result fits into one frame of the link.

The format is that of `torch.cuda.memory._snapshot` (torch 2.13); in older ones a block has no address (it follows from
those before it), and keeps its stack in a `history`.
"""

from __future__ import annotations

import io
import os
import pickle
from collections.abc import Callable
from heapq import nlargest
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NoReturn, TypeVar

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import BadInput, Cancelled, bytes_text, open_regular, replacing
from devexplorer.core.memory.records import AllocatorSnapshot, BlockRow, SegmentRow, StackRow

PROTOCOL = 4
"""What `torch.cuda.memory._dump_snapshot` writes with Python 3.8 to 3.13, and what the viewer at pytorch.org reads."""
MOST_BYTES = 128 << 20
"""Of a file that is read: a quarter of a minute of reading, and some GiB of memory for what is in it."""
NO_SNAPSHOT = "it is no allocator snapshot"

Progress = Callable[[float], None]
"""Gets the share of the file that is read; may raise `Cancelled`."""


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


def load(path: str, progress: Progress = lambda share: None, known_as: str = "") -> object:
    """The plain values in a file; `BadInput` in one line when it cannot be read, is too large, or holds anything
    else. `known_as`: the file that people know, where this one is a copy of it."""
    name = known_as or path
    try:
        with open_regular(Path(path).expanduser()) as file:
            size = os.fstat(file.fileno()).st_size
            if size > MOST_BYTES:
                raise BadInput(
                    f"{name} has {bytes_text(size)}; snapshots up to {bytes_text(MOST_BYTES, 0)} can be opened"
                )
            data = file.read(MOST_BYTES)
    except OSError as error:
        raise BadInput(f"{name} could not be read: {error.strerror or error}") from error
    return loads(data, name, progress)


def loads(data: bytes, name: str, progress: Progress = lambda share: None) -> object:
    """As `load`, from bytes; `name` is what messages call them."""
    source = _Source(data, progress)
    try:
        return PlainUnpickler(source).load()
    except BadInput as error:
        raise BadInput(f"{name} was not opened: {error}") from None
    except Cancelled:
        raise
    except (
        Exception
    ) as error:  # a damaged pickle can fail in any way: EOFError, KeyError, IndexError, ValueError, MemoryError, …
        raise BadInput(
            f"{name} was not opened: {NO_SNAPSHOT}, or it is damaged or cut off ({type(error).__name__})"
        ) from None


class PlainUnpickler(pickle._Unpickler):
    """Refuses whatever is not a plain value."""

    dispatch: ClassVar[dict[int, Any]] = {  # without the opcode that reserves as many bytes as the file claims
        opcode: do for opcode, do in pickle._Unpickler.dispatch.items() if opcode != pickle.BYTEARRAY8[0]
    }

    def find_class(self, module: str, name: str, /) -> NoReturn:
        """Called for every global in the file, by name or by number of an extension."""
        raise _not_plain(f"asks for {module[:80]}.{name[:80]}")

    def get_extension(self, code: int) -> NoReturn:
        """A global by its number in copyreg's registry, which may be in its cache."""
        raise _not_plain(f"asks for the extension {code}")

    def persistent_load(self, pid: Any) -> NoReturn:
        """A value that lives outside the file."""
        raise _not_plain("refers to values outside the file")


def _not_plain(what: str) -> BadInput:
    return BadInput(f"it {what}; a snapshot of PyTorch has plain values only, so this is none")


class _Source(io.BytesIO):
    """The bytes as a file that reports how far it is read. Lengths that the pickle claims are cut to what is there."""

    def __init__(self, data: bytes, progress: Progress) -> None:
        super().__init__(data)
        self._size, self._progress, self._reported = len(data), progress, 0

    def read(self, count: int | None = -1, /) -> bytes:
        """The next `count` bytes, or as many as there are."""
        data = super().read(count)
        if self.tell() - self._reported >= 1 << 16:
            self._reported = self.tell()
            self._progress(self._reported / self._size)
        return data


MOST_READ = 1_000_000
"""Blocks in a snapshot that is read: a file can refer to one list of blocks a thousand times without growing."""
MOST_SEGMENTS, MOST_BLOCKS, MOST_STACKS, MOST_FRAMES = 2_000, 20_000, 2_000, 40
"""Sent at most, the largest: within `core.engine.link`'s limit of 5,000 a list, about 2 MiB, 0.1 s of checking in the
window."""
LONGEST_TEXT = 300
T = TypeVar("T")
_Size = Annotated[int, msgspec.Meta(ge=0, le=(1 << 63) - 1)]
"""A count of bytes, or an address."""
_Stack = tuple[str, ...]


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


def digest(snapshot: object, source: str, *, simulated: bool | None = None) -> AllocatorSnapshot:
    """What can be browsed of a snapshot; `BadInput` in one line when it has another structure.

    `simulated` None: the file says so itself.
    """
    # Old snapshots are the list of segments alone.
    whole = _read({"segments": snapshot} if isinstance(snapshot, list) else snapshot, _Snapshot)
    stacks: dict[_Stack, list[int]] = {}
    """Stack -> bytes and number of its live blocks."""
    texts: dict[int, _Stack] = {}
    rows: list[SegmentRow] = []
    stack_of: dict[tuple[int, int], _Stack] = {}
    """Device and address of a block -> its stack."""
    count = 0
    for item in whole.segments:
        segment = _read(item, _Segment)
        count += len(segment.blocks) if isinstance(segment.blocks, list) else 0
        if count > MOST_READ:
            raise BadInput(f"it has more than {MOST_READ:,} blocks; that many cannot be shown")
        blocks = _read(segment.blocks, list[_Block])
        row = _segment(segment, blocks)
        rows.append(row)
        for block_row, block in zip(row.blocks, blocks, strict=True):
            frames = () if block.state == "inactive" else _frames(block, texts)
            if frames:
                stack_of[row.device, block_row.address] = frames
                totals = stacks.setdefault(frames, [0, 0])
                totals[0] += block.size
                totals[1] += 1
    ordered = sorted(stacks, key=lambda frames: -stacks[frames][0])
    place = {frames: index for index, frames in enumerate(ordered)}
    kept, cut = _cut(rows)
    return AllocatorSnapshot(
        source=source,
        segments=tuple(_with_places(row, stack_of, place) for row in kept),
        stacks=_rows(ordered, stacks),
        trace_entries=sum(len(trace) for trace in whole.device_traces if isinstance(trace, list)),
        cut=cut,
        simulated="simulated" in whole.allocator_settings if simulated is None else simulated,
    )


def _segment(segment: _Segment, blocks: list[_Block]) -> SegmentRow:
    rows = []
    address = segment.address
    for block in blocks:
        address = address if block.address is None else block.address
        history = _history(block)
        requested = block.requested_size if history is None else history.real_size
        rows.append(BlockRow(address, block.size, None if block.state == "inactive" else requested, block.state))
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


def _history(block: _Block) -> _History | None:
    return _read(block.history[0], _History) if isinstance(block.history, list) and block.history else None


def _frames(block: _Block, texts: dict[int, _Stack]) -> _Stack:
    """The stack as texts, innermost first; many blocks share one list, which is read once."""
    frames = (_history(block) or block).frames
    if not frames:
        return ()
    if id(frames) not in texts:
        shown = frames[:MOST_FRAMES] if isinstance(frames, list) else frames
        texts[id(frames)] = tuple(map(_text, _read(shown, list[_Frame])))
    return texts[id(frames)]


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


def _with_places(row: SegmentRow, stack_of: dict[tuple[int, int], _Stack], place: dict[_Stack, int]) -> SegmentRow:
    def number(block: BlockRow) -> int:
        frames = stack_of.get((row.device, block.address))
        return -1 if frames is None else min(place[frames], MOST_STACKS)

    return replace(
        row,
        blocks=tuple(replace(block, frame=number(block)) if number(block) >= 0 else block for block in row.blocks),
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
