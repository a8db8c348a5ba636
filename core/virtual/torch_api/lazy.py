"""Lazy parameters and buffers (`nn.LazyLinear`, ...) on a virtual GPU, before they have a shape. Any thread.

torch's own `UninitializedParameter` cannot be on a virtual GPU: moved, it would become a plain tensor. These
subclasses can, and when the first forward gives them a shape they turn into ordinary parameters there, still the same
Python object.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import nn
from torch.nn.modules.lazy import LazyModuleMixin
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.virtual.device.accounting import KIND, gpu_of

_Mixin: Any = vars(nn.parameter)["UninitializedTensorMixin"]
"""Which torch publishes no types for."""
_CASTS = {"double": torch.float64, "float": torch.float32, "half": torch.float16, "bfloat16": torch.bfloat16}


def register() -> None:
    """Let `Module.to` move lazy parameters to virtual GPUs and back, as it does between other devices."""
    _Mixin.to = _to
    _Mixin.cpu = lambda tensor, *args, **kwargs: _to(tensor, "cpu")
    setattr(
        _Mixin,
        KIND,
        lambda tensor, device=None, *args, **kwargs: _to(
            tensor, KIND if device is None else torch.device(KIND, device)
        ),
    )
    for name, dtype in _CASTS.items():
        setattr(_LazyVirtual, name, lambda tensor, dtype=dtype: _lazy_like(tensor, tensor.device, dtype))
    modules: Any = LazyModuleMixin
    modules._apply = _apply


def _to(tensor: Any, *args: Any, **kwargs: Any) -> Any:
    """`tensor.to(...)` of a lazy tensor: a lazy tensor on the other device."""
    parse: Any = torch._C._nn._parse_to
    device, dtype, *_ = parse(*args, **kwargs)
    if device is None or KIND not in (device.type, tensor.device.type):
        return torch.Tensor.to(tensor, *args, **kwargs)
    return _lazy_like(tensor, device, dtype or tensor.dtype)


def _apply(module: Any, function: Any, recurse: bool = True) -> Any:
    """`Module._apply` of a lazy module: what waits stays the same object, as `Module.to` cannot exchange such
    tensors."""
    held = {
        id(item): item for item in (*module._parameters.values(), *module._buffers.values()) if isinstance(item, _Mixin)
    }
    moved = {key: function(item) for key, item in held.items()}
    if not any(isinstance(item, _LazyVirtual) for item in (*held.values(), *moved.values())):
        return super(LazyModuleMixin, module)._apply(function, recurse)
    for key, item in held.items():
        _swap_into(item, moved[key])
    before = module._parameters, module._buffers
    module._parameters, module._buffers = (
        {name: item for name, item in held_by.items() if id(item) not in held} for held_by in before
    )
    try:
        return super(LazyModuleMixin, module)._apply(function, recurse)
    finally:
        for old, new in zip(before, (module._parameters, module._buffers), strict=True):
            old.update(new)
        module._parameters, module._buffers = before


class _LazyVirtual:
    """Mixin for both classes, ahead of torch's own in the MRO: has no memory, and is materialised by a swap."""

    def __new__(cls: Any, requires_grad: bool, device: Any, dtype: Any) -> Any:
        """As torch's own, on a virtual GPU."""
        where = torch.device(KIND, gpu_of(torch.device(device)).index)  # refuses a device that is not there
        return torch.Tensor._make_wrapper_subclass(
            cls, (0,), dtype=dtype or torch.get_default_dtype(), device=where, requires_grad=requires_grad
        )

    def materialize(self: Any, shape: Any, device: Any = None, dtype: Any = None) -> None:
        """Become a tensor of this shape, on the same virtual GPU by default."""
        value = torch.empty(shape, device=device or self.device, dtype=dtype or self.dtype)
        if isinstance(self, nn.Parameter):
            value = nn.Parameter(value, self.requires_grad)
        _swap(self, value)

    def __deepcopy__(self: Any, memo: dict[int, Any]) -> Any:
        if id(self) not in memo:
            memo[id(self)] = type(self)(self.requires_grad, self.device, self.dtype)
        return memo[id(self)]

    @classmethod
    def __torch_dispatch__(cls: Any, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.ops.aten.detach.default:  # `.data`, and what state_dict does
            waiting = args[0]
            return cls(False, waiting.device, waiting.dtype)
        raise ValueError(
            f"Attempted to use an uninitialized parameter in {func}. Run a forward pass first: it gives lazy parameters"
            " their shape."
        )


class LazyVirtualParameter(_LazyVirtual, UninitializedParameter):  # type: ignore[misc]
    """An `UninitializedParameter` on a virtual GPU."""


class LazyVirtualBuffer(_LazyVirtual, UninitializedBuffer):  # type: ignore[misc]
    """An `UninitializedBuffer` on a virtual GPU."""


def _swap(first: torch.Tensor, second: torch.Tensor) -> None:
    swap: Any = torch.utils.swap_tensors  # torch publishes no types for it
    swap(first, second)


def move_uninitialised(tensor: torch.Tensor, device: torch.device | str, dtype: torch.dtype | None = None) -> None:
    """Let a lazy parameter or buffer wait on another device (and for another dtype), in place: it stays the same
    object.

    Works from and to virtual GPUs, the CPU and any other device. Changes nothing when it is there already.
    """
    where = torch.device(device)
    wanted = dtype or tensor.dtype
    if tensor.device == where and tensor.dtype == wanted:
        return
    _swap_into(tensor, _lazy_like(tensor, where, wanted))


def _swap_into(tensor: torch.Tensor, made: torch.Tensor) -> None:
    made.__dict__.update(tensor.__dict__)  # what the module or the user put on it stays with it
    _swap(tensor, made)


def _lazy_like(tensor: torch.Tensor, where: torch.device, dtype: torch.dtype) -> torch.Tensor:
    """A lazy tensor of the same kind on another device."""
    if isinstance(tensor, nn.Parameter):
        kind: Any = LazyVirtualParameter if where.type == KIND else UninitializedParameter
    else:
        kind = LazyVirtualBuffer if where.type == KIND else UninitializedBuffer
    return cast(torch.Tensor, kind(tensor.requires_grad, where, dtype))


def move_lazily(model: nn.Module, device: torch.device | str, dtype: torch.dtype | None = None) -> nn.Module:
    """`model.to(device, dtype)` for a model with lazy parameters, of which torch's own would make plain tensors on a
    virtual GPU.

    Returns the model; as with `to`, whole numbers keep their dtype.
    """

    def moved(tensor: torch.Tensor) -> torch.Tensor:
        return tensor.to(device=device, dtype=dtype if tensor.is_floating_point() or tensor.is_complex() else None)

    for part in model.modules():
        held = (*part._parameters.values(), *part._buffers.values())
        waiting = {id(item): item for item in held if isinstance(item, _Mixin)}
        if not waiting:
            part._apply(moved, recurse=False)
            continue
        for item in waiting.values():
            move_uninitialised(item, device, dtype)
        for key, buffer in part._buffers.items():
            if buffer is not None and id(buffer) not in waiting:
                part._buffers[key] = moved(buffer)
    return model
