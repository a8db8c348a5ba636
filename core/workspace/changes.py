"""What one command changed in the workspace, kept so that Undo can take it back. Runs on the jobs thread.

A change holds names, paths and places rather than tensors, but for what cannot be found out again: originals that a
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
    """What taking a change back did."""

    report: MoveReport | None = None
    """Of moving things back."""
    removed: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    """Objects that are there and different now."""
    back: Callable[[], object] | None = None
    """Makes everything as it was before the undo, for when a later step of it fails."""


class Change(Protocol):
    """One step of a command. `undo` takes it back, or raises `DevExplorerError` and changes nothing."""

    @property
    def names(self) -> tuple[str, ...]:
        """The objects that it is about."""
        ...

    @property
    def kept_bytes(self) -> int:
        """Memory that it keeps alive."""
        ...

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Make everything as it was before. Changes are taken back in reverse order, so what it finds is what it
        left."""
        ...

    def without(self, name: str) -> Change | None:
        """The same, when that object is gone for good; None when nothing is left to take back."""
        ...


@runtime_checkable
class MovableToHost(Protocol):
    """A change that keeps originals where they were, which are not to stay there when their object is removed."""

    def hosted(self, name: str) -> Change:
        """With what it keeps of that object on the CPU."""
        ...


@dataclass(frozen=True)
class MoveChange:
    """Tensors that were moved or cast."""

    origins: tuple[TensorOrigin, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The objects by which everything that was moved is found."""
        return tuple(dict.fromkeys(origin.keys[0][0] for origin in self.origins))

    @cached_property
    def kept_bytes(self) -> int:
        """Originals that moving back would not restore; asked for after every command, and the move of a large model
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
        """With the originals of that object on the CPU: it was removed, and its devices are to be free."""
        return MoveChange(
            tuple(origin.hosted() if {key[0] for key in origin.keys} == {name} else origin for origin in self.origins)
        )


@dataclass(frozen=True, slots=True)
class CreateChange:
    """New objects."""

    names: tuple[str, ...]
    kept_bytes: int = 0

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Remove them for good: Redo makes them again."""
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
