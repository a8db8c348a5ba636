"""`torch.distributed` on virtual GPUs: collectives run on the CPU tensors inside, over the group's backend for the CPU.
Any thread.

A process has its own virtual GPUs, so ranks meet as they would on cards of several machines.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import torch

from devexplorer.core.virtual.operators.operations import Operation
from devexplorer.core.virtual.operators.tensor import VirtualTensor, register_handlers

_NAMESPACE = "c10d"


def register() -> None:
    """Take every collective that this torch has."""
    names = [
        name.removeprefix(f"{_NAMESPACE}::")
        for name in torch._C._dispatch_get_all_op_names()
        if name.startswith(f"{_NAMESPACE}::")
    ]
    register_handlers({_overload(name): _collective for name in names})


def _overload(name: str) -> Any:
    packet, _, overload = name.partition(".")
    return getattr(getattr(getattr(torch.ops, _NAMESPACE), packet), overload or "default")


def _collective(operation: Operation, *args: Any, **kwargs: Any) -> Any:
    tensors = list(_tensors((args, tuple(kwargs.values()))))
    where = {str(tensor.device) for tensor in tensors}
    if len(where) > 1:
        raise RuntimeError(
            f"{operation.name} needs all tensors of a rank on one device, but got {' and '.join(sorted(where))}"
        )
    wrappers = {id(tensor._inner): tensor for tensor in tensors if isinstance(tensor, VirtualTensor)}
    gpu = next(iter(wrappers.values()))._gpu
    if any(tensor._inner.is_meta for tensor in wrappers.values()):
        raise RuntimeError(f"{operation.name} needs values, and a tensor of this process has none")
    began = time.perf_counter()
    result = operation.overload(*map(_inside, args), **{name: _inside(value) for name, value in kwargs.items()})
    nbytes = sum(inner.nbytes for inner in _tensors(_inside(args)))
    gpu.clock.advance(gpu.copy_seconds(gpu, nbytes), time.perf_counter() - began)
    return _outside(result, wrappers)


def _tensors(value: Any) -> Iterator[Any]:
    if isinstance(value, torch.Tensor):
        yield value
    elif isinstance(value, (list, tuple)):
        for item in value:
            yield from _tensors(item)


def _inside(value: Any) -> Any:
    if isinstance(value, (list, tuple)):
        return [_inside(item) for item in value]
    return value._inner if isinstance(value, VirtualTensor) else value


def _outside(value: Any, wrappers: dict[int, VirtualTensor]) -> Any:
    """The arguments that a collective gives back, as the very tensors that the caller passed."""
    if isinstance(value, (list, tuple)):
        return type(value)(_outside(item, wrappers) for item in value)
    return wrappers.get(id(value), value) if isinstance(value, torch.Tensor) else value
