"""What can be undone, within a budget of bytes, and what can be redone; removed objects wait in host memory, so that
their devices are free. Runs on the jobs thread.

`transaction` collects what a command reports with `changed` into one entry; if the command fails half-way, everything
is reverted. An undone command is kept as a command, which Redo carries out again. Every new change clears what could
be redone.
"""

from __future__ import annotations

import gc
from collections.abc import Callable, Iterable, Iterator, MutableMapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import msgspec
import torch
from torch import Tensor, nn

from devexplorer.core.base import NO_PROGRESS, BadInput, ProgressMonitor, RollbackFailed, bytes_text, first_line
from devexplorer.core.models import Extras, gradient_of, is_uninitialised, leaves_below, storage_address, storages_of
from devexplorer.core.records import Command, MoveReport, Steps, UndoState
from devexplorer.core.workspace.changes import CreateChange, ObjectMemento, Undone, WorkspaceChange
from devexplorer.core.workspace.placement import Target, named_tensors
from devexplorer.core.workspace.plan import TensorOrigin

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


CPU = torch.device("cpu")
StateEntry = tuple[MutableMapping[Any, Any], Any, torch.device]
"""A tensor of an optimizer's state: the mapping that holds it, its key, and where it was."""


@dataclass(frozen=True, slots=True)
class Removed(WorkspaceChange):
    """A removed object, kept in host memory: what it held on other devices is free."""

    name: str
    thing: nn.Module | Tensor
    """A tensor: itself, or its copy on the CPU."""
    extras: Extras
    size: int
    origins: tuple[TensorOrigin, ...] = ()
    """Where a model's tensors were."""
    device: torch.device | None = None
    """Where a tensor was, that has a copy on the CPU now."""
    state: tuple[StateEntry, ...] = ()
    """Of the optimizer: what was moved to the CPU."""

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    @property
    def kept_bytes(self) -> int:
        """Of the object and its optimizer."""
        return self.size

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Restore its name and its devices."""
        thing, offload_again = self._restored(workspace, progress)
        workspace.add(self.name, thing, self.extras)

        def back() -> None:
            workspace.drop(self.names)
            offload_again()

        return Undone(touched=self.names, back=back)

    def _restored(
        self, workspace: Workspace, progress: ProgressMonitor
    ) -> tuple[nn.Module | Tensor, Callable[[], None]]:
        """The object on its devices again, and how to revert that."""
        thing = self.thing
        if isinstance(thing, Tensor):
            return (thing if self.device is None else _copied(thing, self.device)), lambda: None
        with ExitStack() as taken_back:
            if self.origins:
                moved = workspace.mover.restore([Target(self.name, "", thing)], self.origins, progress=progress)
                taken_back.callback(moved.rollback)
            for state, key, device in self.state:
                taken_back.callback(state.__setitem__, key, state[key])
                state[key] = state[key].to(device)
            return thing, taken_back.pop_all().close

    def without(self, name: str) -> Removed:
        """A removed object cannot be removed again: another one may have its name by now."""
        return self


class ReplaceChange(CreateChange):
    """New objects that others had to make room for: Undo frees their devices before it restores those."""

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Remove them; they are in host memory until everything else is undone as well."""
        with ExitStack() as taken_back:
            for name in self.names:
                taken_back.callback(offload(workspace, name).undo, workspace, progress)
                workspace.drop((name,))
            gc.collect()  # a model can be part of a reference cycle, and its memory must be free now
            return Undone(removed=self.names, back=taken_back.pop_all().close)


