"""Lazy layers that are made on CUDA or moved there, on virtual GPUs. The thread that makes the model."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn
from torch.nn.parameter import UninitializedBuffer, UninitializedParameter

from devexplorer.core.doctor.cuda.cards import Cards
from devexplorer.core.doctor.cuda.patches import Patches
from devexplorer.core.virtual.backend import move_lazily
from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.torch_api.lazy import LazyVirtualBuffer, LazyVirtualParameter


def imitate_lazy(patches: Patches, cards: Cards, seen: Callable[[], None]) -> None:
    """Let lazy parameters wait on a virtual GPU; `seen` is called when code names a card for them."""
    default = torch.get_default_device
    for kind, waiting in ((UninitializedParameter, LazyVirtualParameter), (UninitializedBuffer, LazyVirtualBuffer)):
        patches.put(kind, "__new__", staticmethod(_maker(patches, cards, kind.__new__, waiting, default)))
    move, cuda = nn.Module.to, nn.Module.cuda

    def to(model: Any, *args: Any, **kwargs: Any) -> Any:
        device, dtype, *_ = torch._C._nn._parse_to(*args, **kwargs)
        if device is None or device.type not in ("cuda", KIND) or not _lazy(model):
            return move(model, *args, **kwargs)
        seen()
        return move_lazily(model, cards.virtual(device), dtype)

    def to_cuda(model: Any, device: Any = None) -> Any:
        if not _lazy(model):
            return cuda(model, device)
        seen()
        return move_lazily(model, cards.virtual("cuda" if device is None else device))

    patches.call(nn.Module, "to", to)
    patches.call(nn.Module, "cuda", to_cuda)


def _lazy(model: nn.Module) -> bool:
    return any(
        isinstance(item, UninitializedParameter | UninitializedBuffer)
        for item in (*model.parameters(), *model.buffers())
    )


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
