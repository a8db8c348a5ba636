"""The format of a recording: what stands in the file and how it is checked; and opening one: every byte is checked
once, each half second is found. Blocks on the disk: no main thread.

    file    magic and format version (11 bytes), then frames to the end
    frame   mark, head (`Head`), payload: msgpack, compressed with zlib
    kinds   header (once, first) · readings (samples, benchmark points) ·
            events (everything else, and the devices) · end (nothing)

A payload is a list of pairs: milliseconds since the recording began on a clock that never jumps, and one tagged record.
Readings share a frame with everything of the same half second: field names repeat, so that a sample of 800 bytes takes
about 90. A frame carries CRC-32 of head and payload, so that damage is found where it is and the next frame is found by
its mark. All numbers are big-endian. Nothing is ever unpickled; what a frame may hold, compressed and not, is limited.

A file that is damaged or cut off is opened as far as it can be believed, and `Recording.findings` says what is missing.
"""

from __future__ import annotations

import enum
import os
import struct
import zlib
from collections.abc import Callable, Sequence
from contextlib import suppress
from datetime import datetime
from operator import attrgetter
from pathlib import Path
from typing import BinaryIO, NamedTuple

import msgspec

from devexplorer.core.base import BadInput, DevExplorerError, bytes_text, count_text, open_regular
from devexplorer.core.feature import decoder
from devexplorer.core.recording.feature import MAGIC
from devexplorer.core.records import (
    AllocatorSample,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    EngineLost,
    EngineReady,
    Log,
    Moved,
    Problem,
    Record,
    Topology,
)

VERSION = 1
PREFIX = struct.Struct(f">{len(MAGIC)}sH")
MARK = b"\xd5DX\x1e"
"""Begins every frame: after damage the next one is looked for by it."""
FRAME_LIMIT = 8 << 20
"""Bytes of one payload as it stands in the file."""
PLAIN_LIMIT = 64 << 20
"""Bytes of one payload when it is no longer compressed."""
COMPRESSION = 3
LARGEST_NUMBER = 1e15
"""Of any float: bytes of a large machine and its bytes per second stay far below."""
LONGEST_TEXT = 100_000
LONGEST_MS = 10 * 366 * 86_400_000
"""Of a recording: ten years."""
LATEST_UNIX_S = 1e11
"""A moment that a calendar can still show is far below."""


class DeviceList(msgspec.Struct, frozen=True, tag="devices_are"):
    """The list of devices from here on."""

    devices: tuple[DeviceInfo, ...]
    problems: tuple[Problem, ...] = ()


Reading = DeviceSample | AllocatorSample | BenchPoint
"""Of a stream; there are many."""
SessionEvent = (
    DeviceList
    | DeviceDetails
    | Topology
    | BenchPreparing
    | BenchStarted
    | BenchEnded
    | Moved
    | Log
    | EngineReady
    | EngineLost
)
"""Everything else that is recorded."""
Recorded = Reading | SessionEvent


class Header(Record):
    """Who recorded, where and when."""

    host: str
    time_unix_s: float
    devexplorer: str = ""
    """Its version."""
    devices: tuple[DeviceInfo, ...] = ()
    """At the beginning."""


class FrameKind(enum.IntEnum):
    """What a frame holds. A reader leaves out kinds that it does not know."""

    HEADER = 0
    READINGS = 1
    EVENTS = 2
    END = 3


class RecordedEntry(NamedTuple):
    """One record and when it came."""

    at_ms: int
    """Since the recording began."""
    record: Recorded


by_time = attrgetter("at_ms")
"""The key by which entries are ordered."""

_HEAD = struct.Struct(">4sIIBQQd")
_CHECKED = struct.Struct(">BQQd")
HEAD_SIZE = _HEAD.size


class Head(NamedTuple):
    """What precedes a payload."""

    length: int
    """Bytes of the payload."""
    crc: int
    kind: int
    first_ms: int
    last_ms: int
    """Of the entries in it, since the recording began."""
    unix_s: float
    """Wall-clock time at `last_ms`."""


class Damaged(DevExplorerError):
    """These bytes are no frame that can be believed, or what they hold is no record that can be shown."""


# --- writing

_encode = msgspec.msgpack.Encoder().encode


def prefix() -> bytes:
    """The first bytes of a recording."""
    return PREFIX.pack(MAGIC, VERSION)


def header_frame(header: Header) -> bytes:
    """The frame that comes first."""
    return _frame(FrameKind.HEADER, _encode(header), 0, 0, header.time_unix_s)


