"""Which rows of the objects the tree shows, below what, in which order: what the filter, the groups and the kinds leave
of them. Main thread; no Qt.

A node is a number: the number of its entry, and in the low bits the row. An entry is one object, or the part of it that
is on one device. Rows cost nothing until their parent is opened: children are listed when they are asked for.

What is shown is found on whole columns, and words are looked up among the few different values of a column: 60,000 rows
take a few milliseconds.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np

from devexplorer.core.records import Diagnosis, Finding, ObjectSnapshot, Row
from devexplorer.core.session.findings import ObjectFindings, findings_of
from devexplorer.core.session.row_table import Ints, Mask, RowTable

HINT: Final = (
    "Words that name, type, dtype or device must hold, for instance: conv bfloat16 cuda:1\n"
    "One field only: name:… type:… dtype:… device:… kind:… (parameter, buffer, gradient, state, module)\n"
    "With a dot it is looked for in the whole path: encoder.layer.0\n"
    "Keywords: frozen, trainable, tied, mixed, uninitialised"
)

_FIELDS: Final = ("type", "dtype", "devices")
"""Columns that a word without a field is looked for in, besides the name."""
_FIELD_OF: Final = {"type": "type", "dtype": "dtype", "device": "devices", "kind": "kind"}


class SearchQuery(NamedTuple):
    """What is looked for: every word has to be found."""

    words: tuple[str, ...] = ()

    @classmethod
    def of(cls, text: str) -> SearchQuery:
        """The words of a typed text, in lower case."""
        return cls(
            tuple(
                word for word in text.lower().split() if not word.endswith(":") or word[:-1] not in {*_FIELD_OF, "name"}
            )
        )

    def matches(self, outline: RowTable, name: str) -> Mask:
        """The rows of the object `name` that hold every word."""
        result = np.ones(len(outline.rows), np.bool_)
        for word in self.words:
            result &= _holding(outline, name, word)
        return result


def _holding(outline: RowTable, name: str, word: str) -> Mask:
    field, colon, rest = word.partition(":")
    if colon and field == "name":
        return _named(outline, name, rest)
    if colon and field in _FIELD_OF:
        return outline.column(_FIELD_OF[field]).where(_holds(rest))
    result = _named(outline, name, word)
    for column in _FIELDS:
        result |= outline.column(column).where(_holds(word))
    if word in _TRAITS:
        result |= _TRAITS[word](outline)
    return result


def _named(outline: RowTable, name: str, word: str) -> Mask:
    """Rows whose name holds the word; the object itself has its own. A word with a dot is looked for in the path."""
    if "." in word:
        result = np.fromiter((word in path.lower() for path in outline.shape.paths), np.bool_, len(outline.rows))
    else:
        result = outline.column("name").where(_holds(word))
    result[0] = word in name.lower()
    return result


def _holds(word: str) -> Callable[[Any], bool]:
    def holds(value: str | tuple[str, ...] | None) -> bool:
        text = value or "" if not isinstance(value, tuple) else " ".join(value)
        return word in text.lower()

    return holds


def _parameters(outline: RowTable, *, trainable: bool) -> Mask:
    return outline.kinds("parameter") & outline.column("traits").where(lambda traits: traits[0] is trainable)


_TRAITS: Final[dict[str, Callable[[RowTable], Mask]]] = {
    "frozen": lambda outline: _parameters(outline, trainable=False),
    "trainable": lambda outline: _parameters(outline, trainable=True),
    "tied": lambda outline: outline.originals != np.arange(len(outline.rows)),
    "mixed": lambda outline: (
        outline.kinds("module") & outline.column("devices").where(lambda devices: len(devices) > 1)
    ),
    "uninitialised": lambda outline: outline.column("traits").where(lambda traits: not traits[2]),
}


NOWHERE: Final = ""
"""The group of objects that hold no tensor."""


class Options(NamedTuple):
    """How the objects are arranged."""

    query: SearchQuery = SearchQuery()
    sorted_by: str | None = None
    """`name` (in natural order) or `bytes`; None: as they come."""
    descending: bool = False
    grouped: bool = False
    """Below the devices that hold them."""
    training_parts: bool = True
    """Show gradients and what optimizers keep."""


class KnownObject(NamedTuple):
    """One object as the tree knows it."""

    snapshot: ObjectSnapshot
    outline: RowTable
    """With a row for each finding, where there are some."""
    diagnosis: Diagnosis | None = None
    findings: ObjectFindings | None = None
    """What the doctor found in it."""


def known_as(
    snapshot: ObjectSnapshot, outline: RowTable, diagnosis: Diagnosis | None, before: KnownObject | None = None
) -> KnownObject:
    """The object with this outline, and with what the doctor found in it. `before`: what was known, which may still be
    right."""
    if diagnosis is None or not findings_of(diagnosis):
        return KnownObject(snapshot, outline, diagnosis)
    if (
        before is not None
        and before.diagnosis is diagnosis
        and before.findings is not None
        and before.findings.follow(outline)
    ):
        findings = before.findings
    else:
        findings = ObjectFindings(outline, diagnosis)
    return KnownObject(snapshot, findings.outline, diagnosis, findings)


class Visible(NamedTuple):
    """Which rows of an object are shown; None: all, or none of them."""

    shown: Mask | None
    opened: Mask | None = None
    """Those that a query wants open."""
    on_the_way: Mask | None = None
    """Those that are shown only because a match is in them."""

    @property
    def is_empty(self) -> bool:
        """Nothing is shown."""
        return self.shown is not None and not self.shown.any()


def visible(known: KnownObject, options: Options, group: str | None) -> Visible:
    """Which rows of an object, or of the part of it that is on the device `group`, are shown.

    A row is shown when it matches, when a match is in it, or when it is in a match; everything above a shown row is
    shown.
    """
    outline, shape = known.outline, known.outline.shape
    shown: Mask | None = None
    if not options.training_parts:
        shown = ~outline.parts_of_training
    if group is not None:
        part = _part(outline, group)
        shown = part if shown is None else shown & part
        shown |= shape.around(shown)
        if known.findings is not None:  # they are where the row is that they are about
            for index in known.findings.findings:
                shown[index] = shown[shape.parents[index]]
    if not options.query.words:
        return Visible(shown)
    matches = options.query.matches(outline, known.snapshot.name)
    if shown is not None:
        matches &= shown
    opened = shape.around(matches)
    inside = shape.below(matches)
    if shown is not None:
        inside &= shown
    return Visible(opened | inside, opened, opened & ~inside)


def devices_of(outline: RowTable) -> list[str]:
    """Every device that holds a tensor of the object."""
    column = outline.column("devices")
    present = np.bincount(column.numbers, minlength=len(column.codes)) > 0
    return sorted(
        {device for devices, there in zip(column.codes, present, strict=True) if there for device in _names(devices)}
    )


def _names(devices: object) -> Sequence[str]:
    assert isinstance(devices, tuple)
    return devices


def on_device(outline: RowTable, device: str | None) -> Mask:
    """Tensors on this device."""
    return outline.column("devices").where(lambda devices: devices == (device,)) & ~outline.kinds("module")


def _part(outline: RowTable, device: str) -> Mask:
    """Tensors on this device, what they are in, and modules without tensors that are in a module that is all there."""
    alone = (device,) if device != NOWHERE else ()
    modules = outline.kinds("module")
    whole = modules & outline.column("devices").where(lambda devices: devices == alone)
    empty = modules & outline.column("devices").where(lambda devices: not devices)
    here = on_device(outline, device)
    return here | outline.shape.around(here) | (empty & outline.shape.below(whole))


def natural(name: str) -> list[str | int]:
    """A key that puts `layer 10` behind `layer 9`."""
    if name.isdecimal():  # most names of the layers of a large model
        return ["", int(name), ""]
    return [int(part) if index % 2 else part.lower() for index, part in enumerate(re.split(r"(\d+)", name))]


BITS: Final = 32
ROW: Final = (1 << BITS) - 1
"""The bits of a node that are its row; all of them set: a device that objects are grouped below."""


class Key(NamedTuple):
    """What a node is, whatever the arrangement."""

    group: str | None
    name: str | None
    path: str


class TreeEntry:
    """One object, or the part of it that is on one device."""

    def __init__(self, number: int, known: KnownObject, group: str | None, visible: Visible) -> None:
        shown = visible.shown
        self.base: Final = number << BITS
        """The node of the object itself; those of its rows follow."""
        self.known, self.group = known, group
        self.name: Final = known.snapshot.name
        self.shown: Final = shown
        self._before: Final = np.arange(len(known.outline.rows) + 1) if shown is None else _counted_before(shown)
        """How many rows are shown before each."""
        self.opened: Final = visible.opened
        """Rows that have to be open for every match to be seen."""
        self._on_the_way: Final = visible.on_the_way
        self._sums: Ints | None = None

    def take(self, known: KnownObject) -> KnownObject:
        """The object has another snapshot with the same paths; returns the one before."""
        before, self.known, self._sums = self.known, known, None
        return before

    def children(self, row: int) -> Ints:
        """Rows that are shown directly below this one, as they come."""
        shape = self.known.outline.shape
        inside = slice(row + 1, shape.ends[row])
        chosen = shape.parents_array[inside] == row
        if self.shown is not None:
            chosen &= self.shown[inside]
        result: Ints = np.flatnonzero(chosen) + (row + 1)
        return result

    def have_children(self, rows: Ints) -> Mask:
        """Which of these rows have any that is shown."""
        result: Mask = self._before[self.known.outline.shape.ends_array[rows]] > self._before[rows + 1]
        return result

    def is_shown(self, row: int) -> bool:
        """Whether the row has a place in the tree."""
        return self.shown is None or bool(self.shown[row])

    def shows(self, shown: Mask | None) -> bool:
        """Whether these are the rows that it shows; None: all."""
        return shown is self.shown if shown is None or self.shown is None else np.array_equal(shown, self.shown)

    def is_meant(self, row: int) -> bool:
        """Whether the row is what was looked for, or in it, and not only the way there."""
        return self._on_the_way is None or not self._on_the_way[row]

    def is_whole(self, row: int) -> bool:
        """Whether the row is all here, and not only a part of it on this device."""
        own = self.known.outline.rows[row]
        return self.group is None or own.kind != "module" or own.devices in ((), (self.group,))

    def sizes(self, rows: Ints) -> Ints:
        """Bytes of each row, as far as they are here."""
        if self.group is None:
            return self.known.outline.bytes[rows]
        return np.fromiter(map(self.bytes, rows.tolist()), np.int64, len(rows))

    def bytes(self, row: int) -> int:
        """Bytes of the row, as far as they are here."""
        if self.is_whole(row):
            return self.known.outline.rows[row].bytes
        if self._sums is None:
            outline = self.known.outline
            counted = (
                on_device(outline, self.group)
                & ~outline.parts_of_training
                & (outline.originals == np.arange(len(outline.rows)))
            )
            counted &= outline.column("traits").where(lambda traits: traits[1])
            self._sums = np.concatenate(([0], np.cumsum(np.where(counted, outline.bytes, 0))))
        return int(self._sums[self.known.outline.shape.ends[row]] - self._sums[row])

    def targets(self, rows: Sequence[int]) -> Iterator[str]:
        """What commands are addressed to for these rows, in the order of the tree; what is in another of them is left
        out.

        Of a module that is only partly on the device of this group those parts that are all there; tensors that it
        holds itself cannot be moved apart from the rest of it, and are left out. A finding counts as what it is
        about.
        """
        shape, end = self.known.outline.shape, 0
        for row in sorted(rows if self.known.findings is None else set(map(self.addressed, rows))):
            if row >= end:
                end = shape.ends[row]
                yield from self._whole(row, end)

    def _whole(self, row: int, end: int) -> Iterator[str]:
        if self.is_whole(row):
            yield self.target(row)
            return
        index, rows, ends = row + 1, self.known.outline.rows, self.known.outline.shape.ends
        while index < end:
            if self.is_shown(index) and rows[index].kind == "module" and self.is_whole(index):
                yield self.target(index)
                index = ends[index]
            else:
                index += 1

    def target(self, row: int) -> str:
        """`name`, or `name:path`."""
        path = self.known.outline.shape.paths[self.addressed(row)]
        return f"{self.name}:{path}" if path else self.name

    def addressed(self, row: int) -> int:
        """The row that commands are addressed to: of a finding, what it is about."""
        findings = self.known.findings
        return row if findings is None or row not in findings.findings else findings.parent(row)

    def finding(self, row: int) -> Finding | None:
        """The finding that this row is."""
        return None if self.known.findings is None else self.known.findings.findings.get(row)


def _counted_before(shown: Mask) -> Ints:
    return np.concatenate((np.zeros(1, np.int64), np.cumsum(shown)))


class Arrangement:
    """The nodes of the tree, listed as they are asked for."""

    def __init__(self, objects: Mapping[str, KnownObject], options: Options, numbers: Iterator[int]) -> None:
        self.options: Final = options
        self.entries: Final[dict[int, TreeEntry]] = {}
        self.groups: Final[dict[int, str]] = {}
        """Node to device."""
        self._of: dict[str, list[TreeEntry]] = {}
        self._listed: dict[int, list[int]] = {}
        self._places: dict[int, int] = {}
        self._with_children: set[int] = set()
        """Of all nodes that are listed, those that have any."""
        self._numbers = numbers
        self.roots: list[int] = []
        if options.grouped:
            self._group(objects)
        else:
            for known in objects.values():
                result = visible(known, options, None)
                if not result.is_empty:
                    self.roots.append(self._enter(known, None, result))
            self.roots = self._in_order(self.roots)
        self._place(self.roots)

    # --- making it
    # -----------------------------------------------------------------------------------------------------

    def _enter(self, known: KnownObject, group: str | None, found: Visible) -> int:
        number = next(self._numbers)
        entry = self.entries[number] = TreeEntry(number, known, group, found)
        self._of.setdefault(entry.name, []).append(entry)
        if entry.have_children(np.zeros(1, np.int64))[0]:
            self._with_children.add(entry.base)
        return entry.base

    def _group(self, objects: Mapping[str, KnownObject]) -> None:
        where = {name: devices_of(known.outline) or [NOWHERE] for name, known in objects.items()}
        for device in sorted(
            set(itertools.chain.from_iterable(where.values())), key=lambda device: (device == NOWHERE, natural(device))
        ):
            inside = []
            for name, known in objects.items():
                if device in where[name]:
                    result = visible(known, self.options, device)
                    if not result.is_empty:
                        inside.append(self._enter(known, device, result))
            if inside:
                node = next(self._numbers) << BITS | ROW
                self.groups[node] = device
                self._with_children.add(node)
                self.roots.append(node)
                self._listed[node] = self._in_order(inside)
                self._place(self._listed[node])

    def _in_order(self, nodes: list[int]) -> list[int]:
        match self.options.sorted_by:
            case "bytes":
                return sorted(nodes, key=self.bytes, reverse=self.options.descending)
            case "name":
                return sorted(nodes, key=lambda node: natural(self.label(node)), reverse=self.options.descending)
        return nodes

    def _place(self, nodes: list[int]) -> None:
        self._places.update(zip(nodes, range(len(nodes)), strict=True))

    # --- reading it
    # ----------------------------------------------------------------------------------------------------

    @property
    def listed(self) -> list[int]:
        """Nodes whose children have been asked for, in no order."""
        return list(self._listed)

    def below_open(self, is_open: Callable[[int], bool]) -> Iterator[tuple[int | None, list[int]]]:
        """The roots, and the children of every node that is open and below open ones only; each with its parent."""
        waiting: list[int | None] = [None]
        while waiting:
            parent = waiting.pop()
            nodes = self.roots if parent is None else self.children(parent)
            yield parent, nodes
            waiting += [node for node in nodes if node in self._listed and is_open(node)]

    def is_meant(self, node: int) -> bool:
        """Whether a node is what was looked for, or in it."""
        entry = self.entries.get(node >> BITS)
        return not self.options.query.words if entry is None else entry.is_meant(node & ROW)

    def of(self, name: str) -> Sequence[TreeEntry]:
        """The entries of one object."""
        return self._of.get(name, ())

    def found(self, node: int) -> tuple[TreeEntry, int] | None:
        """Entry and row of a node; None for a device, and for what is gone."""
        entry = self.entries.get(node >> BITS)
        return None if entry is None or node & ROW >= len(entry.known.outline.rows) else (entry, node & ROW)

    def children(self, node: int) -> list[int]:
        """The nodes below a node, in order."""
        listed = self._listed.get(node)
        if listed is None:
            entry = self.entries.get(node >> BITS)
            if entry is None:
                return []
            listed = self._listed[node] = self._below(entry, node & ROW)
        return listed

    def _below(self, entry: TreeEntry, row: int) -> list[int]:
        """List what is below a row: whole columns at a time, for there can be 10,000."""
        rows = entry.children(row)
        if self.options.sorted_by == "bytes":
            sizes = entry.sizes(rows)
            rows = rows[np.argsort(-sizes if self.options.descending else sizes, kind="stable")]
        self._with_children.update((entry.base | rows[entry.have_children(rows)]).tolist())
        listed: list[int] = (entry.base | rows).tolist()
        if self.options.sorted_by == "name":
            listed = self._in_order(listed)
        self._place(listed)
        return listed

    def has_children(self, node: int) -> bool:
        """Whether a node that is listed has any; Qt asks for every row that it lays out."""
        return node in self._with_children

    def parent(self, node: int) -> int | None:
        """The node that a node is below."""
        entry = self.entries.get(node >> BITS)
        if entry is None:
            return None
        if node & ROW:
            return entry.base | entry.known.outline.shape.parents[node & ROW]
        return (
            None
            if entry.group is None
            else next(group for group, device in self.groups.items() if device == entry.group)
        )

    def place(self, node: int) -> int:
        """Which one it is below its parent."""
        if node not in self._places and (parent := self.parent(node)) is not None:
            self.children(parent)
        return self._places[node]

    def row(self, node: int) -> Row | None:
        """The record of a node; None for a device."""
        result = self.found(node)
        return None if result is None else result[0].known.outline.rows[result[1]]

    def label(self, node: int) -> str:
        """The text of the first column."""
        entry = self.entries.get(node >> BITS)
        if entry is None:
            return self.groups[node] or "no tensors"
        return entry.known.outline.rows[node & ROW].name if node & ROW else entry.name

    def bytes(self, node: int) -> int:
        """Bytes of a node; of a device, of the objects below it."""
        entry = self.entries.get(node >> BITS)
        return sum(map(self.bytes, self.children(node))) if entry is None else entry.bytes(node & ROW)

    def targets(self, nodes: Sequence[int]) -> tuple[str, ...]:
        """What commands are addressed to for these nodes, in the order of the tree, each once."""
        rows: dict[int, list[int]] = {}
        for node in nodes:
            for item in self.children(node) if node in self.groups else (node,):
                rows.setdefault(item >> BITS, []).append(item & ROW)
        there = sorted(rows.keys() & self.entries.keys())
        return tuple(
            dict.fromkeys(itertools.chain.from_iterable(self.entries[number].targets(rows[number]) for number in there))
        )

    def key(self, node: int) -> Key | None:
        """What a node is."""
        if node in self.groups:
            return Key(self.groups[node], None, "")
        result = self.found(node)
        return (
            None
            if result is None
            else Key(result[0].group, result[0].name, result[0].known.outline.shape.paths[result[1]])
        )

    def node(self, key: Key) -> int | None:
        """The node that is this, or the first that shows the same row; None when none does."""
        if key.name is None:
            return next((node for node, device in self.groups.items() if device == key.group), None)
        for entry in sorted(self.of(key.name), key=lambda entry: entry.group != key.group):
            row = entry.known.outline.place(key.path)
            if row is not None and entry.is_shown(row):
                return entry.base | row
        return None

    def opened(self) -> Iterator[int]:
        """Nodes that have to be open for every match of the query to be seen, parents first."""
        if self.options.query.words:
            yield from self.groups
            for entry in self.entries.values():
                if entry.opened is not None:
                    yield from (entry.base | row for row in np.flatnonzero(entry.opened).tolist())