def offload(workspace: Workspace, name: str) -> Removed:
    """Move an object that is about to be removed to the CPU; raises `DevExplorerError` if that is impossible.

    What it shares with other objects stays where it is: moving it would move their tensors, and would free nothing.
    """
    thing, extras = workspace.get(name), workspace.extras(name)
    kept = offloaded_bytes(thing, extras)
    sharing = workspace.sharing([name])
    if isinstance(thing, Tensor):
        if not thing.is_leaf and any(item.device != CPU for item in (thing, *leaves_below(thing))):
            raise BadInput(
                f"{name} is the result of a computation, and the graph that it came from would keep memory on its"
                " device"
            )
        if thing.device.type in ("cpu", "meta") or is_uninitialised(thing) or sharing:
            return Removed(name, thing, extras, kept)
        return Removed(name, _copied(thing, CPU), extras, kept, device=thing.device)
    others = [tensor for other in sharing for tensor in _tensors(workspace.get(other))]
    shared = {id(tensor) for tensor in others}
    addresses = {storage_address(tensor) for tensor in others} - {None}
    origins: dict[int, TensorOrigin] = {}
    elsewhere = False
    for path, tensor in named_tensors(thing).items():
        if tensor.is_meta or id(tensor) in shared:
            continue
        if not is_uninitialised(tensor) and storage_address(tensor) in addresses:
            continue
        known = origins.get(id(tensor))
        keys = ((name, path),) if known is None else (*known.keys, (name, path))
        origins[id(tensor)] = TensorOrigin(keys, CPU, tensor.dtype)
        elsewhere |= tensor.device != CPU
    with ExitStack() as taken_back:
        before: tuple[TensorOrigin, ...] = ()
        if elsewhere:
            moved = workspace.mover.restore([Target(name, "", thing)], origins.values())
            taken_back.callback(moved.rollback)
            before = moved.origins
        state: list[StateEntry] = []
        for mapping in () if extras.optimizer is None else extras.optimizer.state.values():
            for key, value in mapping.items():
                if isinstance(value, Tensor) and value.device != CPU:
                    taken_back.callback(mapping.__setitem__, key, value)
                    state.append((mapping, key, value.device))
        for mapping, key, _ in state:
            mapping[key] = mapping[key].to(CPU)
        taken_back.pop_all()
        return Removed(name, thing, extras, kept, before, state=tuple(state))


def offloaded_bytes(thing: nn.Module | Tensor, extras: Extras) -> int:
    """What keeping a removed object takes."""
    return sum(storages_of(thing).values()) + sum(tensor.nbytes for tensor in extras.tensors())