def entries_frame(kind: FrameKind, entries: Sequence[tuple[int, Recorded]], unix_s: float) -> bytes:
    """A frame of one entry or more, in the order of their time. Raises `Damaged` when they are too large for one
    frame."""
    return _frame(kind, _encode(entries), entries[0][0], entries[-1][0], unix_s)


def end_frame(at_ms: int, unix_s: float) -> bytes:
    """The frame that says that the recording was ended and did not break off."""
    return _frame(FrameKind.END, b"", at_ms, at_ms, unix_s)


def _frame(kind: FrameKind, plain: bytes, first_ms: int, last_ms: int, unix_s: float) -> bytes:
    payload = zlib.compress(plain, COMPRESSION)
    if len(payload) > FRAME_LIMIT or len(plain) > PLAIN_LIMIT:
        raise Damaged(f"{len(plain)} bytes are too many for one frame of a recording")
    return (
        _HEAD.pack(MARK, len(payload), _crc(kind, first_ms, last_ms, unix_s, payload), kind, first_ms, last_ms, unix_s)
        + payload
    )


def _crc(kind: int, first_ms: int, last_ms: int, unix_s: float, payload: bytes) -> int:
    return zlib.crc32(payload, zlib.crc32(_CHECKED.pack(kind, first_ms, last_ms, unix_s)))


# --- reading: nothing here is believed before it was checked


def read_head(data: bytes) -> Head:
    """The head in the first `HEAD_SIZE` bytes; `Damaged` for anything else."""
    mark, *fields = _HEAD.unpack_from(data)
    head = Head(*fields)
    if (
        mark != MARK
        or head.length > FRAME_LIMIT
        or not 0 <= head.unix_s < LATEST_UNIX_S
        or not head.first_ms <= head.last_ms < LONGEST_MS
    ):
        raise Damaged("no frame begins here")
    return head


def check(head: Head, payload: bytes) -> None:
    """`Damaged` unless head and payload are what was written."""
    if head.crc != _crc(head.kind, head.first_ms, head.last_ms, head.unix_s, payload):
        raise Damaged("a frame was changed after it was written")


def decode_header(payload: bytes) -> Header:
    """The header's record; `Damaged` for anything else."""
    try:
        header = _decode_header(_plain(payload))
    except _UNREADABLE as error:
        raise Damaged(f"the header is no record: {error}") from error
    if not is_sane(header):
        raise Damaged("the header holds an impossible number or text")
    return header


def decode_entries(payload: bytes) -> tuple[list[RecordedEntry], int]:
    """The entries of a frame, and how many were refused: each alone, because its kind is unknown or it cannot be
    shown.

    `Damaged` when the payload is no list of entries at all.
    """
    plain = _plain(payload)
    try:
        result = _decode_entries(plain)
        count = len(result)
    except _UNREADABLE:
        result, count = _decode_each(plain)
    entries = [RecordedEntry(at_ms, record) for at_ms, record in result if is_sane(record)]
    return entries, count - len(entries)


def _decode_each(plain: bytes) -> tuple[list[tuple[int, Recorded]], int]:
    """The records of a frame that can be read, and how many there are in all."""
    try:
        raw = _decode_raw(plain)
    except _UNREADABLE as error:
        raise Damaged(f"a frame is no list of records: {error}") from error
    result = []
    for at_ms, piece in raw:
        with suppress(*_UNREADABLE):
            result.append((at_ms, _decode_record(piece)))
    return result, len(raw)


_UNREADABLE = (msgspec.DecodeError, UnicodeDecodeError)
_decode_header = msgspec.msgpack.Decoder(Header).decode
_decode_entries = decoder(list[tuple[int, Recorded]]).decode
_decode_raw = msgspec.msgpack.Decoder(list[tuple[int, msgspec.Raw]]).decode
_decode_record = decoder(Recorded).decode


def _plain(payload: bytes) -> bytes:
    """Decompress, but never more than `PLAIN_LIMIT`: a few bytes of zlib can expand to gigabytes."""
    inflate = zlib.decompressobj()
    try:
        plain = inflate.decompress(payload, PLAIN_LIMIT)
    except zlib.error as error:
        raise Damaged(f"a frame cannot be decompressed: {error}") from error
    if not inflate.eof:
        raise Damaged("a frame is cut off, or holds more than any recording does")
    return plain


_WITH_PARTS = (tuple, dict, msgspec.Struct)


