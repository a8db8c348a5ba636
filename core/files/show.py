"""`devexplorer show FILE|FOLDER`: what a checkpoint holds, with nothing of it run and no value read. Main thread."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator
from itertools import chain
from pathlib import Path
from typing import Any

import msgspec

from devexplorer.core.base import BadInput, bytes_text, count_text, printable, shape_text
from devexplorer.core.cli.terminal import SCHEMA
from devexplorer.core.files.kinds import MODEL, OUT_OF_MEMORY, RECORDING, SCRIPT, SNAPSHOT, recognise

_OTHERS = {
    MODEL: "is Python code; to list a model of it: devexplorer place FILE:CLASS",
    SCRIPT: "is a session as Python; to open it: devexplorer FILE",
    RECORDING: "is a recording; to open it: devexplorer --replay FILE",
    SNAPSHOT: "is an allocator snapshot; to open it: devexplorer FILE",
    OUT_OF_MEMORY: "says why a script ran out of memory; to read it: devexplorer explain FILE",
}
"""What can be opened and holds no tensors."""
WIDEST = 80
"""Cells of the longest name that the other columns still line up with."""


def show(arguments: argparse.Namespace) -> int:
    """List the tensors, line by line: there can be a million."""
    kind = recognise(Path(arguments.path)).kind if "\0" not in arguments.path else None
    if kind in _OTHERS:
        raise BadInput(f"'{arguments.path}' {_OTHERS[kind]}")
    from devexplorer.core.files.opening import opened  # torch

    with opened(arguments.path) as file:
        entries = chain(file.entries.values(), file.listed.values())
        if arguments.json:
            _document(file.title, entries, file.notes)
        else:
            _table(file, entries)
    return 0


def _document(title: str, entries: Iterator[Any], notes: list[str]) -> None:
    if sys.stdout is None:  # the shell closed it
        return
    sys.stdout.flush()
    out, encode = sys.stdout.buffer, msgspec.json.encode
    out.write(b'{"schema":%d,"format":%b,"tensors":[' % (SCHEMA, encode(title)))
    for number, entry in enumerate(entries):
        tensor = {"name": entry.key, "shape": entry.shape, "dtype": _dtype(entry), "bytes": entry.nbytes}
        if entry.same_as is not None:
            tensor["same_as"] = entry.same_as
        if entry.kind:
            tensor["kind"] = entry.kind
        out.write((b"," if number else b"") + encode(tensor))
    out.write(b'],"notes":%b}\n' % encode(notes))


def _table(file: Any, entries: Iterator[Any]) -> None:
    values = sum(entry.nbytes for entry in file.entries.values() if entry.same_as is None)
    values += sum(entry.nbytes for entry in file.listed.values())
    count = len(file.entries) + len(file.listed)
    print(f"{printable(file.path)}: {file.title}, {count_text(count, 'tensor')}, {bytes_text(values)}")
    width = min(max((len(key) for key in chain(file.entries, file.listed)), default=0), WIDEST)
    for entry in entries:
        extra = f"  {entry.kind}" if entry.kind else ""
        if entry.same_as is not None:
            extra = f"  same as {printable(entry.same_as)}"
        name = printable(entry.key).ljust(width)
        print(f"  {name}  {shape_text(entry.shape):<16}  {_dtype(entry):<14}  {entry.nbytes:>14,} B{extra}")
    for note in file.notes:
        print(printable(note))


def _dtype(entry: Any) -> str:
    return str(entry.dtype).removeprefix("torch.")
