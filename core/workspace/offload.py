"""Offloads removed objects to host memory, so that their devices are free and Undo can restore them. Runs on the jobs
thread."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from contextlib import ExitStack
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from devexplorer.core.base.errors import BadInput
from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.models.extras import Extras
from devexplorer.core.models.storages import storage_address, storages_of
from devexplorer.core.models.walk import device_id, gradient_of, is_uninitialised, leaves_below
from devexplorer.core.workspace.changes import Undone
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.plan import MoveTarget, TensorOrigin

if TYPE_CHECKING:
    from devexplorer.core.workspace.workspace import Workspace


_NOWHERE_ELSE = ("cpu", "meta")
"""Kinds of devices whose tensors need no offloading."""


@dataclass(frozen=True, slots=True)
class Removed:
    """A removed object, kept in host memory: what it held on other devices is free."""

    name: str
    thing: nn.Module | Tensor
    """A tensor: itself, or its copy on the CPU."""
    extras: Extras
    kept_bytes: int
    back: tuple[TensorOrigin, ...] = ()
    """Where a model's tensors were."""
    device: torch.device | None = None
    """Where a tensor was, that has a copy on the CPU now."""
    state: tuple[tuple[MutableMapping[Any, Any], Any, torch.device], ...] = ()
    """Of the optimizer: which tensors were moved to the CPU, and from where."""

    @property
    def names(self) -> tuple[str, ...]:
        """The object."""
        return (self.name,)

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        """Restore its name and its devices."""
        return Undone(touched=(self.name,), back=workspace.restore_removed(self, progress))

    def without(self, name: str) -> Removed | None:
        """A removed object cannot be removed again: another one may have its name by now."""
        return self


def offload(workspace: Workspace, mover: Mover, name: str) -> Removed:
    """Move an object that is about to be removed to the CPU; raises `DevExplorerError` if that is impossible.

    What it shares with other objects stays where it is: moving it would move their tensors, and would free nothing.
    """
    thing, extras = workspace.get(name), workspace.extras(name)
    kept = offloaded_bytes(thing, extras)
    if isinstance(thing, Tensor):
        if not (thing.is_leaf or _all_on_cpu(thing)):
            raise BadInput(
                f"{name} is the result of a computation, and the graph that it came from would keep memory on its"
                " device"
            )
        if thing.device.type in _NOWHERE_ELSE or is_uninitialised(thing) or workspace.sharing([name]):
            return Removed(name, thing, extras, kept)
        return Removed(name, _copied(thing, torch.device("cpu")), extras, kept, device=thing.device)
    others = {id(tensor) for other in workspace.sharing([name]) for tensor in _named(workspace.get(other))}
    shared = {
        storage_address(tensor) for other in workspace.sharing([name]) for tensor in _named(workspace.get(other))
    } - {None}
    there: dict[int, list[tuple[str, str]]] = {}
    own: dict[int, Tensor] = {}
    for path, tensor in _paths(thing):
        if (
            id(tensor) in others
            or tensor.is_meta
            or (not is_uninitialised(tensor) and storage_address(tensor) in shared)
        ):
            continue
        there.setdefault(id(tensor), []).append((name, path))
        own[id(tensor)] = tensor
    goal = tuple(TensorOrigin(tuple(keys), torch.device("cpu"), own[item].dtype) for item, keys in there.items())
    with ExitStack() as taken_back:
        origins: tuple[TensorOrigin, ...] = ()
        if any(tensor.device.type != "cpu" for tensor in own.values()):
            target = MoveTarget(name, "", thing)
            moved = mover.restore([target], goal, lambda name, tensor: None, NO_PROGRESS, [target])
            taken_back.callback(moved.rollback)
            origins = moved.origins
        state = []
        for holder, key, value in _state_elsewhere(extras):
            taken_back.callback(holder.__setitem__, key, value)
            holder[key] = value.to("cpu")
            state.append((holder, key, value.device))
        taken_back.pop_all()
        return Removed(name, thing, extras, kept, origins, state=tuple(state))


def offloaded_bytes(thing: nn.Module | Tensor, extras: Extras) -> int:
    """What keeping a removed object takes."""
    return sum(storages_of(thing).values()) + sum(tensor.nbytes for tensor in extras.tensors())


def restore(mover: Mover, removed: Removed, progress: ProgressMonitor) -> tuple[nn.Module | Tensor, Callable[[], None]]:
    """The object on its devices again, and how to revert that."""
    thing = removed.thing
    if isinstance(thing, Tensor):
        return (thing if removed.device is None else _copied(thing, removed.device)), lambda: None
    with ExitStack() as taken_back:
        if removed.back:
            target = MoveTarget(removed.name, "", thing)
            moved = mover.restore([target], removed.back, lambda name, tensor: None, progress, [target])
            taken_back.callback(moved.rollback)
        for state, key, device in removed.state:
            taken_back.callback(state.__setitem__, key, state[key])
            state[key] = state[key].to(device)
        return thing, taken_back.pop_all().close


def _copied(tensor: Tensor, device: torch.device) -> Tensor:
    """A leaf like this one on another device, with its gradient."""
    copy = tensor.detach().to(device).requires_grad_(tensor.requires_grad)
    gradient = gradient_of(tensor)
    copy.grad = None if gradient is None else gradient.detach().to(device)
    return copy


def _state_elsewhere(extras: Extras) -> list[tuple[MutableMapping[Any, Any], Any, Tensor]]:
    states = () if extras.optimizer is None else extras.optimizer.state.values()
    held = ((state, key, value) for state in states for key, value in state.items())
    return [
        (state, key, value) for state, key, value in held if isinstance(value, Tensor) and value.device.type != "cpu"
    ]


def _paths(model: nn.Module) -> Iterator[tuple[str, Tensor]]:
    yield from model.named_parameters(remove_duplicate=False)
    yield from model.named_buffers(remove_duplicate=False)


def _named(thing: nn.Module | Tensor) -> list[Tensor]:
    held = [thing] if isinstance(thing, Tensor) else [tensor for _, tensor in _paths(thing)]
    return [tensor for tensor in held if not is_uninitialised(tensor)]


def _all_on_cpu(tensor: Tensor) -> bool:
    """Whether a result and every leaf that it came from are on the CPU."""
    return all(device_id(item.device) == "cpu" for item in (tensor, *leaves_below(tensor)))
