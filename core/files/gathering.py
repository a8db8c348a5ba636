"""What a `Save` writes: the tensors of its targets under their keys, and what is known about the objects. Reads only.
Jobs thread."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import partial

from torch import Tensor, nn

from devexplorer.core.base import BadInput, Findings
from devexplorer.core.files.keys import Identity, identity, refuse_unsavable, state_of
from devexplorer.core.files.manifest import SEPARATOR, SavedObject
from devexplorer.core.models import Extras, device_id, is_uninitialised, type_name
from devexplorer.core.workspace import Workspace


@dataclass
class Item:
    """One target: an object, or a part of a model."""

    name: str
    """What it is called in the file."""
    target: str
    thing: nn.Module | Tensor
    tensors: dict[str, Tensor]
    """By key below the item; a tensor has the empty key."""
    about: SavedObject


@dataclass
class Gathered:
    """All of it."""

    items: list[Item]
    plain: bool
    """One state dict, whose keys have no prefix."""
    tensors: dict[str, Tensor] = field(default_factory=dict)
    """What is written, by key in the file; each tensor once."""
    ties: dict[str, str] = field(default_factory=dict)
    """Other key of a tensor -> the key under which it is written."""

    @property
    def nbytes(self) -> int:
        """Bytes of the values."""
        return sum(tensor.nbytes for tensor in self.tensors.values())


def gather(workspace: Workspace, targets: tuple[str, ...], *, named: bool = False) -> Gathered:
    """Find everything; `BadInput` lists all that is wrong. `named`: also one model alone is not `plain`."""
    whole = not targets
    if whole and not workspace.names:
        raise BadInput("the workspace is empty: there is nothing to save")
    findings = Findings()
    checked = [
        findings.checked(partial(_item, workspace, target, lazy_too=whole))
        for target in dict.fromkeys(targets or workspace.names)
    ]
    findings.demand_none()
    items = [item for item in checked if item is not None]
    plain = not whole and not named and len(items) == 1 and isinstance(items[0].thing, nn.Module)
    gathered = Gathered(items, plain)
    seen: dict[Identity, str] = {}
    for item in items:
        for below, tensor in item.tensors.items():
            key = file_key(item.name, below, gathered.plain)
            kept = seen.setdefault(identity(tensor), key)
            if kept == key:
                gathered.tensors[key] = tensor
            else:
                gathered.ties[key] = kept
    return gathered


def file_key(name: str, below: str, plain: bool) -> str:
    """The key in the file of a tensor at `below` in an item."""
    if plain:
        return below
    return f"{name}{SEPARATOR}{below}" if below else name


def _item(workspace: Workspace, target: str, *, lazy_too: bool) -> Item:
    thing = workspace.find(target).thing
    tensors = {"": thing} if isinstance(thing, Tensor) else state_of(thing)
    waiting = tuple(key for key, tensor in tensors.items() if is_uninitialised(tensor)) if lazy_too else ()
    tensors = {key: tensor for key, tensor in tensors.items() if key not in waiting}
    if isinstance(thing, nn.Module) and not tensors and not lazy_too:
        raise BadInput(f"'{target}' has no registered parameters and no buffers: there is nothing to save")
    for key, tensor in tensors.items():
        refuse_unsavable(f"{target}:{key}" if key else target, tensor)
    called = target.replace(SEPARATOR, "_")
    return Item(called, target, thing, tensors, _about(workspace, called, target, thing, tensors, waiting))


def _about(
    workspace: Workspace,
    name: str,
    target: str,
    thing: nn.Module | Tensor,
    tensors: dict[str, Tensor],
    waiting: tuple[str, ...],
) -> SavedObject:
    devices: dict[str, list[str]] = {}
    for key, tensor in tensors.items():
        devices.setdefault(device_id(tensor.device), []).append(key)
    most = max(devices, key=lambda device: len(devices[device]), default=None)
    placed = {device: () if device == most else tuple(keys) for device, keys in devices.items()}
    if isinstance(thing, Tensor):
        return SavedObject(
            name=name, kind="tensor", type=type_name(thing), devices=placed, requires_grad=thing.requires_grad
        )
    part = ":" in target
    extras = Extras() if part else workspace.extras(target)
    parameters = dict(thing.named_parameters(remove_duplicate=False))
    return SavedObject(
        name=name,
        kind="part" if part else "model",
        type=type_name(thing),
        recipe=extras.recipe,
        seed=extras.seed,
        source=extras.source,
        inputs=extras.inputs,
        devices=placed,
        frozen=tuple(key for key, parameter in parameters.items() if not parameter.requires_grad),
        training=thing.training,
        other_modes=tuple(path for path, module in thing.named_modules() if module.training != thing.training),
        waiting=waiting,
    )
