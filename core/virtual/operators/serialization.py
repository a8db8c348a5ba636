"""`repr`, copy and pickle of tensors on virtual GPUs. Any thread.

What shared memory shares it afterwards as well, as with PyTorch's own tensors. A file holds the CPU's tensors, so that
it can be read where there are no virtual GPUs.
"""

from __future__ import annotations

import copy
import time
import weakref
from typing import Any, cast

import torch

from devexplorer.core.virtual.device.accounting import count_storage

OWN = ("_inner", "_gpu")
"""Python attributes that belong to each tensor alone."""
_text: Any = torch._tensor_str  # torch publishes no types for it
_PREFIX = "tensor("
_MEMO = "vgpu"
"""Where the memo of a deep copy keeps storages, as torch has a place there for its own."""


def tensor_repr(tensor: Any) -> str:
    """What `repr` shows: what PyTorch shows of a CUDA tensor, with `spoken` of its card."""
    inner, dtype = tensor._inner, tensor.dtype
    facts = [f"device='{tensor._gpu.spoken}'"]
    complex_default = torch.complex128 if torch.get_default_dtype() is torch.float64 else torch.complex64
    if inner.is_meta:
        contents = "no values"
        facts.append(f"size={tuple(tensor.shape)}")
    elif inner.numel() == 0:
        contents = "[]"
        if inner.dim() != 1:
            facts.append(f"size={tuple(tensor.shape)}")
    else:
        contents = _text._tensor_str(inner, len(_PREFIX))
    told = () if inner.numel() == 0 or inner.is_meta else (complex_default, torch.int64, torch.bool)
    if dtype not in (torch.get_default_dtype(), *told):
        facts.append(f"dtype={dtype}")
    if tensor.grad_fn is not None:
        facts.append(f"grad_fn=<{type(tensor.grad_fn).__name__}>")
    elif tensor.requires_grad:
        facts.append("requires_grad=True")
    shown: str = _text._add_suffixes(_PREFIX + contents, facts, len(_PREFIX), force_newline=False)
    return f"Parameter containing:\n{shown}" if getattr(tensor, "_is_param", False) else shown


def shallow_copy(tensor: Any) -> torch.Tensor:
    """`copy.copy`: another tensor over the same memory. torch would go by `__reduce_ex__`, which is for files here."""
    with torch.no_grad():
        made = tensor.detach()
    _adopt(made, tensor)
    return cast(torch.Tensor, made)


def _adopt(made: Any, original: Any) -> None:
    """Give a copy what the original carries as Python attributes (`_is_param`, what users put there) and whether it
    requires grad."""
    for name, value in original.__dict__.items():
        if name not in OWN:
            setattr(made, name, value)
    made.requires_grad_(original.requires_grad)


def deep_copy(tensor: Any, memo: dict[Any, Any], *, gradient: bool = True) -> torch.Tensor:
    """`copy.deepcopy` of a leaf, with its attributes, and its gradient if wanted."""
    if id(tensor) in memo:
        return cast(torch.Tensor, memo[id(tensor)])
    if not tensor.is_leaf:
        raise RuntimeError(
            "Only Tensors created explicitly by the user (graph leaves) support the deepcopy protocol at the moment."
        )
    with torch.no_grad():
        made = tensor.clone() if tensor._inner.is_meta else type(tensor)(_copied(tensor, memo), tensor._gpu)
    _adopt(made, tensor)
    memo[id(tensor)] = made
    if gradient and tensor.grad is not None:
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
        count_storage(made, gpu)
        made.copy_(storage)
        gpu.clock.advance(gpu.roofline.operation_seconds(0, 2 * storage.nbytes()), time.perf_counter() - began)
        storages[storage._cdata] = made
    return _over(storages[storage._cdata], inner)


def _over(storage: Any, like: torch.Tensor) -> torch.Tensor:
    """A tensor like another one, over another storage of the same size."""
    values = torch.empty(0, dtype=like.dtype).set_(storage, like.storage_offset(), like.shape, like.stride())
    values = values.conj() if like.is_conj() else values
    return torch._neg_view(values) if like.is_neg() else values


def reduce_for_pickle(tensor: Any, protocol: Any) -> Any:
    """What pickle and `torch.save` write: the tensor inside, which is the CPU's and shares its storage with its
    views."""
    gpu, inner = tensor._gpu, tensor._inner
    if inner.is_meta:
        raise NotImplementedError(f"a tensor without values on {gpu.id} cannot be saved")
    host = _over(_on_cpu(inner.untyped_storage()), inner)
    gpu.clock.advance(gpu.copy_seconds(None, host.nbytes), 0.0)
    if getattr(tensor, "_is_param", False):
        host = torch.nn.Parameter(host, tensor.requires_grad)
    elif tensor.is_leaf:
        host.requires_grad_(tensor.requires_grad)
    return host.__reduce_ex__(protocol)


def _on_cpu(storage: Any) -> Any:
    """The storage, or another one of the same memory that says it is the CPU's: what was loaded has storages that name
    the virtual GPU."""
    if storage.device.type == "cpu":
        return storage
    known = getattr(storage, "_as_cpu", None)
    plain = None if known is None else known()
    if plain is None:
        memory = torch.empty(0, dtype=torch.uint8).set_(storage)
        plain = torch.from_numpy(memory.numpy()).untyped_storage()
        storage._as_cpu = weakref.ref(plain)  # weakly: the plain one holds this one
    return plain
