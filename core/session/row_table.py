"""The rows of an object as a tree and as columns, worked out once per snapshot. Main thread; no Qt, no torch.

A large model has 60,000 rows, so nothing here is done row by row when it is not needed: the structure (`Shape`) takes a
few milliseconds and is kept as long as paths stay the same; each column of an `RowTable` is read when it is first
wanted, or one by one with `step` where nobody waits for it. A change of a few rows changes those few places of the
columns.
"""

from __future__ import annotations

import itertools
import operator
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from devexplorer.core.records.objects import ObjectSnapshot, Row

Ints = npt.NDArray[np.int64]
Mask = npt.NDArray[np.bool_]

MANY_CHANGED = 2_000
"""From so many changed rows on the columns are read anew, when they are wanted."""
_PARTS = ("gradient", "state")
"""Kinds that belong to another tensor: they come and go with training."""


class Shape:
    """Which row is in which: parents and ends. Rows whose parent is missing hang below the nearest shallower one."""

    def __init__(self, rows: Sequence[Row]) -> None:
        self.paths: Final = list(map(_path, rows))
        self.depths: Final = list(map(_depth, rows))
        parents, ends = _parents_and_ends(np.array(self.depths, np.int64))
        self.parents: Final[list[int]] = parents.tolist()
        """Row of the parent; -1 for the object itself."""
        self.ends: Final[list[int]] = ends.tolist()
        """One past the last row that is below."""
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
        """Path to row; of a path that comes twice the first."""
        return dict(zip(reversed(self.paths), range(len(self.paths) - 1, -1, -1), strict=True))

    def children(self, row: int) -> list[int]:
        """Rows directly below, in order."""
        found, ends, end, at = [], self.ends, self.ends[row], row + 1
        while at < end:
            found.append(at)
            at = ends[at]
        return found

    def around(self, inside: Mask) -> Mask:
        """Rows that have one of these somewhere below them."""
        count = np.concatenate(([0], np.cumsum(inside)))
        return count[self.ends_array] > count[1:]

    def below(self, chosen: Mask) -> Mask:
        """These rows and everything below them."""
        ended = np.bincount(self.ends_array[chosen], minlength=len(chosen) + 1)[: len(chosen)]
        return np.cumsum(chosen.astype(np.int64) - ended) > 0


class CategoryCodes(dict[Hashable, int]):
    """Numbers for the few different values of a column, in the order in which they were met."""

    def __missing__(self, value: Hashable) -> int:
        number = self[value] = len(self)
        return number

    def table(self, holds: Callable[[Any], bool]) -> Mask:
        """For each number whether its value is one that `holds`."""
        return np.fromiter(map(holds, self), np.bool_, len(self))


class Column:
    """One field of every row as numbers, and what they mean."""

    def __init__(self, codes: CategoryCodes, numbers: Ints) -> None:
        self.codes, self.numbers = codes, numbers

    def where(self, holds: Callable[[Any], bool]) -> Mask:
        """Rows whose value is one that `holds`; asked once per value, not once per row."""
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
"""Columns with few different values, and how they are read."""
_path = operator.attrgetter("path")
_depth = operator.attrgetter("depth")
_bytes = operator.attrgetter("bytes")
_elements = operator.attrgetter("elements")
_tied_to = operator.attrgetter("tied_to")


