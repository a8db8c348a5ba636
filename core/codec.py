"""Decoders for records that hold commands or events, of whichever feature these are. Any thread.

A field that holds one is declared as `Command` or `Event`; msgspec asks here what that is.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from devexplorer.core.feature import command_types, event_types
from devexplorer.core.records.messages import Command, Event


def one_of(types: tuple[Any, ...]) -> Any:
    """The union of these types."""
    return reduce(or_, types)


def any_command() -> Any:
    """The union of all commands."""
    return one_of(command_types())


def any_event() -> Any:
    """The union of all events."""
    return one_of(event_types())


def decoder(kind: Any) -> msgspec.msgpack.Decoder[Any]:
    """Of msgpack, for records of this type."""
    return msgspec.msgpack.Decoder(kind, dec_hook=_inner)


def converted(value: object, kind: Any) -> Any:
    """A record of this type from plain values, as JSON has them. Raises `msgspec.ValidationError`."""
    return msgspec.convert(value, kind, dec_hook=_inner)


def _inner(kind: type, value: object) -> Any:
    if kind is Command:
        return converted(value, any_command())
    if kind is Event:
        return converted(value, any_event())
    raise NotImplementedError
