"""Decoders for records that hold commands, events or benchmarks, of whichever feature these are. Any thread.

A field that holds one is declared as `Command`, `Event`, `BenchSpec` or `BenchResult`; msgspec asks here what that is.
"""

from __future__ import annotations

from functools import reduce
from operator import or_
from typing import Any

import msgspec

from devexplorer.core.feature import benchmark_kinds, command_types, event_types
from devexplorer.core.records.benchmark import BenchResult, BenchSpec
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


def any_spec() -> Any:
    """The union of what all kinds of benchmarks measure."""
    return one_of(tuple(kind.spec for kind in benchmark_kinds().values()))


def any_result() -> Any:
    """The union of the results of all kinds of benchmarks."""
    return one_of(tuple(kind.result for kind in benchmark_kinds().values()))


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
    if kind is BenchSpec:
        return converted(value, any_spec())
    if kind is BenchResult:
        return converted(value, any_result())
    raise NotImplementedError
