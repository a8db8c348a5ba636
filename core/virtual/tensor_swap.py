"""Moves tensors to and from virtual GPUs without replacing the tensor object, so existing optimizers and hooks keep
working. Any thread.

On real devices `Module.to` replaces what is inside a parameter (`parameter.data = moved`), and the object stays. A
tensor on a virtual GPU has another Python class than one on the CPU, so here two objects exchange their contents. torch
has that too (`torch.utils.swap_tensors`, which `Module.to` calls on the way to a virtual GPU), but hooks and attributes
stay behind there, and it refuses tensors that a graph or a weak reference knows. So pairs with a virtual tensor go
through `swap_contents`, all others to torch's own.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from devexplorer.core.virtual.operators.tensor import VirtualTensor, register_set_data

OWN = ("_inner", "_gpu", "_is_param")
"""Attributes that belong to the contents, not to the object."""
DENSE = ("cpu", "cuda", "xpu", "mps", "hpu", "mtia")
"""Devices between which torch replaces contents in place."""
_EDGE: Any = torch.autograd.graph.get_gradient_edge


def register(library: Any) -> None:
    """Let `Module.to` and `tensor.data = …` keep objects."""
    library.impl("_has_compatible_shallow_copy_type", _replaceable, "AutogradPrivateUse1")
    register_set_data(set_data)
    torch.utils.swap_tensors = _swapping(torch.utils.swap_tensors)


def _replaceable(tensor: Tensor, new: Tensor) -> bool:
    """Whether `tensor.data = new` works: from a virtual GPU anywhere, to one only from another one."""
    return type(tensor) is VirtualTensor and (
        type(new) is VirtualTensor or (new.device.type in DENSE and new.layout is torch.strided)
    )


KERNELS = {torch.ops.aten._has_compatible_shallow_copy_type.default: _replaceable}
"""Asked below autograd as well: by what resizes."""


def _swapping(original: Any) -> Callable[[Tensor, Tensor], None]:
    def swap_tensors(t1: Tensor, t2: Tensor) -> None:
        if VirtualTensor in (type(t1), type(t2)) and t1.is_leaf and t2.is_leaf:
            swap_contents(t1, t2)
        else:
            original(t1, t2)

    swap_tensors.__doc__ = original.__doc__
    return swap_tensors


def set_data(tensor: Tensor, value: Tensor) -> None:
    """`tensor.data = value` where the value is on a device of another kind: the object is a tensor there from now on,
    its gradient too."""
    if not tensor.is_leaf:
        raise RuntimeError(
            f"only a leaf can be given data on another device; this tensor on {tensor.device} was computed"
        )
    new: Tensor = value.data
    new = (
        nn.Parameter(new, tensor.requires_grad)
        if isinstance(tensor, nn.Parameter)
        else new.requires_grad_(tensor.requires_grad)
    )
    gradient = tensor.grad
    tensor.grad = None
    swap_contents(tensor, new)
    if gradient is not None and gradient.shape == new.shape:
        moved = gradient.to(value.device, value.dtype)
        if gradient.is_leaf:
            swap_contents(gradient, moved)
        tensor.grad = gradient if gradient.is_leaf else moved


def swap_contents(first: Tensor, second: Tensor) -> None:
    """Swap class, contents and device of two leaves. Hooks stay with the objects; the first one keeps its
    attributes."""
    for tensor in (first, second):
        _end_recording(tensor)
    kept = {name: value for name, value in first.__dict__.items() if name not in OWN}
    first.__class__, second.__class__ = second.__class__, first.__class__
    first.__dict__, second.__dict__ = second.__dict__, first.__dict__
    torch._C._swap_tensor_impl(first, second)
    for name, value in kept.items():
        first.__dict__.setdefault(name, value)
    for tensor in (first, second):
        for hooks in ("_backward_hooks", "_post_accumulate_grad_hooks"):
            if getattr(tensor, hooks) is not None:
                setattr(tensor, hooks, getattr(tensor, hooks))  # ties what Python keeps to the new contents


def _end_recording(tensor: Tensor) -> None:
    """A graph that was recorded before would put its gradient into contents that are no longer used: let its backward
    say so."""
    if tensor.requires_grad and tensor._use_count() > 1:  # type: ignore[attr-defined]
        _EDGE(tensor).node.register_prehook(_refuse)


def _refuse(_: Any) -> None:
    raise RuntimeError(
        "a parameter was moved to another device between forward and backward; run forward again on the new device,"
        " then backward"
    )
