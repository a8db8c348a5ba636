"""`torch.distributed` on virtual GPUs: collectives run on the CPU tensors inside, over the group's backend for the CPU.
Any thread.

A process has its own virtual GPUs, so ranks meet as they would on cards of several machines.
"""

from __future__ import annotations

import time
from typing import Any

import torch
from torch.utils._pytree import tree_leaves, tree_map_only

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
    tensors = [item for item in tree_leaves((args, kwargs)) if isinstance(item, torch.Tensor)]
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
    inner_args, inner_kwargs = tree_map_only(VirtualTensor, lambda tensor: tensor._inner, (args, kwargs))
    result = operation.overload(*inner_args, **inner_kwargs)
    nbytes = sum(item.nbytes for item in tree_leaves(inner_args) if isinstance(item, torch.Tensor))
    gpu.clock.advance(gpu.copy_seconds(gpu, nbytes), time.perf_counter() - began)
    # What a collective gives back of its arguments are the very tensors that the caller passed.
    return tree_map_only(torch.Tensor, lambda tensor: wrappers.get(id(tensor), tensor), result)
