"""The format of a recording: what stands in the file and how it is checked. Pure functions, any thread.

    file    magic and format version (11 bytes), then frames to the end frame   mark, head (`Head`), payload: msgpack,
    compressed with zlib kinds   header (once, first) · readings (samples, benchmark points) · events (everything else,
    and the devices) · end (nothing)

A payload is a list of pairs: milliseconds since the recording began on a clock that never jumps, and one tagged record.
Readings share a frame with everything of the same half second: field names repeat, so that a sample of 800 bytes takes
about 90. A frame carries CRC-32 of head and payload, so that damage is found where it is and the next frame is found by
its mark. All numbers are big-endian. Nothing is ever unpickled; what a frame may hold, compressed and not, is limited.
"""

from __future__ import annotations

import enum
import struct
import zlib
from collections.abc import Sequence
from contextlib import suppress
from operator import attrgetter
from typing import NamedTuple

import msgspec

from devexplorer.core.base import DevExplorerError
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
