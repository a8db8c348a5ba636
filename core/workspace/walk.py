"""What an object holds: registered tensors, gradients, and what PyTorch does not see. Reads only. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.virtual.tensor import VirtualTensor

CONTAINER_DEPTH = 4
"""How deep plain lists, tuples and dicts are searched for tensors and modules."""
CONTAINER_ITEMS = 10_000
"""How many items of one plain container are looked at."""
_ORDINARY = (Tensor, nn.Parameter)
"""Asked first: `isinstance` of a Parameter is slow."""


def registered_ids(module: nn.Module) -> set[int]:
    """`id()` of every module, parameter and buffer that PyTorch knows below `module`, itself included."""
    ids: set[int] = set()
    for part in module.modules():
        ids.add(id(part))
        ids.update(map(id, part._parameters.values()))
        ids.update(map(id, part._buffers.values()))
    return ids


def is_uninitialised(tensor: Tensor) -> bool:
    """Whether this is a lazy parameter or buffer before its first forward: it has a device and a dtype, but no shape."""
    return type(tensor) not in _ORDINARY and isinstance(tensor, (UninitializedBuffer, UninitializedParameter))


def gradient_of(tensor: Tensor) -> Tensor | None:
    """The gradient, if there is one; asking a non-leaf that keeps none would make PyTorch warn."""
    return tensor.grad if tensor.is_leaf or tensor.retains_grad else None


def unregistered(module: nn.Module, known: set[int]) -> Iterator[tuple[str, nn.Module | Tensor]]:
    """Modules and tensors that this module holds in attributes, lists, tuples and dicts, but has not registered.

    Yields `(path, thing)` with paths as Python would write them after the module: `heads[0]`, `cache['key']`.
    """
    for key, value in vars(module).items():
        if key not in _OWN and isinstance(value, _WORTH_A_LOOK):
            yield from _search(key, value, known, 0)


def _search(path: str, value: Any, known: set[int], depth: int) -> Iterator[tuple[str, nn.Module | Tensor]]:
    if isinstance(value, (Tensor, nn.Module)):
        if id(value) not in known:
            yield path, value
    elif depth < CONTAINER_DEPTH and isinstance(value, (list, tuple)):
        for index, item in enumerate(value[:CONTAINER_ITEMS]):
            yield from _search(f"{path}[{index}]", item, known, depth + 1)
    elif depth < CONTAINER_DEPTH and isinstance(value, dict):
        for key, item in list(value.items())[:CONTAINER_ITEMS]:
            yield from _search(f"{path}[{key!r}]", item, known, depth + 1)


_OWN = frozenset(vars(nn.Module()))
"""The attributes that every module has: its registers, its hooks."""
_WORTH_A_LOOK = (Tensor, nn.Module, list, tuple, dict)


def every_tensor(thing: nn.Module | Tensor) -> Iterator[Tensor]:
    """Every tensor that the object keeps alive: parameters, buffers, gradients, unregistered ones. May repeat; lazy ones left out."""
    if isinstance(thing, Tensor):
        if not is_uninitialised(thing):
            yield thing
            gradient = gradient_of(thing)
            if gradient is not None:
                yield gradient
        return
    known = registered_ids(thing)
    waiting: list[nn.Module] = [thing]
    seen: set[int] = set()
    while waiting:
        for module in waiting.pop().modules():
            if id(module) in seen:
                continue
            seen.add(id(module))
            for tensor in (*module._parameters.values(), *module._buffers.values()):
                if tensor is not None:
                    yield from every_tensor(tensor)
            for _, hidden in unregistered(module, known):
                if isinstance(hidden, nn.Module):
                    waiting.append(hidden)
                else:
                    yield from every_tensor(hidden)


def type_name(thing: nn.Module | Tensor) -> str:
    """The class name; a virtual tensor is called what a real one on a GPU would be called."""
    kind = type(thing)
    if kind in _ORDINARY:
        return kind.__name__
    if isinstance(thing, Tensor) and is_uninitialised(thing):
        return "UninitializedParameter" if isinstance(thing, nn.Parameter) else "UninitializedBuffer"
    if isinstance(thing, VirtualTensor):
        return "Parameter" if isinstance(thing, nn.Parameter) else "Tensor"
    return kind.__name__


def device_id(device: torch.device) -> str:
    """The id as DevExplorer writes it: `cuda:0`, but `cpu` and `mps`, of which there is one."""
    return device.type if device.type in ("cpu", "mps", "meta") or device.index is None else f"{device.type}:{device.index}"
