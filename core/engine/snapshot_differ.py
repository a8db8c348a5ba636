"""Compares each object's snapshot with the one sent before, so that only differences are sent. Runs on the jobs
thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records import ObjectChanged, ObjectSnapshot, Row, RowsChanged

SMALL = 100
"""An object with at most this many rows is sent whole."""


class SnapshotDiffer:
    """Holds the last snapshot sent of each object. A new engine starts empty, as does the window after it lost one."""

    def __init__(self) -> None:
        self._last: dict[str, ObjectSnapshot] = {}

    def news(self, snapshot: ObjectSnapshot, request: int) -> ObjectChanged | RowsChanged:
        """The event to send: only the rows that differ if they are fewer than half and no path changed, else the whole
        snapshot."""
        before = self._last.get(snapshot.name)
        self._last[snapshot.name] = snapshot
        places = None if before is None else _different(before.rows, snapshot.rows)
        if places is None:
            return ObjectChanged(request=request, snapshot=snapshot)
        rest = _without_rows(snapshot)
        rows = snapshot.rows
        return RowsChanged(
            request=request, name=snapshot.name, places=places, rows=tuple([rows[index] for index in places]), rest=rest
        )

    def knows(self, name: str, outdated: tuple[str, ...]) -> bool:
        """Whether the last snapshot sent of the object says this about its files, or none was sent yet."""
        before = self._last.get(name)
        return before is None or before.outdated == outdated

    def forget(self, name: str) -> None:
        """The object was removed; another one of that name is new."""
        self._last.pop(name, None)


def _different(before: tuple[Row, ...], now: tuple[Row, ...]) -> tuple[int, ...] | None:
    """Indexes of the rows that differ; None where a whole snapshot is better."""
    if len(now) <= SMALL or len(before) != len(now):
        return None
    places: list[int] = []
    for index, (old, new) in enumerate(zip(before, now, strict=True)):
        if old is not new and old != new:
            if (old.path, old.kind, old.depth) != (new.path, new.kind, new.depth) or 2 * len(places) + 2 >= len(now):
                return None
            places.append(index)
    return tuple(places)


def _without_rows(snapshot: ObjectSnapshot) -> ObjectSnapshot:
    return msgspec.structs.replace(snapshot, rows=())
