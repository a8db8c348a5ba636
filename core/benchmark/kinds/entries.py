"""Entries of the JSON documents of `bench --json`: one description of the fields, for writing and for reading. Any
thread; no torch.

A field of an entry has the name of a field of the result, of its specification or of the part that it describes, so
that most of them are taken over by name. Keys may be added; none changes its meaning. What is unknown is null, and the
key is there all the same.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, TypeVar

import msgspec

from devexplorer.core.benchmark.published import best
from devexplorer.core.records import Conditions

T = TypeVar("T", bound=msgspec.Struct)
E = TypeVar("E", bound="Entry")
Document = dict[str, Any]
Shape = tuple[int, int, int]


class Entry(msgspec.Struct, kw_only=True):
    """Fields of every entry."""

    device: str
    simulated: bool = False
    iterations: int = 0
    seconds: float | None = None
    verified: bool | msgspec.UnsetType | None = None
    stopped: bool = False
    failure: str | None = None
    threads: int | None = None
    torch: str | None = None
    conditions: Conditions | None = None


def write(entry: type[E], *sources: object, **fields: Any) -> E:
    """An entry with these fields, the others from the first of the sources that has them."""
    values = {
        name: next(getattr(source, name) for source in sources if hasattr(source, name))
        for name in entry.__struct_fields__
        if name not in fields and any(hasattr(source, name) for source in sources)
    }
    return entry(**values | fields)


def read(entry: Entry, record: type[T], *, without: Sequence[str] = (), **fields: Any) -> T:
    """A record with these fields, the others of that name from the entry, `without` some; null leaves the record's
    default."""
    optional = {field.name for field in msgspec.structs.fields(record) if not field.required}
    values = {
        name: value
        for name in record.__struct_fields__
        if name not in without
        and hasattr(entry, name)
        and ((value := getattr(entry, name)) is not None or name not in optional)
    }
    return record(**values | fields)


def read_spec(entry: Entry, spec: type[T], **fields: Any) -> T:
    """A specification; seconds and iterations of an entry are what was measured, not what was asked for."""
    return read(entry, spec, without=("seconds", "iterations"), **fields)


def read_result(entries: Sequence[Entry], result: type[T], **fields: Any) -> T:
    """A result with these fields and what every result has, over all entries of the run."""
    first = entries[0]
    compared = [entry.verified for entry in entries if entry.verified is not None]
    shared = {
        "run": 0,
        "seconds": sum(entry.seconds or 0.0 for entry in entries),
        "iterations": sum(entry.iterations for entry in entries),
        "verified": all(compared) if compared else None,
        "torch_version": first.torch or "",
    }
    return read(first, result, **shared | fields)


def published_tflops(conditions: Conditions | None, dtype: str) -> float | None:
    """The best published figure for the card and dtype."""
    row = None if conditions is None else best(conditions.device_name, dtype)
    return None if row is None else row.peak_burst
