"""Offloads removed objects to host memory, so that their devices are free and Undo can restore them. Runs on the jobs
thread."""

from __future__ import annotations

import gc
from collections.abc import Callable, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from devexplorer.core.base import BadInput, ProgressMonitor
from devexplorer.core.models import Extras, gradient_of, is_uninitialised, leaves_below, storage_address, storages_of
from devexplorer.core.workspace.changes import CreateChange, Undone, WorkspaceChange
from devexplorer.core.workspace.plan import TensorOrigin
from devexplorer.core.workspace.targets import Target, named_tensors

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
