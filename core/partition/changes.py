"""How hops, and the hooks of accelerate that were taken away, come back with Undo. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.models.extras import CrossingHooks
from devexplorer.core.workspace.changes import ObjectChange, Undone

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class CrossingsChange(ObjectChange):
    """Hops that were inserted in a model, or removed from it. Makes the change itself, so that it knows what was
    before."""

    def __init__(self, workspace: Workspace, name: str, hops: CrossingHooks | None) -> None:
        self.name = name
        self._previous = _exchange(workspace, name, hops)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """As it was."""
        now = _exchange(workspace, self.name, self._previous)
        return Undone(touched=self.names, back=partial(_exchange, workspace, self.name, now))


def _exchange(workspace: Workspace, name: str, hops: CrossingHooks | None) -> CrossingHooks | None:
    """Returns the hops that were there before."""
    extras = workspace.extras(name)
    previous = extras.hops
    if previous is not None:
        previous.remove()
    if hops is not None:
        hops.attach()
    extras.hops = hops
    return previous


class Attributes(NamedTuple):
    """What accelerate's hooks are to a module: attributes of the instance, before and after they were taken away."""

    module: nn.Module
    before: dict[str, Any]
    after: dict[str, Any]


class HooksRemoved(ObjectChange):
    """Hooks of accelerate that were removed from a model."""

    def __init__(self, name: str, attributes: Sequence[Attributes], keys: Sequence[str]) -> None:
        self.name = name
        self._attributes, self._keys = attributes, keys

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Give them back."""
        self._set(lambda attributes: attributes.before)
        return Undone(touched=self.names, back=lambda: self._set(lambda attributes: attributes.after))

    def _set(self, wanted: Callable[[Attributes], dict[str, Any]]) -> None:
        for attributes in self._attributes:
            for key in self._keys:
                vars(attributes.module).pop(key, None)
            vars(attributes.module).update(wanted(attributes))
