"""What one command changed in the workspace, kept so that Undo can revert it. Runs on the jobs thread.

A change holds names, paths and devices rather than tensors, except for what cannot be recovered: originals that a
cast would not give back, values that were overwritten, objects that were removed. Those count against the budget of
`core.workspace.undo`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, NamedTuple, Protocol, Self, runtime_checkable

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.records.objects import MoveReport
from devexplorer.core.workspace.plan import TensorOrigin

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class Undone(NamedTuple):
    """What reverting a change did."""

    report: MoveReport | None = None
    """Of moving tensors back."""
    removed: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    """Objects that still exist and have changed."""
    back: Callable[[], object] | None = None
    """Reverts the undo itself, in case a later step of it fails."""


class Change(Protocol):
    """One step of a command. `undo` reverts it, or raises `DevExplorerError` and changes nothing."""

    @property
    def names(self) -> tuple[str, ...]:
        """The objects that it concerns."""
        ...

    @property
    def kept_bytes(self) -> int:
        """Memory that it keeps alive."""
        ...

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Restore the previous state. Changes are reverted in reverse order, so each finds the state that it
        left behind."""
        ...

    def without(self, name: str) -> Change | None:
        """The same after that object was deleted for good; None when nothing is left to revert."""
        ...


@runtime_checkable
class MovableToHost(Protocol):
    """A change that keeps originals on their devices, which they must leave when their object is removed."""

    def hosted(self, name: str) -> Change:
        """With what it keeps of that object on the CPU."""
        ...


@dataclass(frozen=True)
class MoveChange:
    """Tensors that were moved or cast."""

    origins: tuple[TensorOrigin, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """One object for each tensor that was moved."""
        return tuple(dict.fromkeys(origin.keys[0][0] for origin in self.origins))

    @cached_property
    def kept_bytes(self) -> int:
        """Originals that moving back would not restore. Read after every command, and the move of a large model
        has 50,000 of them."""
        return sum(origin.kept_bytes for origin in self.origins)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Move everything back."""
        report, back = workspace.move_back(self.names, self.origins, progress)
        return Undone(report=report, touched=self.names, back=back)

    def without(self, name: str) -> MoveChange | None:
        """Without the tensors that only that object held."""
        origins = tuple(left for origin in self.origins if (left := origin.without(name)) is not None)
        return MoveChange(origins) if origins else None

    def hosted(self, name: str) -> MoveChange:
        """With the originals of that object on the CPU: it was removed, and its devices must be freed."""
        return MoveChange(
            tuple(origin.hosted() if {key[0] for key in origin.keys} == {name} else origin for origin in self.origins)
        )


@dataclass(frozen=True, slots=True)
class CreateChange:
    """New objects."""

    names: tuple[str, ...]
    kept_bytes: int = 0

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Remove them for good: Redo creates them again."""
        return Undone(removed=self.names, back=workspace.drop(self.names))

    def without(self, name: str) -> CreateChange | None:
        """Without one of them."""
        left = tuple(item for item in self.names if item != name)
        return replace(self, names=left) if left else None


class ObjectChange:
    """Base of changes to a single object, which need nothing once that object is gone."""

    name: str
    kept_bytes: int = 0

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    def without(self, name: str) -> Self | None:
        """None without its object."""
        return None if name == self.name else self


def total_kept(changes: Iterable[Change]) -> int:
    """Memory that several changes keep alive."""
    return sum(change.kept_bytes for change in changes)