def _copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A leaf like this one on another device, with its gradient."""
    copy = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
    gradient = gradient_of(tensor)
    copy.grad = None if gradient is None else gradient.detach().to(device)
    return copy


def _tensors(thing: nn.Module | Tensor) -> list[Tensor]:
    tensors = [thing] if isinstance(thing, Tensor) else named_tensors(thing).values()
    return [tensor for tensor in tensors if not is_uninitialised(tensor)]


BUDGET_BYTES = 1 << 30
"""Bytes that are kept alive for undo; the oldest changes leave first."""
LIMIT = 100
"""Changes that are remembered."""


@dataclass(frozen=True, slots=True)
class UndoEntry:
    """One command that changed the workspace."""

    title: str
    """`the move of mlp to vgpu:1`."""
    command: Command
    changes: tuple[WorkspaceChange, ...]
    before: int = 0
    """`UndoHistory.contents` that undoing it brings back."""

    @property
    def kept_bytes(self) -> int:
        """Bytes that this entry keeps alive."""
        return sum(change.kept_bytes for change in self.changes)


class UndoHistory:
    """What one workspace can undo and redo."""

    def __init__(self, workspace: Workspace, budget_bytes: int) -> None:
        self._workspace = workspace
        self.budget_bytes = budget_bytes
        """The most that is kept alive."""
        self._entries: list[UndoEntry] = []
        """The newest last."""
        self._redo: list[UndoEntry] = []
        """Undone entries without their changes, the next to redo last."""
        self._current: UndoEntry | None = None
        """What the current command has changed so far."""
        self._barrier = False
        self._why = ""
        self._numbers = count(1)
        self.contents = 0
        """A number for what the workspace holds: the same one, the same contents."""
        self.note = ""
        """Why the last command cannot be undone, as a sentence; empty: it can be undone, or it has changed
        nothing."""

    @property
    def kept_bytes(self) -> int:
        """What is kept alive, including the current command: the oldest are dropped for it."""
        kept = 0
        for entry in reversed(self._entries if self._current is None else [*self._entries, self._current]):
            if kept + entry.kept_bytes > self.budget_bytes:
                break
            kept += entry.kept_bytes
        return kept

    def state(self) -> UndoState:
        """What Undo and Redo would do now."""
        top = self._entries[-1] if self._entries else None
        return UndoState(
            title=None if top is None else top.title,
            kept_bytes=self.kept_bytes,
            redo_title=self._redo[-1].title if self._redo else None,
            budget_bytes=self.budget_bytes,
            command=None if top is None else top.command,
            contents=self.contents,
        )

    def changed(self, title: str, *changes: WorkspaceChange) -> None:
        """Remember what the command of this transaction has changed, `title` as in "the move of mlp to vgpu:1"."""
        assert self._current is not None, "a command that changes something is undoable"
        command, before = self._current.command, self._current.title
        if isinstance(command, Steps):
            title = command.title or " and ".join(dict.fromkeys(filter(None, (before, title))))
        self._current = replace(
            self._current,
            title=title if isinstance(command, Steps) else before or title,
            changes=(*self._current.changes, *changes),
        )

    def fits(self, size: int) -> bool:
        """Whether so many bytes may be kept; if not, and the command calls `cannot_undo`, its answer says so."""
        if size > self.budget_bytes:
            self._why = _over(size, self.budget_bytes)
        return size <= self.budget_bytes

    def cannot_undo(self) -> None:
        """Something changed that cannot be reverted, nor can anything before it."""
        self._barrier = True
        self._clear()
        self.note = self._why or "This cannot be undone."

    def _clear(self) -> None:
        self.contents = next(self._numbers)
        self._entries.clear()
        self._redo.clear()

    def deleted(self, names: Iterable[str], why: str) -> None:
        """Objects were deleted for good; changes to other objects can still be undone."""
        for name in names:
            self._entries = [
                replace(entry, changes=left, before=next(self._numbers))
                for entry in self._entries
                if (left := tuple(item for change in entry.changes if (item := change.without(name)) is not None))
            ]
        self.contents = next(self._numbers)
        self._redo.clear()
        self.note = f"This cannot be undone: {why}." if why else self._why

    def host(self, name: str) -> None:
        """An object was removed: move what is kept of it to host memory."""
        self._entries = [
            replace(entry, changes=tuple(change.hosted(name) for change in entry.changes)) for entry in self._entries
        ]

    @contextmanager
    def transaction(self, command: Command, *, again: bool = False) -> Iterator[None]:
        """All changes within are one entry; if it fails half-way, they are reverted. `again`: this is a Redo."""
        self._current = UndoEntry("", command, (), self.contents)
        self._barrier = False
        self._why = self.note = ""
        try:
            yield
        except RollbackFailed:
            self._clear()  # earlier changes no longer apply
            raise
        except BaseException as error:
            self._take_back(self._current, error)
            raise
        finally:
            entry, self._current = self._current, None
        if entry.changes and not self._barrier:
            self._push(entry, again=again)

    def _take_back(self, entry: UndoEntry, error: BaseException) -> None:
        try:
            for change in reversed(entry.changes):
                change.undo(self._workspace, NO_PROGRESS)
        except BaseException as second:
            self._clear()  # half reverted, so earlier changes no longer apply
            reasons = f"{first_line(error)}; what was done so far could not be reverted: {first_line(second)}"
            raise RollbackFailed(reasons) from error

    def _push(self, entry: UndoEntry, *, again: bool) -> None:
        for change in entry.changes:
            if isinstance(change, ObjectMemento):
                change.settle()
        if not again:
            self._redo.clear()
        self.contents = next(self._numbers)
        self._entries.append(entry)
        del self._entries[:-LIMIT]
        while self._entries and sum(entry.kept_bytes for entry in self._entries) > self.budget_bytes:
            del self._entries[0]
        if not self._entries:
            self.note = _over(entry.kept_bytes, self.budget_bytes)

    def undo(self, progress: ProgressMonitor = NO_PROGRESS) -> tuple[Command, Undone]:
        """Revert the newest change; returns its command and what reverting it did.

        When one of its steps fails, the steps before it are reverted again: nothing has changed, and the change can
        still be undone.
        """
        if not self._entries:
            raise BadInput("there is nothing to undo")
        entry = self._entries[-1]
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
        self._redo.append(replace(self._entries.pop(), changes=()))
        self.contents = entry.before
        if removed:
            gc.collect()  # a model can be part of a reference cycle, and its memory must be free now
        if report is not None:
            report = msgspec.structs.replace(report, kept_for_undo_bytes=self.kept_bytes)
        names = self._workspace.names
        left = tuple(name for name in dict.fromkeys(touched) if name in names)
        gone = tuple(name for name in dict.fromkeys(removed) if name not in names)  # another may have its name again
        return entry.command, Undone(report, gone, left)

    @contextmanager
    def redoing(self, request: int) -> Iterator[Command]:
        """The command to carry out again, under another number; if that fails, it remains the next one to
        redo."""
        if not self._redo:
            raise BadInput("there is nothing to redo")
        entry = self._redo.pop()
        command: Command = msgspec.structs.replace(entry.command, request=request)
        try:
            with self.transaction(command, again=True):
                yield command
        except BaseException:
            self._redo.append(entry)
            raise


def _over(size: int, budget: int) -> str:
    return f"This cannot be undone: it would keep {bytes_text(size)}, the budget is {bytes_text(budget)}."
