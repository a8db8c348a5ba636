"""Lets a model that was built again have what fits of the former one, which stays as it is. Jobs thread.

A tensor of the same path, kind and shape is the very same object afterwards: ties, gradients, devices and the state of
an optimizer come along. Where only its kind differs (a tensor that is registered now), its values are copied.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, field

import torch
from torch import Tensor, nn

from devexplorer.core.models.stored import every_slot
from devexplorer.core.models.walk import (
    RegisteredIds,
    is_uninitialised,
    named_modules,
    parameters_and_buffers,
    unregistered,
)

_INDEX = re.compile(r"\[['\"]?(.*?)['\"]?\]")


@dataclass(slots=True)
class Handover:
    """What became of the tensors; paths."""

    carried: list[str] = field(default_factory=list)
    """Have the former values."""
    new: list[str] = field(default_factory=list)
    """Have the values that the code gives them."""
    lost: list[str] = field(default_factory=list)
    """Tensors of the former model that this one has no place for."""
    lost_bytes: int = 0
    """Memory of everything that only the former model has."""


def hand_over(model: nn.Module, former: nn.Module, fresh: Collection[str] = ()) -> Handover:
    """Give the model what fits: tensors, and each part's mode. What is new goes to the device and the dtype of what is
    around it; raises what that raises, and the former model has not changed.

    `fresh`: paths that are new whatever the former model has. A session's script names them: its former model is made
    by the code as it is now, too."""
    result = Handover()
    kept = {path: tensor for path, _, _, tensor in every_slot(former) if path not in fresh}
    hidden = {path: tensor for path, tensor in _hidden(former).items() if path not in fresh}
    dtypes = {tensor.dtype for tensor in former.parameters() if tensor.is_floating_point()}
    dtype = dtypes.pop() if len(dtypes) == 1 else None
    made: dict[int, Tensor] = {}
    given: set[int] = set()
    for path, part, name, tensor in list(every_slot(model)):
        old = kept.get(path, hidden.get(path))
        same = old is not None and not is_uninitialised(old) and tensor.shape == old.shape
        if id(tensor) not in made:
            if path in kept and id(old) not in given and _interchangeable(tensor, kept[path]):
                made[id(tensor)] = kept[path]
            else:
                made[id(tensor)] = _placed(tensor, kept.get(path, _near(path, kept)), dtype)
                if same and old is not None:
                    with torch.no_grad():
                        made[id(tensor)].copy_(old)
            given.add(id(made[id(tensor)]))
        setattr(part, name, made[id(tensor)])  # a module's own __setattr__ does more: an LSTM lists its weights
        (result.carried if same else result.new).append(path)
    result.lost = [path for path in (*kept, *hidden) if path not in result.carried and path not in result.new]
    here = set(map(id, parameters_and_buffers(model)))
    result.lost_bytes = sum(
        tensor.nbytes
        for tensor in {id(tensor): tensor for tensor in (*kept.values(), *hidden.values())}.values()
        if id(tensor) not in here and not is_uninitialised(tensor)
    )
    modes = {path: part.training for path, part in former.named_modules(remove_duplicate=False)}
    for path, part in model.named_modules(remove_duplicate=False):
        part.training = modes.get(path, former.training)
    return result


def _interchangeable(tensor: Tensor, old: Tensor) -> bool:
    if isinstance(tensor, nn.Parameter) != isinstance(old, nn.Parameter):
        return False
    if is_uninitialised(tensor) or is_uninitialised(old):
        return is_uninitialised(tensor) and is_uninitialised(old)
    return tensor.shape == old.shape


def _near(path: str, kept: dict[str, Tensor]) -> Tensor | None:
    """A tensor of the former model in the same part, or the next one around it."""
    while path:
        path = path.rpartition(".")[0]
        prefix = f"{path}." if path else ""
        found = next((tensor for other, tensor in kept.items() if other.startswith(prefix)), None)
        if found is not None:
            return found
    return None


def _placed(tensor: Tensor, near: Tensor | None, dtype: torch.dtype | None) -> Tensor:
    """A tensor of the new model where the other one is."""
    if is_uninitialised(tensor) or near is None:
        return tensor
    moved = tensor.detach().to(near.device, dtype if dtype is not None and tensor.is_floating_point() else None)
    return nn.Parameter(moved, tensor.requires_grad) if isinstance(tensor, nn.Parameter) else moved


def _hidden(model: nn.Module) -> dict[str, Tensor]:
    """Tensors that are not registered, under the paths that they have when their list is one of torch's."""
    modules = named_modules(model)
    known = RegisteredIds(modules)
    found: dict[str, Tensor] = {}
    for path, part in modules:
        for key, thing in unregistered(part, known):
            at = ".".join(filter(None, (path, _INDEX.sub(r".\1", key))))
            if isinstance(thing, Tensor):
                found[at] = thing
            else:
                found |= {f"{at}.{inner}": tensor for inner, _, _, tensor in every_slot(thing)}
    return found
