"""What one command changed in the workspace, kept so that Undo can take it back. Runs on the jobs thread.

A change holds names, paths and places rather than tensors, but for what cannot be found out again: originals that a cast would not give
back, values that were overwritten, objects that were removed. Those count against the budget of `core.workspace.undo`.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, NamedTuple, Protocol

from torch import Tensor, nn

from devexplorer.core.records.objects import MoveReport
from devexplorer.core.workspace.extras import Extras
from devexplorer.core.workspace.moves import Watch
from devexplorer.core.workspace.plan import Was

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class Undone(NamedTuple):
    """What taking a change back did."""

    report: MoveReport | None = None
    """Of moving things back."""
    removed: tuple[str, ...] = ()
    touched: tuple[str, ...] = ()
    """Objects that are there and different now."""


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

    def undo(self, workspace: Workspace, watch: Watch) -> Undone:
        """Make everything as it was before. Changes are taken back in reverse order, so what it finds is what it left."""
        ...

    def without(self, name: str) -> Change | None:
        """The same, when that object is gone for good; None when nothing is left to take back."""
        ...


@dataclass(frozen=True, slots=True)
class MovedThere:
    """Tensors that were moved or cast."""

    was: tuple[Was, ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The objects by which everything that was moved is found."""
        return tuple(dict.fromkeys(was.keys[0][0] for was in self.was))

    @property
    def kept_bytes(self) -> int:
        """Originals that moving back would not restore."""
        return sum(was.kept_bytes for was in self.was)

    def undo(self, workspace: Workspace, watch: Watch) -> Undone:
        """Move everything back."""
        return Undone(report=workspace.move_back(self.names, self.was, watch), touched=self.names)

    def without(self, name: str) -> MovedThere | None:
        """Without the tensors that only that object held."""
        was = tuple(left for one in self.was if (left := one.without(name)) is not None)
        return MovedThere(was) if was else None


@dataclass(frozen=True, slots=True)
class Made:
    """New objects."""

    names: tuple[str, ...]
    kept_bytes: int = 0

    def undo(self, workspace: Workspace, watch: Watch) -> Undone:
        """Remove them for good: Redo makes them again."""
        workspace.drop(self.names)
        return Undone(removed=self.names)

    def without(self, name: str) -> Made | None:
        """Without one of them."""
        left = tuple(one for one in self.names if one != name)
        return replace(self, names=left) if left else None


@dataclass(frozen=True, slots=True)
class Removed:
    """An object that was removed, kept in the host's memory: what it held on other devices is free."""

    name: str
    thing: nn.Module | Tensor
    extras: Extras
    kept_bytes: int
    back: MovedThere | None = None
    """How its tensors get back to their devices."""
    device: str | None = None
    """Where a tensor was."""

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    def undo(self, workspace: Workspace, watch: Watch) -> Undone:
        """Give it its name and its devices again."""
        workspace.restore_removed(self, watch)
        return Undone(touched=(self.name,))

    def without(self, name: str) -> Removed | None:
        """A removed object cannot be removed again: another one may have its name by now."""
        return self


def total_kept(changes: Iterable[Change]) -> int:
    """Memory that several changes keep alive."""
    return sum(change.kept_bytes for change in changes)
