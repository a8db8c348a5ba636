"""How Undo restores hops, and the hooks of accelerate that were removed. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch import nn

from devexplorer.core.models.extras import CrossingHooks
from devexplorer.core.workspace.changes import ObjectChange

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


class CrossingsChange(ObjectChange):
    """Hops that were inserted in a model, or removed from it. Makes the change itself, so that it knows what was
    before."""

    def __init__(self, workspace: Workspace, name: str, hops: CrossingHooks | None) -> None:
        super().__init__(name, None)
        self._previous = self.exchange(workspace, hops)

    def exchange(self, workspace: Workspace, state: CrossingHooks | None) -> CrossingHooks | None:
        """Put these hops in place of those that are there."""
        extras = workspace.extras(self.name)
        previous, extras.hops = extras.hops, state
        if previous is not None:
            previous.remove()
        if state is not None:
            state.attach()
        return previous


State = Sequence[tuple[nn.Module, dict[str, Any]]]
"""What accelerate's hooks are to each module: attributes of the instance."""


class HooksRemoved(ObjectChange):
    """Hooks of accelerate that were removed from a model; the attributes with these keys are theirs."""

    def __init__(self, name: str, before: State, keys: Sequence[str]) -> None:
        super().__init__(name, before)
        self._keys = keys

    def exchange(self, workspace: Workspace, state: State) -> State:
        """Give the modules these attributes."""
        now = [(module, attributes(module, self._keys)) for module, _ in state]
        for module, own in state:
            for key in self._keys:
                vars(module).pop(key, None)
            vars(module).update(own)
        return now


def attributes(module: nn.Module, keys: Sequence[str]) -> dict[str, Any]:
    """Those of the instance."""
    return {key: vars(module)[key] for key in keys if key in vars(module)}
