"""The changes that can be undone, newest last, within a budget of bytes, and the commands that can be redone.
Jobs thread.

An undone command is kept as a command, which Redo carries out again. Every new change clears what
could be redone.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from devexplorer.core.records.messages import Command, UndoState
from devexplorer.core.workspace.changes import Change, MovableToHost, total_kept

BUDGET_BYTES = 1 << 30
"""Bytes that are kept alive for undo; the oldest changes leave first."""
LIMIT = 100
"""Changes that are remembered."""


@dataclass(frozen=True, slots=True)
class Entry:
    """One command that changed the workspace."""

    title: str
    """`the move of mlp to vgpu:1`."""
    command: Command
    changes: tuple[Change, ...]

    @property
    def kept_bytes(self) -> int:
        """Bytes that this entry keeps alive."""
        return total_kept(self.changes)

    @property
    def names(self) -> tuple[str, ...]:
        """The objects that it concerns."""
        return tuple(dict.fromkeys(name for change in self.changes for name in change.names))


class UndoStack:
    """Changes to undo, the newest on top; commands to redo."""

    def __init__(self, budget_bytes: int = BUDGET_BYTES) -> None:
        self.budget_bytes = budget_bytes
        self._entries: list[Entry] = []
        self._redo: list[Entry] = []
        """Undone entries without their changes, the next to redo on top."""

    def push(self, entry: Entry, *, again: bool = False) -> bool:
        """Push a change; False when it alone exceeds the budget, so that it cannot be undone. `again`: it was a
        Redo."""
        if not again:
            self._redo.clear()
        self._entries.append(entry)
        del self._entries[:-LIMIT]
        while self._entries and self.kept_bytes > self.budget_bytes:
            del self._entries[0]
        return bool(self._entries)

    def barrier(self) -> None:
        """Something changed that cannot be reverted, nor can anything before it."""
        self._entries.clear()
        self._redo.clear()

    @property
    def top(self) -> Entry | None:
        """What Undo would undo now."""
        return self._entries[-1] if self._entries else None

    def drop_top(self) -> None:
        """The newest change was undone."""
        entry = self._entries.pop()
        self._redo.append(replace(entry, changes=()))

    @property
    def redo_top(self) -> Entry | None:
        """What Redo would carry out now."""
        return self._redo[-1] if self._redo else None

    def take_redo(self) -> Entry | None:
        """Pop it."""
        return self._redo.pop() if self._redo else None

    def return_redo(self, entry: Entry) -> None:
        """Push it back: it failed, and nothing has changed."""
        self._redo.append(entry)

    def forget_redo(self) -> None:
        """Clear what could be redone."""
        self._redo.clear()

    def host(self, name: str) -> None:
        """An object was removed: move what is kept of it to host memory."""
        self._entries = [
            replace(
                entry,
                changes=tuple(item.hosted(name) if isinstance(item, MovableToHost) else item for item in entry.changes),
            )
            for entry in self._entries
        ]

    def forget(self, name: str) -> None:
        """An object was deleted for good: drop its changes, except for what other objects hold as
        well."""
        kept: list[Entry] = []
        for entry in self._entries:
            left = tuple(item for change in entry.changes if (item := change.without(name)) is not None)
            if left:
                kept.append(replace(entry, changes=left))
        self._entries = kept

    @property
    def kept_bytes(self) -> int:
        """Bytes that are kept alive for undo."""
        return sum(entry.kept_bytes for entry in self._entries)

    def kept_with(self, more: int) -> int:
        """The same after a change of this size: the oldest are dropped, and all if it does not fit alone."""
        kept = 0
        for size in (more, *(entry.kept_bytes for entry in reversed(self._entries))):
            if kept + size > self.budget_bytes:
                break
            kept += size
        return kept

    def state(self) -> UndoState:
        """What the window shows."""
        top, redo = self.top, self.redo_top
        return UndoState(
            title=None if top is None else top.title,
            kept_bytes=self.kept_bytes,
            redo_title=None if redo is None else redo.title,
            budget_bytes=self.budget_bytes,
            command=None if top is None else top.command,
        )
