"""Defaults, generators and files that name CUDA, on virtual GPUs. Any thread."""

from __future__ import annotations

from typing import Any

import torch
from torch import serialization

from devexplorer.core.doctor.cuda.cards import Cards
from devexplorer.core.doctor.cuda.patches import Patches
from devexplorer.core.doctor.cuda.tensor_types import dtype_of
from devexplorer.core.virtual.device.accounting import KIND


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
    """Let a generator for CUDA be one of the CPU's, whose values virtual GPUs take."""
    original = torch.Generator

    class Kind(type):
        def __instancecheck__(cls, value: Any) -> bool:
            return isinstance(value, original)

        def __subclasscheck__(cls, other: type) -> bool:
            return issubclass(other, original)

    def make(cls: type, device: Any = None) -> torch.Generator:
        mapped = cards.virtual(device) if patches.on and device is not None else device
        virtual = isinstance(mapped, torch.device) and mapped.type == KIND
        return original() if mapped is None or virtual else original(device=mapped)

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
