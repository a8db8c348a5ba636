"""The rows of an object as a tree and as columns, computed once per snapshot. Main thread; no Qt, no torch.

A large model has 60,000 rows, so the work per row is kept small: the structure (`Shape`) takes a few milliseconds and
is reused while the paths stay the same; each column of a `RowTable` is read on first use, or ahead of time with `step`.
When a few rows change, only their entries in the columns change.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from devexplorer.core.records import ObjectSnapshot, Row

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MANY_CHANGED = 2_000
"""With more changed rows than this, all columns are read again on next use."""
_PARTS = ("gradient", "state")
"""Kinds that belong to another tensor: training creates and drops them."""


class Shape:
    """The tree: parent and end of each row. A row whose parent is missing goes below the nearest shallower row."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.paths: Final = list(map(_path, rows))
        self.depths: Final = list(map(_depth, rows))
        parents, ends = _parents_and_ends(np.array(self.depths, np.int64))
        self.parents_array: Final = parents
        self.parents: Final[list[int]] = parents.tolist()
        """Index of the parent row; -1 for the object itself."""
        self.ends: Final[list[int]] = ends.tolist()
        """One past the last descendant."""
        self.ends_array: Final = ends

    def fits(self, rows: Sequence[Row]) -> bool:
        """Whether these rows have the same paths in the same order."""
        return (
            len(rows) == len(self.paths)
            and list(map(_path, rows)) == self.paths
            and list(map(_depth, rows)) == self.depths
        )

    @cached_property
    def places(self) -> dict[str, int]:
        """Path to row index; the first row if a path occurs twice."""
        return dict(zip(reversed(self.paths), range(len(self.paths) - 1, -1, -1), strict=True))

    def children(self, row: int) -> list[int]:
        """Indices of the children, in order."""
        children, ends, end, index = [], self.ends, self.ends[row], row + 1
        while index < end:
            children.append(index)
            index = ends[index]
        return children

    def around(self, inside: Mask) -> Mask:
        """Ancestors of these rows."""
        count = np.concatenate(([0], np.cumsum(inside)))
        return count[self.ends_array] > count[1:]

    def below(self, chosen: Mask) -> Mask:
        """These rows and their descendants."""
        ended = np.bincount(self.ends_array[chosen], minlength=len(chosen) + 1)[: len(chosen)]
        return np.cumsum(chosen.astype(np.int64) - ended) > 0


class CategoryCodes(dict[Hashable, int]):
    """Codes for the few distinct values of a column, in order of appearance."""

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self)
        return number

    def table(self, holds: Callable[[Any], bool]) -> Mask:
        """For each code, whether the predicate holds for its value."""
        return np.fromiter(map(holds, self), np.bool_, len(self))


class CodedColumn:
    """One field of every row, as codes into its distinct values."""

    def __init__(self, codes: CategoryCodes, numbers: Ints) -> None:
        self.codes, self.numbers = codes, numbers

    def where(self, holds: Callable[[Any], bool]) -> Mask:
        """Rows for whose value the predicate holds; evaluated once per distinct value."""
        chosen: Mask = self.codes.table(holds)[self.numbers]
        return chosen


FIELDS: Final[dict[str, Callable[[Row], Any]]] = {
    "kind": operator.attrgetter("kind"),
    "devices": operator.attrgetter("devices"),
    "dtype": operator.attrgetter("dtype"),
    "type": operator.attrgetter("type"),
    "name": operator.attrgetter("name"),
    "traits": operator.attrgetter("requires_grad", "registered", "initialised"),
}
"""Columns with few distinct values, and how they are read."""
_path = operator.attrgetter("path")
_depth = operator.attrgetter("depth")
_bytes = operator.attrgetter("bytes")
_elements = operator.attrgetter("elements")
_tied_to = operator.attrgetter("tied_to")


