"""The moves that can be undone, newest last, within a budget of bytes. Runs on the jobs thread.

An entry holds names and paths, never tensors, but for originals that moving back would not restore: those count against the budget.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from devexplorer.core.records.messages import UndoState
from devexplorer.core.workspace.plan import Was

BUDGET_BYTES = 1 << 30
"""Bytes of originals that are kept for undo; the oldest moves leave first."""
LIMIT = 100
"""Moves that are remembered."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One move (or copy) that can be undone."""

    title: str
    """`the move of mlp to vgpu:1`."""
    was: tuple[Was, ...] = ()
    created: tuple[str, ...] = ()
    """Objects that a copy made; undoing removes them."""

    @property
    def kept_bytes(self) -> int:
        """Bytes of originals that this entry keeps alive."""
        return sum(was.kept_bytes for was in self.was)

    @property
    def names(self) -> tuple[str, ...]:
        """The objects by which everything that was moved is found."""
        return tuple(dict.fromkeys(was.keys[0][0] for was in self.was))


class UndoStack:
    """Moves to undo, the newest on top."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self._budget = budget_bytes
        self._entries: list[Entry] = []

    def push(self, entry: Entry) -> bool:
        """Remember a move; False when its originals alone are over the budget, so that it cannot be undone."""
        self._entries.append(entry)
        del self._entries[:-LIMIT]
        while self._entries and self.kept_bytes > self._budget:
            del self._entries[0]
        return bool(self._entries)

    @property
    def top(self) -> Entry | None:
        """What Undo would undo now."""
        return self._entries[-1] if self._entries else None

    def drop_top(self) -> None:
        """The newest move was undone."""
        self._entries.pop()

    def forget(self, name: str) -> None:
        """An object is gone: what was remembered about it goes too, but for what other objects hold as well."""
        kept: list[Entry] = []
        for entry in self._entries:
            was = tuple(left for one in entry.was if (left := one.without(name)) is not None)
            created = tuple(one for one in entry.created if one != name)
            if was or created:
                kept.append(replace(entry, was=was, created=created))
        self._entries = kept

    @property
    def kept_bytes(self) -> int:
        """Bytes of originals that are kept alive for undo."""
        return sum(entry.kept_bytes for entry in self._entries)

    def state(self) -> UndoState:
        """What the window shows."""
        top = self.top
        return UndoState(title=None if top is None else top.title, kept_bytes=self.kept_bytes)
