"""Groups the changes of a command into one entry for Undo. Runs on the jobs thread.

`transaction` collects what a command reports with `changed`; if the command fails half-way, everything is reverted.
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
        """Changes of the current command; None: each change is an entry of its own."""
        self._title = ""
        self._barrier = False
        self._why = ""
        self.note = ""
        """Why the last command cannot be undone, as a sentence; empty: it can be undone, or it has changed
        nothing."""

    @property
    def budget_bytes(self) -> int:
        """The most that is kept alive."""
        return self._stack.budget_bytes

    @property
    def kept_bytes(self) -> int:
        """What is kept alive, including the current command."""
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
        """Whether so many bytes may be kept; if not, and the command calls `cannot_undo`, its answer says so."""
        if size > self.budget_bytes:
            self._why = _over(size, self.budget_bytes)
        return size <= self.budget_bytes

    def cannot_undo(self) -> None:
        """Something changed that cannot be reverted, nor can anything before it."""
        self._barrier = self._collected is not None
        self._stack.barrier()
        self.note = self._why or "This cannot be undone."

    def gone(self, names: Iterable[str], why: str) -> None:
        """Objects were deleted for good; changes to other objects can still be undone."""
        for name in names:
            self._stack.forget(name)
        self._stack.forget_redo()
        self.note = f"This cannot be undone: {why}." if why else self._why

    def host(self, name: str) -> None:
        """An object was removed: move what is kept of it to host memory."""
        self._stack.host(name)

    @contextmanager
    def transaction(self, command: Command, *, again: bool = False) -> Iterator[None]:
        """All changes within are one entry; if it fails half-way, they are reverted. `again`: this is a Redo."""
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
        except BaseException:  # it is half done, so earlier changes no longer apply
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
        """Revert the newest change; returns its command and what reverting it did.

        When one of its steps fails, the steps before it are reverted again: nothing has changed, and the change can
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
            gc.collect()  # a model can be part of a reference cycle, and its memory must be free now
        there = self._workspace.names
        left = tuple(name for name in dict.fromkeys(touched) if name in there)
        return entry.command, Undone(report, tuple(dict.fromkeys(removed)), left)

    @contextmanager
    def redoing(self, request: int) -> Iterator[Command]:
        """The command to carry out again, under another number; if that fails, it remains the next one to
        redo."""
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