def is_sane(value: msgspec.Struct | tuple[object, ...] | dict[str, object]) -> bool:
    """Whether every number is finite and of a size that an axis can show, and every text of a length to be read."""
    if isinstance(value, msgspec.Struct):
        value = msgspec.structs.astuple(value)
    elif isinstance(value, dict):
        value = (*value, *value.values())
    for part in value:  # written for speed: an hour of 8 devices has 8 million of them
        if part is None:
            continue
        if isinstance(part, float):
            if not -LARGEST_NUMBER < part < LARGEST_NUMBER:  # false for NaN as well
                return False
        elif isinstance(part, str):
            if len(part) > LONGEST_TEXT:
                return False
        elif isinstance(part, _WITH_PARTS) and not is_sane(part):
            return False
    return True


STEP = 1 << 20
"""Bytes that are searched at a time for the next frame."""
MOST_WASTED = 1 << 30
"""Bytes read in vain: a file of nothing but beginnings of frames would keep a machine busy for days."""


class Frame(NamedTuple):
    """Readings of half a second and where they are in the file."""

    offset: int
    """Of the payload."""
    head: Head


class Recording:
    """An open recording. Use it as a context manager, or `close` it; one thread at a time."""

    def __init__(self, path: Path, file: BinaryIO) -> None:
        self.path = path
        self._file = file
        self.header = Header(host="unknown machine", time_unix_s=0.0)
        self.events: list[RecordedEntry] = []
        """Everything that is no reading, in the order in which it came."""
        self.frames: list[Frame] = []
        """The readings, in the order in which they came."""
        self.last_ms = 0
        """The end, since the recording began."""
        self.ended = False
        """Whether it was ended, and did not break off."""
        self.last_unix_s = 0.0
        """Wall-clock time at the end."""
        self.refused = 0
        """Records that were left out, each alone."""
        self.skipped: list[int] = []
        """Bytes of each damaged place."""
        self.cut_bytes = 0
        """At the end of the file, of a frame that was not finished."""
        self.size_bytes = 0
        self._skipping_since: int | None = None

    def __enter__(self) -> Recording:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    @property
    def findings(self) -> tuple[str, ...]:
        """What is missing in the file and why, a sentence each; empty: nothing."""
        result = []
        if self.skipped:
            places = count_text(len(self.skipped), "place")
            result.append(f"{bytes_text(sum(self.skipped))} in {places} of the file are damaged and were skipped.")
        if self.refused:
            result.append(f"{count_text(self.refused, 'record')} could not be read and were left out.")
        if not self.ended:
            until = datetime.fromtimestamp(self.last_unix_s).strftime("%H:%M:%S")
            tail = f"; its last {bytes_text(self.cut_bytes)} are an unfinished part" if self.cut_bytes else ""
            result.append(f"The recording was not closed properly or is still running; it ends at {until}{tail}.")
        return tuple(result)

    def readings(self, frame: Frame) -> list[RecordedEntry]:
        """The entries of a frame, in order; none when the file was changed since it was opened."""
        try:
            entries, _ = decode_entries(self._payload(frame.offset, frame.head))
        except (Damaged, OSError, ValueError):  # ValueError: it was closed
            return []
        return _ordered(entries, frame.head)

    @property
    def first_devices(self) -> tuple[DeviceInfo, ...]:
        """The devices at the beginning."""
        lists = (entry.record.devices for entry in self.events if isinstance(entry.record, DeviceList))
        return self.header.devices or next(lists, ())

    @property
    def simulated(self) -> bool:
        """Whether any device in it is."""
        lists = [entry.record.devices for entry in self.events if isinstance(entry.record, DeviceList)]
        return any(info.simulated for devices in (self.header.devices, *lists) for info in devices)

    @property
    def first_unix_s(self) -> float:
        """Wall-clock time at the beginning."""
        return self.header.time_unix_s or (self.frames[0].head.unix_s if self.frames else self.last_unix_s)

    def _payload(self, offset: int, head: Head) -> bytes:
        self._file.seek(offset)
        payload = self._file.read(head.length)
        if len(payload) < head.length:
            raise Damaged("the file ends inside a frame")
        check(head, payload)
        return payload

    # --- the one look at every byte

    def scan(self, progress: Callable[[float], bool]) -> bool:
        """Find every frame, and read those that hold no readings. `progress` gets 0 to 1; False from it gives up
        (returns False)."""
        size = self.size_bytes = os.fstat(self._file.fileno()).st_size
        offset, wasted = PREFIX.size, 0
        while offset < size:
            if not progress(offset / size):
                return False
            head = self._whole_frame(offset)
            if isinstance(head, Head):
                offset += HEAD_SIZE + head.length
                continue
            wasted += head
            result = self._next_mark(offset + 1, size) if wasted < MOST_WASTED else size
            if self._skipping_since is None:
                self._skipping_since = offset
            offset = result
        if self._skipping_since is not None:
            self.cut_bytes, self._skipping_since = size - self._skipping_since, None
        self.events.sort(key=by_time)
        self.frames.sort(key=lambda frame: frame.head.first_ms)
        return True

    def _whole_frame(self, offset: int) -> Head | int:
        """Take over the frame at `offset`; the bytes that were read in vain when it is damaged."""
        self._file.seek(offset)
        data = self._file.read(HEAD_SIZE)
        if len(data) < HEAD_SIZE:
            return len(data)
        try:
            head = read_head(data)
        except Damaged:
            return len(data)
        try:
            payload = self._payload(offset + HEAD_SIZE, head)
        except Damaged:
            return head.length
        if self._skipping_since is not None:
            self.skipped.append(offset - self._skipping_since)
            self._skipping_since = None
        try:
            self._take(head, offset + HEAD_SIZE, payload)
        except Damaged:  # it is what was written, and nothing that this version understands
            self.refused += 1
        return head

    def _take(self, head: Head, offset: int, payload: bytes) -> None:
        if head.kind == FrameKind.HEADER:
            self.header = decode_header(payload)
        elif head.kind == FrameKind.READINGS:
            self.frames.append(Frame(offset, head))
        elif head.kind == FrameKind.EVENTS:
            entries, refused = decode_entries(payload)
            self.events += _ordered(entries, head)
            self.refused += refused
        self.ended = head.kind == FrameKind.END
        self.last_ms = max(self.last_ms, head.last_ms)
        self.last_unix_s = head.unix_s

    def _next_mark(self, offset: int, size: int) -> int:
        """Where the next frame may begin; `size` when nowhere."""
        while offset < size:
            self._file.seek(offset)
            part = self._file.read(STEP)
            if not part:
                return size
            at = part.find(MARK)
            if at >= 0:
                return offset + at
            offset += max(len(part) - len(MARK) + 1, 1)
        return size


