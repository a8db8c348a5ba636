"""Frames on the link between window and engine: a length of four bytes (big-endian), then one msgpack record. No thread
of its own.

An object with more than `ROWS_A_FRAME` rows crosses in several frames: decoding one of 60,000 rows would keep the
interpreter's lock, and with it the window, for longer than a picture of the screen takes. `pieces` cuts it up, a
`Joiner` puts it together again.

The receiver trusts nothing: a frame above the limit ends the link (its length cannot be believed, so the stream is
lost), a frame that does not decode to a record of the expected union is refused alone, and the next one is read.
"""

from __future__ import annotations

import math
import struct
from collections.abc import Callable, Iterator
from typing import Protocol

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.feature import any_command, any_event, decoder
from devexplorer.core.records import BaseCommand, Command, Event, ObjectChanged, Row, RowsChanged, RowsFollow
from devexplorer.core.records.base import AnyNumbers

CANNOT_START = 78
"""Exit code of an engine that would end the same way again: no torch, a broken one, a wrong specification."""
CUDA_BROKEN = 79
"""Exit code of an engine in which CUDA failed for good; its last error says how."""
EVENT_LIMIT = 64 << 20
"""Bytes of one frame."""
ROWS_A_FRAME = 2_000
"""Of a snapshot; decoding them takes about 1.5 ms."""
MOST_ROWS = 2_000_000
"""Of one object."""
COMMAND_LIMIT = 16 << 20
LARGEST_NUMBER = 1e11
"""Of any float in an event: unix seconds are 2e9, TFLOP/s below 1e7."""
LONGEST_TEXT = 100_000
LONGEST_LIST = 5_000
_LENGTH = struct.Struct(">I")
FRAME_HEAD = _LENGTH.size
"""Bytes before the payload."""

_encode = msgspec.msgpack.Encoder().encode
_decode_event: Callable[[bytes], Event] = decoder(any_event()).decode
_decode_command: Callable[[bytes], Command] = decoder(any_command()).decode


class FrameSource(Protocol):
    """What frames are read from."""

    def read(self, size: int, /) -> bytes | None:
        """At most so many bytes; nothing at the end."""
        ...


def frame(record: msgspec.Struct) -> bytes:
    """Encode one record with its length."""
    payload = _encode(record)
    return _LENGTH.pack(len(payload)) + payload