class RowTable:
    """One snapshot's rows with their structure, and columns that are read on first use."""

    def __init__(self, rows: tuple[Row, ...], shape: Shape | None = None) -> None:
        self.rows: Final = rows
        self.shape: Final = shape or Shape(rows)
        self._columns: dict[str, CodedColumn] = {}
        self._numbers: dict[str, Ints] = {}
        self._version = object()
        self._came_from: tuple[object, tuple[int, ...]] | None = None
        """Version of the previous table, and the indices that differ from it."""

    # --- columns
    # -------------------------------------------------------------------------------------------------------

    def column(self, field: str) -> CodedColumn:
        """One of `FIELDS` for every row."""
        if field not in self._columns:
            codes = CategoryCodes()
            numbers = np.fromiter(map(codes.__getitem__, map(FIELDS[field], self.rows)), np.int64, len(self.rows))
            self._columns[field] = CodedColumn(codes, numbers)
        return self._columns[field]

    @property
    def bytes(self) -> Ints:
        """Bytes of every row."""
        return self._number("bytes", lambda: np.fromiter(map(_bytes, self.rows), np.int64, len(self.rows)))

    @property
    def elements(self) -> Ints:
        """Elements of every row."""
        return self._number("elements", lambda: np.fromiter(map(_elements, self.rows), np.int64, len(self.rows)))

    @property
    def originals(self) -> Ints:
        """For every row, the index of the same tensor's first path: itself, unless it is tied."""
        return self._number("originals", self._find_originals)

    def _number(self, name: str, read: Callable[[], Ints]) -> Ints:
        if name not in self._numbers:
            self._numbers[name] = read()
        return self._numbers[name]

    def _find_originals(self) -> Ints:
        originals = np.arange(len(self.rows))
        tied = list(map(_tied_to, self.rows))
        for index in itertools.compress(range(len(tied)), tied):
            originals[index] = self.shape.places.get(str(tied[index]), index)
        return originals

    def step(self) -> bool:
        """Read one more of the columns that sums need; False when all have been read."""
        for field in ("kind", "devices", "dtype", "traits"):
            if field not in self._columns:
                self.column(field)
                return True
        for name in ("bytes", "elements", "originals"):
            if name not in self._numbers:
                getattr(self, name)
                return True
        return False

    @property
    def is_ready(self) -> bool:
        """Whether all columns that sums need have been read."""
        return len(self._numbers) == 3 and all(
            field in self._columns for field in ("kind", "devices", "dtype", "traits")
        )

    # --- questions
    # -----------------------------------------------------------------------------------------------------

    def place(self, path: str) -> int | None:
        """Index of the row with this path."""
        return self.shape.places.get(path)

    def part(self, path: str) -> tuple[Row, ...]:
        """The row with this path and its descendants; empty if there is none."""
        index = self.place(path)
        return () if index is None else self.rows[index : self.shape.ends[index]]

    def holder(self, index: int) -> int:
        """The row itself if it is a module, else its nearest enclosing module, else the object."""
        while self.rows[index].kind != "module" and index > 0:
            index = self.shape.parents[index]
        return index

    @cached_property
    def trains(self) -> bool:
        """Whether any parameter is trainable."""
        return any(row.requires_grad for row in self.rows if row.kind == "parameter")

    def kinds(self, *wanted: str) -> Mask:
        """Rows of these kinds."""
        return self.column("kind").where(wanted.__contains__)

    @property
    def parts_of_training(self) -> Mask:
        """Gradients and optimizer state."""
        return self.kinds(*_PARTS)

    def inside(self, places: Iterable[int]) -> Mask:
        """These rows and their descendants."""
        chosen = np.zeros(len(self.rows), np.bool_)
        ends = self.shape.ends
        for index in places:
            chosen[index : ends[index]] = True
        return chosen

    def tensors(self, places: Iterable[int]) -> Ints:
        """Indices of the tensors at and below these rows that count in sums: registered ones, or an object that is a
        tensor; each tensor once."""
        chosen = self.inside(places)
        chosen &= self.column("kind").where(lambda kind: kind != "module")
        if self.rows[0].kind == "module":
            chosen &= self.column("traits").where(lambda traits: traits[1])
        candidates = np.flatnonzero(chosen)
        originals = self.originals[candidates]
        first = np.zeros(len(self.rows), np.int64)
        first[originals[::-1]] = np.arange(len(candidates))[::-1]  # of a repeated tensor the first one is written last
        counted: Ints = candidates[first[originals] == np.arange(len(candidates))]
        return counted

    # --- from snapshot to snapshot
    # -------------------------------------------------------------------------------------

    def changed(self, rows: tuple[Row, ...], places: Sequence[int]) -> RowTable:
        """The table of rows with the same paths, of which those at `places` differ."""
        new = RowTable(rows, self.shape)
        new._came_from = (self._version, tuple(places))
        if len(places) > MANY_CHANGED:
            return new
        for field, column in self._columns.items():
            numbers = column.numbers.copy()
            for index in places:
                numbers[index] = column.codes[FIELDS[field](rows[index])]
            new._columns[field] = CodedColumn(column.codes, numbers)
        if all(rows[index].tied_to == self.rows[index].tied_to for index in places) and "originals" in self._numbers:
            new._numbers["originals"] = self._numbers["originals"]
        for name, read in (("bytes", _bytes), ("elements", _elements)):
            if name in self._numbers:
                new._numbers[name] = self._numbers[name].copy()
                new._numbers[name][list(places)] = [read(rows[index]) for index in places]
        return new

    def changes_since(self, old: RowTable) -> Sequence[int] | None:
        """Indices of the rows that differ from `old`; None if the paths differ."""
        if self.shape is not old.shape:
            return None
        if self._came_from is not None and self._came_from[0] is old._version:
            return self._came_from[1]
        return list(itertools.compress(range(len(self.rows)), map(operator.is_not, self.rows, old.rows)))


