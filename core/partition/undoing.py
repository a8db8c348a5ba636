"""How hops, and the hooks of accelerate that were taken away, come back with Undo. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from torch import nn

from devexplorer.core.base.progress import ProgressMonitor
from devexplorer.core.models.extras import HopHooks
from devexplorer.core.workspace.changes import Undone

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class HopsChanged:
    """Hops that were inserted in a model, or removed from it. Makes the change itself, so that it knows what was
    before."""

    kept_bytes = 0

    def __init__(self, workspace: Workspace, name: str, hops: HopHooks | None) -> None:
        self.names = (name,)
        self._was = _exchange(workspace, name, hops)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """As it was."""
        name = self.names[0]
        now = _exchange(workspace, name, self._was)

        def back() -> None:
            _exchange(workspace, name, now)

        return Undone(touched=self.names, back=back)

    def without(self, name: str) -> HopsChanged | None:
        """Nothing is left of it without its model."""
        return None if name in self.names else self


def _exchange(workspace: Workspace, name: str, hops: HopHooks | None) -> HopHooks | None:
    """Returns the hops that were there before."""
    extras = workspace.extras(name)
    was = extras.hops
    if was is not None:
        was.remove()
    if hops is not None:
        hops.attach()
    extras.hops = hops
    return was


class Attributes(NamedTuple):
    """What accelerate's hooks are to a module: attributes of the instance, before and after they were taken away."""

    module: nn.Module
    before: dict[str, Any]
    after: dict[str, Any]


class HooksTaken:
    """Hooks of accelerate that were removed from a model."""

    kept_bytes = 0

    def __init__(self, name: str, attributes: Sequence[Attributes], keys: Sequence[str]) -> None:
        self.names = (name,)
        self._attributes, self._keys = attributes, keys

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Give them back."""
        self._set(lambda one: one.before)
        return Undone(touched=self.names, back=lambda: self._set(lambda one: one.after))

    def _set(self, wanted: Callable[[Attributes], dict[str, Any]]) -> None:
        for one in self._attributes:
            for key in self._keys:
                vars(one.module).pop(key, None)
            vars(one.module).update(wanted(one))

    def without(self, name: str) -> HooksTaken | None:
        """Nothing is left of it without its model."""
        return None if name in self.names else self
