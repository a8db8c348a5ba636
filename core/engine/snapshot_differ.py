"""What the engine has told about each object, so that the next time it tells only what is different. Runs on the jobs
thread."""

from __future__ import annotations

import msgspec

from devexplorer.core.records.messages import ObjectChanged, RowsChanged
from devexplorer.core.records.objects import ObjectSnapshot, Row

SMALL = 100
"""Rows; an object with no more of them is sent whole."""


class SnapshotDiffer:
    """The last snapshot of each object that was sent. An engine begins with none, as the window does after it lost
    one."""

    def __init__(self) -> None:
        self._last: dict[str, ObjectSnapshot] = {}

    def news(self, snapshot: ObjectSnapshot, request: int) -> ObjectChanged | RowsChanged:
        """How to tell it: only the rows that differ, where those are fewer than half, and all rows stand where they
        stood."""
        before = self._last.get(snapshot.name)
        self._last[snapshot.name] = snapshot
        places = None if before is None else _different(before.rows, snapshot.rows)
        if places is None:
            return ObjectChanged(request=request, snapshot=snapshot)
        rest = _without_rows(snapshot)
        rows = snapshot.rows
        return RowsChanged(
            request=request, name=snapshot.name, places=places, rows=tuple([rows[at] for at in places]), rest=rest
        )

    def forget(self, name: str) -> None:
        """The object is gone; another one of that name is new."""
        self._last.pop(name, None)


def _different(before: tuple[Row, ...], now: tuple[Row, ...]) -> tuple[int, ...] | None:
    """Indexes of the rows that differ; None where a whole snapshot is better."""
    if len(now) <= SMALL or len(before) != len(now):
        return None
    places: list[int] = []
    for at, (old, new) in enumerate(zip(before, now, strict=True)):
        if old is not new and old != new:
            if (old.path, old.kind, old.depth) != (new.path, new.kind, new.depth) or 2 * len(places) + 2 >= len(now):
                return None
            places.append(at)
    return tuple(places)


def _without_rows(snapshot: ObjectSnapshot) -> ObjectSnapshot:
    return msgspec.structs.replace(snapshot, rows=())
