"""Frames on the link between window and engine: a length of four bytes (big-endian), then one msgpack record. No thread of its own.

The receiver trusts nothing: a frame above the limit ends the link (its length cannot be believed, so the stream is lost), a frame that does
not decode to a record of the expected union is refused alone, and the next one is read.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from typing import BinaryIO

import msgspec

from devexplorer.core.errors import LinkError
from devexplorer.core.records.messages import Command, Event, ObjectChanged

EVENT_LIMIT = 64 << 20
"""Bytes of one event; a snapshot of 50,000 tensors has about 10 MiB."""
COMMAND_LIMIT = 16 << 20
LARGEST_NUMBER = 1e11
"""Of any float in an event: unix seconds are 2e9, TFLOP/s below 1e7."""
LONGEST_TEXT = 100_000
LONGEST_LIST = 5_000
_LENGTH = struct.Struct(">I")
FRAME_HEAD = _LENGTH.size
"""Bytes before the payload."""

_encode = msgspec.msgpack.Encoder().encode
_decode_event: Callable[[bytes], Event] = msgspec.msgpack.Decoder(Event).decode
_decode_command: Callable[[bytes], Command] = msgspec.msgpack.Decoder(Command).decode


def frame(record: Event | Command) -> bytes:
    """Encode one record with its length."""
    payload = _encode(record)
    return _LENGTH.pack(len(payload)) + payload


def _read_exactly(stream: BinaryIO, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = stream.read(count - len(parts))
        if not part:
            break
        parts += part
    return bytes(parts)


def read_payload(stream: BinaryIO, limit: int) -> bytes | None:
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
    if not isinstance(event, ObjectChanged) and not _sane(event):  # its rows hold no floats, and there may be 50,000 of them
        raise LinkError(f"a {type(event).__name__} was refused: it holds a number that is not finite or a text that is too long")
    return event


def _sane(value: object) -> bool:
    """Whether every number is finite and of a size that a clock, an axis or a label can show, and every text of a length to be read."""
    if isinstance(value, float):
        return abs(value) < LARGEST_NUMBER  # false for NaN as well
    if isinstance(value, str):
        return len(value) <= LONGEST_TEXT
    if isinstance(value, msgspec.Struct):
        return all(_sane(getattr(value, name)) for name in value.__struct_fields__)
    if isinstance(value, tuple):
        return len(value) <= LONGEST_LIST and all(map(_sane, value))
    if isinstance(value, dict):
        return len(value) <= LONGEST_LIST and all(map(_sane, value.values()))
    return True


def decode_command(payload: bytes) -> Command:
    """Decode and validate one command; `LinkError` when it is none."""
    try:
        return _decode_command(payload)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise LinkError(f"a frame that is no command was refused: {error}") from error
