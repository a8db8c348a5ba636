"""All that has to be equal in a workspace that was saved and opened: also in another process."""

from __future__ import annotations

import hashlib
from typing import Any

import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.models import every_slot, is_uninitialised


def bits(tensor: Tensor) -> bytes:
    """A digest, because the values of a large model would be in memory several times."""
    raw = tensor.detach().cpu().resolve_conj().contiguous().reshape(-1).view(torch.uint8)
    return hashlib.sha256(raw.numpy().data).digest()


def about(tensor: Tensor) -> dict[str, Any]:
    if is_uninitialised(tensor):
        return {"lazy": True, "device": str(tensor.device), "dtype": tensor.dtype, "grad": tensor.requires_grad}
    return {
        "device": str(tensor.device),
        "dtype": tensor.dtype,
        "shape": tensor.shape,
        "stride": tensor.stride(),
        "parameter": isinstance(tensor, nn.Parameter),
        "requires_grad": tensor.requires_grad,
        "bits": bits(tensor),
        "gradient": None if not tensor.is_leaf or tensor.grad is None else bits(tensor.grad),
    }


def everything(place: Place) -> dict[str, Any]:
    """All that has to be equal, by object."""
    found: dict[str, Any] = {}
    ties: dict[int, str] = {}
    for name in place.workspace.names:
        thing, extras = place.workspace.get(name), place.workspace.extras(name)
        if isinstance(thing, Tensor):
            found[name] = about(thing), ties.setdefault(id(thing), name)
            continue
        rows = {}
        for path, part, key, tensor in every_slot(thing):
            persistent = key not in part._non_persistent_buffers_set
            rows[path] = about(tensor), ties.setdefault(id(tensor), f"{name}:{path}"), persistent
        modes = {path: (part.training, type(part)) for path, part in thing.named_modules(remove_duplicate=False)}
        optimizer: Any = None
        if extras.optimizer is not None:
            groups = [
                {key: value for key, value in group.items() if key != "params"}
                | {"params": [ties.get(id(item)) for item in group["params"]]}
                for group in extras.optimizer.param_groups
            ]
            state = {
                ties[id(parameter)]: {key: about(v) if isinstance(v, Tensor) else v for key, v in values.items()}
                for parameter, values in extras.optimizer.state.items()
            }
            optimizer = type(extras.optimizer), groups, state, extras.optimizer_text
        kept = (extras.recipe, extras.source, extras.seed, extras.hops is not None, extras.inputs)
        found[name] = rows, modes, optimizer, kept
    return found