class RowTable:
    """One snapshot's rows with their structure, and columns that are read when they are wanted."""

    def __init__(self, rows: tuple[Row, ...], shape: Shape | None = None) -> None:
        self.rows: Final = rows
        self.shape: Final = shape or Shape(rows)
        self._columns: dict[str, Column] = {}
        self._numbers: dict[str, Ints] = {}
        self._version = object()
        self._came_from: tuple[object, tuple[int, ...]] | None = None
        """Version of the outline before, and the places that are different now."""

    # --- columns
    # -------------------------------------------------------------------------------------------------------

    def column(self, field: str) -> Column:
        """One of `FIELDS` for every row."""
        if field not in self._columns:
            codes = CategoryCodes()
            numbers = np.fromiter(map(codes.__getitem__, map(FIELDS[field], self.rows)), np.int64, len(self.rows))
            self._columns[field] = Column(codes, numbers)
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
        """For every row the row of the same tensor's first path: itself, unless it is tied."""
        return self._number("originals", self._find_originals)

    def _number(self, name: str, read: Callable[[], Ints]) -> Ints:
        if name not in self._numbers:
            self._numbers[name] = read()
        return self._numbers[name]

    def _find_originals(self) -> Ints:
        found = np.arange(len(self.rows))
        tied = list(map(_tied_to, self.rows))
        for at in itertools.compress(range(len(tied)), tied):
            found[at] = self.shape.places.get(str(tied[at]), at)
        return found

    def step(self) -> bool:
        """Read one column that sums need and that was not read yet; False when all are there."""
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
        """Whether sums cost next to nothing now."""
        return len(self._numbers) == 3 and all(
            field in self._columns for field in ("kind", "devices", "dtype", "traits")
        )

    # --- questions
    # -----------------------------------------------------------------------------------------------------

    def place(self, path: str) -> int | None:
        """Row of this path."""
        return self.shape.places.get(path)

    def part(self, path: str) -> tuple[Row, ...]:
        """The row of this path and everything below it; empty when there is none."""
        at = self.place(path)
        return () if at is None else self.rows[at : self.shape.ends[at]]

    def holder(self, at: int) -> int:
        """The nearest module that row `at` is in, or is; the object itself where there is none."""
        while self.rows[at].kind != "module" and at > 0:
            at = self.shape.parents[at]
        return at

    @cached_property
    def trains(self) -> bool:
        """Whether a parameter of it is trainable."""
        return any(row.requires_grad for row in self.rows if row.kind == "parameter")

    def kinds(self, *wanted: str) -> Mask:
        """Rows of these kinds."""
        return self.column("kind").where(wanted.__contains__)

    @property
    def parts_of_training(self) -> Mask:
        """Gradients and what the optimizer keeps."""
        return self.kinds(*_PARTS)

    def inside(self, places: Iterable[int]) -> Mask:
        """These rows and everything below them."""
        chosen = np.zeros(len(self.rows), np.bool_)
        ends = self.shape.ends
        for at in places:
            chosen[at : ends[at]] = True
        return chosen

    def tensors(self, places: Iterable[int]) -> Ints:
        """Rows of the tensors in and below these places that count: registered ones, or an object that is a tensor;
        each tensor once."""
        chosen = self.inside(places)
        chosen &= self.column("kind").where(lambda kind: kind != "module")
        if self.rows[0].kind == "module":
            chosen &= self.column("traits").where(lambda traits: traits[1])
        found = np.flatnonzero(chosen)
        originals = self.originals[found]
        first = np.zeros(len(self.rows), np.int64)
        first[originals[::-1]] = np.arange(len(found))[::-1]  # of a tensor that comes twice the first is written last
        counted: Ints = found[first[originals] == np.arange(len(found))]
        return counted

    # --- from snapshot to snapshot
    # -------------------------------------------------------------------------------------

    def changed(self, rows: tuple[Row, ...], places: Sequence[int]) -> RowTable:
        """The outline of rows with the same paths, of which those at `places` are different."""
        new = RowTable(rows, self.shape)
        new._came_from = (self._version, tuple(places))
        if len(places) > MANY_CHANGED:
            return new
        for field, column in self._columns.items():
            numbers = column.numbers.copy()
            for at in places:
                numbers[at] = column.codes[FIELDS[field](rows[at])]
            new._columns[field] = Column(column.codes, numbers)
        if all(rows[at].tied_to == self.rows[at].tied_to for at in places) and "originals" in self._numbers:
            new._numbers["originals"] = self._numbers["originals"]
        for name, read in (("bytes", _bytes), ("elements", _elements)):
            if name in self._numbers:
                new._numbers[name] = self._numbers[name].copy()
                new._numbers[name][list(places)] = [read(rows[at]) for at in places]
        return new

    def changes_since(self, old: RowTable) -> Sequence[int] | None:
        """Rows that are other records than in `old`; None when the paths are others."""
        if self.shape is not old.shape:
            return None
        if self._came_from is not None and self._came_from[0] is old._version:
            return self._came_from[1]
        return list(itertools.compress(range(len(self.rows)), map(operator.is_not, self.rows, old.rows)))


class Outlines:
    """The outlines of all objects, each as long as its snapshot is the latest one."""

    def __init__(self) -> None:
        self._known: dict[str, RowTable] = {}

    def of(self, snapshot: ObjectSnapshot) -> RowTable:
        """The outline of this snapshot, which has at least one row."""
        known = self._known.get(snapshot.name)
        if known is None or known.rows is not snapshot.rows:
            shape = known.shape if known is not None and known.shape.fits(snapshot.rows) else None
            known = self._known[snapshot.name] = RowTable(snapshot.rows, shape)
        return known

    def changed(self, before: ObjectSnapshot, after: ObjectSnapshot, places: Sequence[int]) -> None:
        """The object has a new snapshot with the same paths, and other rows at `places` only."""
        known = self._known.get(before.name)
        if known is not None and known.rows is before.rows:
            self._known[after.name] = known.changed(after.rows, places)

    def keep(self, objects: Mapping[str, ObjectSnapshot]) -> None:
        """Forget what is no longer there."""
        for name in self._known.keys() - objects.keys():
            del self._known[name]


def _parents_and_ends(depths: Ints) -> tuple[Ints, Ints]:
    """Per level of depth, because there are few of them: the last shallower row before, the next row after that is not
    deeper."""
    depths = np.concatenate((depths[:1], np.maximum(depths[1:], depths[0] + 1)))
    parents, ends = np.full(len(depths), -1), np.full(len(depths), len(depths))
    for depth in np.flatnonzero(np.bincount(depths - depths.min())) + depths.min():
        at = np.flatnonzero(depths == depth)
        above = np.flatnonzero(depths < depth)
        if len(above):
            parents[at] = above[np.searchsorted(above, at) - 1]
        stops = np.append(np.flatnonzero(depths <= depth), len(depths))
        ends[at] = stops[np.searchsorted(stops, at, side="right")]
    return parents, ends
