"""Defaults, generators, files, lazy layers and mixed precision that name CUDA, on virtual GPUs. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Any

import torch
from torch import nn, serialization
from torch.amp import autocast_mode, grad_scaler
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.virtual.backend import move_lazily
from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.cuda.patches import Patches
from devexplorer.core.virtual.cuda.tensors import dtype_of
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter


def imitate_defaults(patches: Patches, cards: Cards) -> None:
    """Let `torch.get_default_device`, `set_default_tensor_type` and `get_device_module` speak of CUDA."""
    default, tensor_type, module = torch.get_default_device, torch.set_default_tensor_type, torch.get_device_module

    def get_default() -> torch.device:
        return cards.spoken(default())

    def set_type(kind: Any) -> None:
        dtype = dtype_of(kind)
        if dtype is None:
            tensor_type(kind)
        else:
            torch.set_default_dtype(dtype)
            torch.set_default_device("cuda")

    patches.call(torch, "get_default_device", get_default)
    patches.call(torch, "set_default_tensor_type", set_type)
    patches.call(torch, "get_device_module", lambda device=None: module("cuda" if device is None else device))


def imitate_generators(patches: Patches, cards: Cards) -> None:
    """Let a generator for CUDA be one of a virtual GPU."""
    original = torch.Generator

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, original)

    def make(cls: type, device: Any = None) -> torch.Generator:
        if device is None:
            return original()
        return original(device=cards.virtual(device) if patches.on else device)

    patches.put(torch, "Generator", Kind("Generator", (), {"__new__": make, "__module__": "torch"}))


def imitate_files(patches: Patches, cards: Cards) -> None:
    """Let files be loaded to CUDA: `map_location="cuda:1"`, and what was saved from there."""
    registry: Any = serialization._package_registry

    def restore(storage: Any, location: str) -> Any:
        if not patches.on or location.partition(":")[0] != "cuda":
            return None
        return serialization.default_restore_location(storage, str(cards.virtual(location)))

    def moved(storage: Any, device: Any = None, non_blocking: bool = False) -> Any:
        return storage.vgpu(cards.ordinal(device))

    before_all = (1, lambda storage: None, restore)
    patches.put(serialization, "_package_registry", [before_all, *registry])
    patches.call(torch.UntypedStorage, "cuda", moved)


def imitate_lazy(patches: Patches, cards: Cards, seen: Callable[[], None]) -> None:
    """Let lazy parameters wait on a virtual GPU; `seen` is called when code names a card for them."""
    default = torch.get_default_device
    for kind, waiting in ((UninitializedParameter, LazyVirtualParameter), (UninitializedBuffer, LazyVirtualBuffer)):
        patches.put(kind, "__new__", staticmethod(_maker(patches, cards, kind.__new__, waiting, default)))
    move, cuda = nn.Module.to, nn.Module.cuda

    def to(model: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type not in ("cuda", KIND) or not _waits(model):
            return move(model, *args, **kwargs)
        seen()
        return move_lazily(model, cards.virtual(device), dtype)

    def to_cuda(model: Any, device: Any = None) -> Any:
        if not _waits(model):
            return cuda(model, device)
        seen()
        return move_lazily(model, cards.virtual("cuda" if device is None else device))

    patches.call(nn.Module, "to", to)
    patches.call(nn.Module, "cuda", to_cuda)


def _waits(model: nn.Module) -> bool:
    return any(map(nn.parameter.is_lazy, chain(model.parameters(), model.buffers())))


def _maker(patches: Patches, cards: Cards, original: Any, waiting: Any, default: Callable[[], torch.device]) -> Any:
    def make(
        cls: type,
        requires_grad: bool = waiting is LazyVirtualParameter,
        device: Any = None,
        dtype: Any = None,
        **options: Any,
    ) -> Any:
        if patches.on and cls is not waiting:
            where = cards.virtual(default() if device is None else device)
            if torch.device(where).type == KIND:
                return waiting(requires_grad, where, dtype)
        return original(cls, requires_grad, device, dtype, **options)

    return make


def _virtual(device_type: Any) -> Any:
    return KIND if isinstance(device_type, str) and device_type.partition(":")[0] == "cuda" else device_type


def imitate_amp(patches: Patches) -> None:
    """Let mixed precision that is meant for CUDA work on virtual GPUs."""
    enter = autocast_mode.autocast.__init__
    scale = grad_scaler.GradScaler.__init__

    def autocast(self: Any, device_type: Any, *args: Any, **kwargs: Any) -> None:
        enter(self, _virtual(device_type), *args, **kwargs)

    def scaler(self: Any, device: Any = "cuda", *args: Any, **kwargs: Any) -> None:
        scale(self, _virtual(device), *args, **kwargs)

    patches.call(autocast_mode.autocast, "__init__", autocast)
    patches.call(grad_scaler.GradScaler, "__init__", scaler)
    for name in ("is_autocast_enabled", "get_autocast_dtype", "set_autocast_enabled", "set_autocast_dtype"):
        patches.call(torch, name, _named(getattr(torch, name)))
    patches.call(torch, "get_autocast_gpu_dtype", lambda: torch.get_autocast_dtype(KIND))
    patches.call(torch, "set_autocast_gpu_dtype", lambda dtype: torch.set_autocast_dtype(KIND, dtype))
    for owner in (torch.amp, autocast_mode):
        patches.call(owner, "is_autocast_available", _named(autocast_mode.is_autocast_available))
    cast = autocast_mode._cast
    patches.call(autocast_mode, "_cast", lambda value, device_type, dtype: cast(value, _virtual(device_type), dtype))


def _named(function: Callable[..., Any]) -> Callable[..., Any]:
    def asked(*args: Any, **kwargs: Any) -> Any:
        if "device_type" in kwargs:
            kwargs["device_type"] = _virtual(kwargs["device_type"])
        elif args and isinstance(args[0], str):
            args = (_virtual(args[0]), *args[1:])
        else:
            args = (KIND, *args)  # without a device torch means CUDA
        return function(*args, **kwargs)

    return asked
