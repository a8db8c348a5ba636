"""Tensors on virtual GPUs outside of operations: as text, as deep copies, in files. Any thread.

What shared memory shares it afterwards as well, as with PyTorch's own tensors. A file holds the CPU's tensors, so that it can be read where
there are no virtual GPUs.
"""

from __future__ import annotations

import copy
import time
from typing import Any, cast

import torch

from devexplorer.core.virtual.books import count

OWN = ("_inner", "_gpu")
"""What each tensor has as Python attributes of its own."""
_MEMO = "vgpu"
"""Where the memo of a deep copy keeps storages, as torch has a place there for its own."""


def text(tensor: Any) -> str:
    """What `repr` shows."""
    shown = repr(tensor._inner)
    if tensor._inner.is_meta:
        shown = shown.replace("device='meta'", f"device='{tensor._gpu.id}'").replace("tensor(...", "tensor(no values")
    else:
        shown = f"{shown[:-1]}, device='{tensor._gpu.id}')"
    if tensor.grad_fn is not None:
        shown = f"{shown[:-1]}, grad_fn=<{type(tensor.grad_fn).__name__}>)"
    elif tensor.requires_grad:
        shown = f"{shown[:-1]}, requires_grad=True)"
    return f"Parameter containing:\n{shown}" if getattr(tensor, "_is_param", False) else shown


def deep_copy(tensor: Any, memo: dict[Any, Any]) -> torch.Tensor:
    """`copy.deepcopy` of a leaf, with its gradient and its attributes."""
    if id(tensor) in memo:
        return cast(torch.Tensor, memo[id(tensor)])
    if not tensor.is_leaf:
        raise RuntimeError("Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment.")
    with torch.no_grad():
        made = tensor.clone() if tensor._inner.is_meta else type(tensor)(_copied(tensor, memo), tensor._gpu)
    for name, value in tensor.__dict__.items():
        if name not in OWN:
            setattr(made, name, value)
    made.requires_grad_(tensor.requires_grad)
    memo[id(tensor)] = made
    if tensor.grad is not None:
        made.grad = copy.deepcopy(tensor.grad, memo)
    return cast(torch.Tensor, made)


def _copied(tensor: Any, memo: dict[Any, Any]) -> torch.Tensor:
    """The values over a copy of the whole storage, made once for all that share it."""
    inner, gpu = tensor._inner, tensor._gpu
    storage = inner.untyped_storage()
    storages = memo.setdefault(_MEMO, {})
    if storage._cdata not in storages:
        began = time.perf_counter()
        made = torch.UntypedStorage(storage.nbytes())
        count(made, gpu)
        made.copy_(storage)
        gpu.clock.advance(gpu.roofline.operation_seconds(0, 2 * storage.nbytes()), time.perf_counter() - began)
        storages[storage._cdata] = made
    values = torch.empty(0, dtype=inner.dtype).set_(storages[storage._cdata], inner.storage_offset(), inner.shape, inner.stride())
    values = values.conj() if inner.is_conj() else values
    return torch._neg_view(values) if inner.is_neg() else values


def reduced(tensor: Any, protocol: Any) -> Any:
    """What pickle and `torch.save` write: the tensor inside, which is the CPU's and shares its storage with its views."""
    gpu, host = tensor._gpu, tensor._inner.detach()
    if host.is_meta:
        raise NotImplementedError(f"a tensor without values on {gpu.id} cannot be saved")
    gpu.clock.advance(gpu.copy_seconds(None, host.nbytes), 0.0)
    if getattr(tensor, "_is_param", False):
        host = torch.nn.Parameter(host, tensor.requires_grad)
    elif tensor.is_leaf:
        host.requires_grad_(tensor.requires_grad)
    return host.__reduce_ex__(protocol)
