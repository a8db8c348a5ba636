"""How the changes of a command become one entry for Undo. Runs on the jobs thread.

`transaction` collects what a command tells with `changed`; when the command fails half-way, everything is taken back.
"""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING

import msgspec

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.formats import bytes_text
from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.records.messages import Command, UndoState
from devexplorer.core.records.objects import MoveReport
from devexplorer.core.workspace.changes import Change, Undone, total_kept
from devexplorer.core.workspace.mementos import ObjectMemento
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
        self._why = ""
        self.note = ""
        """Why the command that was carried out last cannot be undone, in a sentence; empty: it can, or it has changed
        nothing."""

    @property
    def budget_bytes(self) -> int:
        """The most that is kept alive."""
        return self._stack.budget_bytes

    @property
    def kept_bytes(self) -> int:
        """What is kept alive, that of the command under way included."""
        return self._stack.kept_with(total_kept(self._collected or ()))

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

    def fits(self, size: int) -> bool:
        """Whether so much may be kept; where not, the command's answer will say so, if it calls `cannot_undo`."""
        if size > self.budget_bytes:
            self._why = _over(size, self.budget_bytes)
        return size <= self.budget_bytes

    def cannot_undo(self) -> None:
        """Something has changed that cannot be taken back, nor anything before it."""
        self._barrier = self._collected is not None
        self._stack.barrier()
        self.note = self._why or "This cannot be undone."

    def gone(self, names: Iterable[str], why: str) -> None:
        """Objects are gone for good: changes of others can be undone still."""
        for name in names:
            self._stack.forget(name)
        self._stack.forget_redo()
        self.note = f"This cannot be undone: {why}." if why else self._why

    def host(self, name: str) -> None:
        """An object was removed: what is kept of it goes to the host's memory."""
        self._stack.host(name)

    @contextmanager
    def transaction(self, command: Command, *, again: bool = False) -> Iterator[None]:
        """What changes within is one entry; when it fails half-way, everything is taken back. `again`: it is a Redo."""
        self._collected, self._title, self._barrier = [], "", False
        self._why = self.note = ""
        try:
            yield
        except BaseException:
            collected, self._collected = self._collected, None
            self._take_back(collected)
            raise
        changes, self._collected = tuple(self._collected), None
        if changes and not self._barrier:
            self._push(self._title, command, changes, again=again)

    def _take_back(self, collected: list[Change]) -> None:
        try:
            for change in reversed(collected):
                change.undo(self._workspace, NO_PROGRESS)
        except BaseException:  # it stays half done, so that what is remembered of before fits no more
            self._stack.barrier()
            raise

    def _push(self, title: str, command: Command, changes: tuple[Change, ...], *, again: bool) -> None:
        for change in changes:
            if isinstance(change, ObjectMemento):
                change.settle()
        entry = Entry(title, command, changes)
        if not self._stack.push(entry, again=again):
            self.note = _over(entry.kept_bytes, self.budget_bytes)

    def undo(self, progress: ProgressMonitor) -> tuple[Command, Undone]:
        """Take the newest change back; returns the command that had made it, and what became of it.

        When one of its steps fails, those before it are made good again: everything is as it was, and the change can
        still be undone.
        """
        entry = self._stack.top
        if entry is None:
            raise BadInput("there is nothing to undo")
        report: MoveReport | None = None
        removed: list[str] = []
        touched: list[str] = []
        with ExitStack() as made_good:
            for change in reversed(entry.changes):
                undone = change.undo(self._workspace, progress)
                if undone.back is not None:
                    made_good.callback(undone.back)
                report = undone.report or report
                removed += undone.removed
                touched += undone.touched
            made_good.pop_all()
        del undone
        self._stack.drop_top()
        if removed:
            gc.collect()  # a model can hold itself in a circle, and its memory is to be free now
        there = self._workspace.names
        left = tuple(name for name in dict.fromkeys(touched) if name in there)
        return entry.command, Undone(report, tuple(dict.fromkeys(removed)), left)

    @contextmanager
    def redoing(self, request: int) -> Iterator[Command]:
        """The command to be carried out again, under another number; when that fails it stays the one to be done
        again."""
        entry = self._stack.take_redo()
        if entry is None:
            raise BadInput("there is nothing to redo")
        command: Command = msgspec.structs.replace(entry.command, request=request)
        try:
            with self.transaction(command, again=True):
                yield command
        except BaseException:
            self._stack.return_redo(entry)
            raise


def _over(size: int, budget: int) -> str:
    return f"This cannot be undone: it would keep {bytes_text(size)}, the budget is {bytes_text(budget)}."
