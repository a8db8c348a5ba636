"""How the changes of a command become one entry for Undo. Runs on the jobs thread.

`transaction` collects what a command tells with `changed`; when the command fails half-way, everything is taken back.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from devexplorer.core.errors import BadInput
from devexplorer.core.records.messages import Command, UndoState
from devexplorer.core.records.objects import MoveReport
from devexplorer.core.workspace.changes import Change, Undone
from devexplorer.core.workspace.images import Before
from devexplorer.core.workspace.moves import NOBODY, Watch
from devexplorer.core.workspace.undo import Entry, UndoStack

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class History:
    """What one workspace can undo and redo."""

    def __init__(self, workspace: Workspace, budget_bytes: int) -> None:
        self._workspace = workspace
        self._stack = UndoStack(budget_bytes)
        self._collected: list[Change] | None = None
        """Changes of the command that is being carried out; None: each change is an entry of its own."""
        self._title = ""
        self._barrier = False

    @property
    def budget_bytes(self) -> int:
        """The most that is kept alive."""
        return self._stack.budget_bytes

    @property
    def kept_bytes(self) -> int:
        """What is kept alive."""
        return self._stack.kept_bytes

    def state(self) -> UndoState:
        """What Undo and Redo would do now."""
        return self._stack.state()

    def changed(self, title: str, *changes: Change, command: Command) -> None:
        """Remember what a command has changed, `title` as in "the move of mlp to vgpu:1"."""
        if self._collected is None:
            self._push(title, command, changes, again=False)
            return
        self._title = self._title or title
        self._collected += changes

    def cannot_undo(self) -> None:
        """Something has changed that cannot be taken back, nor anything before it."""
        self._barrier = self._collected is not None
        self._stack.barrier()

    def forget(self, name: str) -> None:
        """An object is gone for good."""
        self._stack.forget(name)

    @contextmanager
    def transaction(self, command: Command, *, again: bool = False) -> Iterator[None]:
        """What changes within is one entry; when it fails half-way, everything is taken back. `again`: it is a Redo."""
        self._collected, self._title, self._barrier = [], "", False
        try:
            yield
        except BaseException:
            collected, self._collected = self._collected, None
            for change in reversed(collected):
                change.undo(self._workspace, NOBODY)
            raise
        changes, self._collected = tuple(self._collected), None
        if changes and not self._barrier:
            self._push(self._title, command, changes, again=again)

    def _push(self, title: str, command: Command, changes: tuple[Change, ...], *, again: bool) -> None:
        for change in changes:
            if isinstance(change, Before):
                change.settle()
        self._stack.push(Entry(title, command, changes), again=again)

    def undo(self, watch: Watch) -> tuple[Command, Undone]:
        """Take the newest change back; returns the command that had made it, and what became of it."""
        entry = self._stack.top
        if entry is None:
            raise BadInput("there is nothing to undo")
        report: MoveReport | None = None
        removed: list[str] = []
        touched: list[str] = []
        for change in reversed(entry.changes):
            undone = change.undo(self._workspace, watch)
            report = undone.report or report
            removed += undone.removed
            touched += undone.touched
        self._stack.drop_top()
        there = self._workspace.names
        left = tuple(name for name in dict.fromkeys(touched) if name in there)
        return entry.command, Undone(report, tuple(dict.fromkeys(removed)), left)

    def take_redo(self) -> Command:
        """The command that Redo carries out again; it is not to be redone a second time."""
        entry = self._stack.redo_top
        if entry is None:
            raise BadInput("there is nothing to redo")
        self._stack.drop_redo()
        return entry.command

    def forget_redo(self) -> None:
        """Nothing can be done again any more."""
        self._stack.forget_redo()