class RowTables:
    """The row tables of all objects, each for the latest snapshot."""

    def __init__(self) -> None:
        self._known: dict[str, RowTable] = {}

    def of(self, snapshot: ObjectSnapshot) -> RowTable:
        """The table of this snapshot, which has at least one row."""
        known = self._known.get(snapshot.name)
        if known is None or known.rows is not snapshot.rows:
            shape = known.shape if known is not None and known.shape.fits(snapshot.rows) else None
            known = self._known[snapshot.name] = RowTable(snapshot.rows, shape)
        return known

    def changed(self, before: ObjectSnapshot, after: ObjectSnapshot, places: Sequence[int]) -> None:
        """The object has a new snapshot with the same paths; only the rows at `places` differ."""
        known = self._known.get(before.name)
        if known is not None and known.rows is before.rows:
            self._known[after.name] = known.changed(after.rows, places)

    def keep(self, objects: Mapping[str, ObjectSnapshot]) -> None:
        """Drop the tables of removed objects."""
        for name in self._known.keys() - objects.keys():
            del self._known[name]


def _parents_and_ends(depths: Ints) -> tuple[Ints, Ints]:
    """Computed per level of depth, of which there are few: the parent is the last shallower row before, the end is the
    next row that is not deeper."""
    depths = np.concatenate((depths[:1], np.maximum(depths[1:], depths[0] + 1)))
    parents, ends = np.full(len(depths), -1), np.full(len(depths), len(depths))
    for depth in np.flatnonzero(np.bincount(depths - depths.min())) + depths.min():
        level = np.flatnonzero(depths == depth)
        above = np.flatnonzero(depths < depth)
        if len(above):
            parents[level] = above[np.searchsorted(above, level) - 1]
        stops = np.append(np.flatnonzero(depths <= depth), len(depths))
        ends[level] = stops[np.searchsorted(stops, level, side="right")]
    return parents, ends