def _read_exactly(stream: FrameSource, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = stream.read(count - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)


def read_payload(stream: FrameSource, limit: int) -> bytes | None:
    """Read one frame's payload; None at the end of the stream between two frames.

    Raises `LinkError` when the frame is cut off or its length exceeds `limit`; the stream is of no use afterwards.
    """
    head = _read_exactly(stream, _LENGTH.size)
    if not head:
        return None
    if len(head) < _LENGTH.size:
        raise LinkError("the link ended inside the length of a frame")
    (length,) = _LENGTH.unpack(head)
    if length > limit:
        raise LinkError(f"a frame of {length} bytes was refused: the limit is {limit}")
    payload = _read_exactly(stream, length)
    if len(payload) < length:
        raise LinkError(f"the link ended after {len(payload)} of a frame's {length} bytes")
    return payload


def decode_event(payload: bytes) -> Event:
    """Decode and validate one event; `LinkError` when it is none, or holds what the window could not show."""
    try:
        event = _decode_event(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LinkError(f"a frame that is no event was refused: {error}") from error
    if not sane(event):
        raise LinkError(
            f"a {type(event).__name__} was refused: it holds a number that is not finite or a text that is too long"
        )
    return event


def over_the_link(event: Event, joiner: Joiner) -> Iterator[Event]:
    """What arrives when an event is sent, for an engine in this process: it is encoded and decoded as between two
    processes."""
    for piece in pieces(event):
        arrived = joiner.take(decode_event(frame(piece)[FRAME_HEAD:]))
        if arrived is not None:
            yield arrived


def pieces(event: Event) -> Iterator[Event]:
    """The event, or several that make up one with many rows."""
    if not isinstance(event, (ObjectChanged, RowsChanged)) or len(rows := _rows(event)) <= ROWS_A_FRAME:
        yield event
        return
    yield _with_rows(event, rows[:ROWS_A_FRAME], len(rows) - ROWS_A_FRAME)
    name = _name(event)
    for start in range(ROWS_A_FRAME, len(rows), ROWS_A_FRAME):
        yield RowsFollow(request=event.request, name=name, rows=rows[start : start + ROWS_A_FRAME])


class Joiner:
    """Puts together what came in pieces. One per link, used by the thread that reads it."""

    def __init__(self) -> None:
        self._begun: dict[str, tuple[ObjectChanged | RowsChanged, list[Row]]] = {}

    def take(self, event: Event) -> Event | None:
        """The event that is whole now; None while more of it has to come. Raises `LinkError` for pieces that do not fit
        together."""
        if isinstance(event, RowsFollow):
            return self._more(event)
        if isinstance(event, (ObjectChanged, RowsChanged)):
            name = _name(event)
            self._begun.pop(name, None)  # an older one that was never finished
            if event.following:
                if not 0 < event.following <= MOST_ROWS:
                    raise LinkError(
                        f"'{name}' was refused: it announces {event.following} more rows, and {MOST_ROWS} is the most"
                    )
                self._begun[name] = (event, list(_rows(event)))
                return None
        return event

    def _more(self, event: RowsFollow) -> Event | None:
        begun = self._begun.get(event.name)
        if begun is None:
            raise LinkError(f"rows of '{event.name}' were refused: what they belong to has not come")
        first, rows = begun
        rows += event.rows
        missing = len(_rows(first)) + first.following - len(rows)
        if missing > 0:
            return None
        del self._begun[event.name]
        if missing < 0:
            raise LinkError(f"'{event.name}' was refused: it has {-missing} rows more than it announced")
        return _with_rows(first, tuple(rows), 0)


def _name(event: ObjectChanged | RowsChanged) -> str:
    return event.snapshot.name if isinstance(event, ObjectChanged) else event.name


def _rows(event: ObjectChanged | RowsChanged) -> tuple[Row, ...]:
    return event.snapshot.rows if isinstance(event, ObjectChanged) else event.rows


def _with_rows(
    event: ObjectChanged | RowsChanged, rows: tuple[Row, ...], following: int
) -> ObjectChanged | RowsChanged:
    if isinstance(event, RowsChanged):
        return msgspec.structs.replace(event, rows=rows, following=following)
    return msgspec.structs.replace(
        event, snapshot=msgspec.structs.replace(event.snapshot, rows=rows), following=following
    )


def sane(value: object, largest: float = LARGEST_NUMBER) -> bool:
    """Whether every number is finite and of a size that a clock, an axis or a label can show, and every text of a
    length to be read.

    Rows and their places are taken as they are: they hold no floats, and there are thousands of them. What the values
    of a tensor are like can be any finite number: a training that went wrong is what people look at.
    """
    if isinstance(value, tuple) and value and type(value[0]) in (Row, int):
        return True
    if isinstance(value, BaseCommand):
        return True  # an echo of what was sent, infinite numbers to be written into a tensor included
    if isinstance(value, float):
        return abs(value) < largest  # false for NaN as well
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    if isinstance(value, msgspec.Struct):
        limit = math.inf if isinstance(value, AnyNumbers) else largest
        return all(sane(getattr(value, name), limit) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return len(value) <= LONGEST_LIST and all(map(sane, value))
    if isinstance(value, dict):
        return len(value) <= LONGEST_LIST and all(map(sane, value.values()))
    return True


def decode_command(payload: bytes) -> Command:
    """Decode and validate one command; `LinkError` when it is none."""
    try:
        return _decode_command(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LinkError(f"a frame that is no command was refused: {error}") from error
