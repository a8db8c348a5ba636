"""Removed objects in the host's memory, so that their devices are free and Undo can bring them back. Runs on the jobs thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch import Tensor, nn

from devexplorer.core.errors import DevExplorerError
from devexplorer.core.workspace.changes import Removed
from devexplorer.core.workspace.moves import Mover, Watch
from devexplorer.core.workspace.plan import Aim
from devexplorer.core.workspace.storages import storages_of
from devexplorer.core.workspace.walk import device_id, is_uninitialised

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


def park(workspace: Workspace, name: str, budget_bytes: int) -> Removed | None:
    """Bring an object that is about to be removed to the CPU; None where it cannot be kept: it is over the budget, or cannot move.

    What shares memory with other objects stays where it is: moving it would move their tensors, and would free nothing.
    """
    thing, extras = workspace.get(name), workspace.extras(name)
    kept = sum(storages_of(thing).values()) + sum(tensor.nbytes for tensor in extras.tensors())
    if kept > budget_bytes:
        return None
    if isinstance(thing, Tensor):
        if thing.device.type == "cpu" or is_uninitialised(thing) or workspace.sharing([name]):
            return Removed(name, thing, extras, kept)
        if not thing.is_leaf:
            return None  # its graph would keep memory on the device
        try:
            parked = thing.detach().to("cpu").requires_grad_(thing.requires_grad)
        except RuntimeError:
            return None
        return Removed(name, parked, extras, kept, device=device_id(thing.device))
    if workspace.sharing([name]) or _all_on_cpu(thing):
        return Removed(name, thing, extras, kept)
    try:
        back = workspace.move_aside(name)
    except DevExplorerError:
        return None
    return Removed(name, thing, extras, kept, back)


def unpark(mover: Mover, removed: Removed, watch: Watch) -> nn.Module | Tensor:
    """The object on its devices again."""
    thing = removed.thing
    if isinstance(thing, Tensor):
        return thing if removed.device is None else thing.detach().to(removed.device).requires_grad_(thing.requires_grad)
    if removed.back is not None:
        aim = Aim(removed.name, "", thing)
        mover.restore([aim], removed.back.was, lambda name, tensor: None, watch, [aim])
    return thing


def _all_on_cpu(model: nn.Module) -> bool:
    return all(tensor.device.type == "cpu" for tensor in (*model.parameters(), *model.buffers()))
