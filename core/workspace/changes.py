"""What one command changed in the workspace, kept so that Undo can revert it. Runs on the jobs thread.

A change holds names, paths and devices rather than tensors, except for what cannot be recovered: originals that a
cast would not give back, values that were overwritten, objects that were removed. Those count against the budget of
`core.workspace.history`.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple

import torch

from devexplorer.core.base import ProgressMonitor, object_name
from devexplorer.core.records import MoveReport
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


class WorkspaceChange:
    """One step of a command."""

    @property
    def names(self) -> tuple[str, ...]:
        """The objects that it concerns."""
        raise NotImplementedError

    @property
    def kept_bytes(self) -> int:
        """Memory that it keeps alive."""
        return 0

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Restore the previous state, or raise `DevExplorerError` and change nothing. Changes are reverted in reverse
        order, so each finds the state that it left behind."""
        raise NotImplementedError

    def without(self, name: str) -> WorkspaceChange | None:
        """The same after that object was deleted for good; None when nothing is left to revert."""
        return None if name in self.names else self

    def hosted(self, name: str) -> WorkspaceChange:
        """The same after that object was removed: what is kept of it has left its devices for the CPU."""
        return self


class MoveChange(WorkspaceChange):
    """Tensors that were moved or cast."""

    def __init__(self, origins: tuple[TensorOrigin, ...]) -> None:
        self._origins = origins

    @property
    def names(self) -> tuple[str, ...]:
        """One object for each tensor that was moved."""
        return tuple(dict.fromkeys(origin.keys[0][0] for origin in self._origins))

    @cached_property
    def kept_bytes(self) -> int:
        """Originals that moving back would not restore. Read after every command, and the move of a large model
        has 50,000 of them."""
        return sum(origin.kept_bytes for origin in self._origins)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Move everything back."""
        report, back = workspace.move_back(self.names, self._origins, progress)
        return Undone(report=report, touched=self.names, back=back)

    def without(self, name: str) -> MoveChange | None:
        """Without the tensors that only that object held."""
        origins = tuple(left for origin in self._origins if (left := origin.without(name)) is not None)
        return MoveChange(origins) if origins else None

    def hosted(self, name: str) -> MoveChange:
        """With the originals of that object on the CPU."""
        return MoveChange(
            tuple(origin.hosted() if {key[0] for key in origin.keys} == {name} else origin for origin in self._origins)
        )


class CreateChange(WorkspaceChange):
    """New objects."""

    def __init__(self, *names: str) -> None:
        self._names = names

    @property
    def names(self) -> tuple[str, ...]:
        """The new objects."""
        return self._names

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Remove them for good: Redo creates them again."""
        return Undone(removed=self._names, back=workspace.drop(self._names))

    def without(self, name: str) -> CreateChange | None:
        """Without one of them."""
        left = [item for item in self._names if item != name]
        return type(self)(*left) if left else None


class ObjectChange(WorkspaceChange):
    """A change to a single object: what it was before can be exchanged for what it is."""

    def __init__(self, name: str, previous: Any) -> None:
        self.name, self._previous = name, previous

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    def exchange(self, workspace: Workspace, state: Any) -> Any:
        """Put the object into this state; returns the state that it was in."""
        raise NotImplementedError

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Put it into its previous state."""
        now = self.exchange(workspace, self._previous)
        return Undone(touched=self.names, back=lambda: self.exchange(workspace, now))


class ElementChange(ObjectChange):
    """One element that was set; the state is its value on the CPU, exact to the bit."""

    def __init__(self, target: str, index: tuple[int, ...], previous: Any) -> None:
        super().__init__(object_name(target), previous)
        self._target, self._index = target, index

    def exchange(self, workspace: Workspace, state: Any) -> Any:
        """Set the element."""
        tensor = workspace.find(self._target).tensor
        with torch.no_grad():
            now = tensor[self._index].detach().to("cpu", copy=True)
            tensor[self._index] = state
        return now


class ExchangeChange(ObjectChange):
    """Another object under the same name, with the same tensors but for `kept_bytes`; the state is object and
    extras."""

    def __init__(self, name: str, previous: Any, kept_bytes: int = 0) -> None:
        super().__init__(name, previous)
        self._kept_bytes = kept_bytes

    @property
    def kept_bytes(self) -> int:
        """What only the former object has."""
        return self._kept_bytes

    def exchange(self, workspace: Workspace, state: Any) -> Any:
        """Let the name mean the other one."""
        return workspace.exchange(self.name, *state)