def open_recording(path: Path, progress: Callable[[float], bool] = lambda _done: True) -> Recording | None:
    """Open and check a recording; None when `progress` returned False.

    Raises `BadInput` with one line for a file that cannot be read, is no recording, is of a newer version, or holds no
    reading at all.
    """
    file = _file(path)
    recording = Recording(path, file)
    try:
        _demand_prefix(path, file.read(PREFIX.size))
        if not recording.scan(progress):
            recording.close()
            return None
        if not recording.frames and not recording.events:
            raise BadInput(
                f"{path} is a recording without a single reading: it broke off as it began, or all of it is damaged"
            )
    except OSError as error:
        recording.close()
        raise BadInput(f"{path} cannot be read: {error.strerror or error}") from None
    except BaseException:
        recording.close()
        raise
    return recording


def _file(path: Path) -> BinaryIO:
    try:
        return open_regular(path)
    except FileNotFoundError:
        raise BadInput(f"there is no file {path}") from None
    except (OSError, ValueError) as error:  # ValueError: a zero byte in the name
        raise BadInput(f"{path} cannot be read: {getattr(error, 'strerror', None) or error}") from None


def peek(path: Path) -> None:
    """Raise `BadInput` for what is no recording, as `open_recording` does, after a look at the first bytes alone."""
    with _file(path) as file:
        _demand_prefix(path, file.read(PREFIX.size))


def _demand_prefix(path: Path, data: bytes) -> None:
    """Raise `BadInput` unless a recording of a version that can be read begins so."""
    if len(data) < PREFIX.size or not data.startswith(MAGIC):
        raise BadInput(
            f"{path} is no recording of DevExplorer; recordings are made with 'devexplorer watch --record FILE'"
        )
    _, version = PREFIX.unpack(data)
    if version > VERSION:
        raise BadInput(
            f"{path} was recorded by a newer DevExplorer (format {version}, this one reads up to {VERSION}): open it"
            " with that version"
        )


def _ordered(entries: list[RecordedEntry], head: Head) -> list[RecordedEntry]:
    """By time, and inside the time of their frame, whatever is written in them."""
    entries = [RecordedEntry(min(max(at_ms, head.first_ms), head.last_ms), record) for at_ms, record in entries]
    entries.sort(key=by_time)
    return entries
