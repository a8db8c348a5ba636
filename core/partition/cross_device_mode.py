"""Lets the functions in a forward work on tensors from several devices, as hooks let modules: `query * item`, a
residual sum. Jobs thread.

Hooks see modules only. A function that PyTorch refuses because its tensors are on several devices is called once more
with all of them on one: where a Parameter among them is, else where the first is, and always where the first is when it
is written to.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_leaves


class CrossDeviceMode(TorchFunctionMode):
    """On during the forward of a model with hops. `fetch(values, device)` returns the values with every tensor on the
    device."""

    def __init__(self, fetch: Callable[[Any, torch.device], Any]) -> None:
        super().__init__()
        self._fetch = fetch

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        try:
            return func(*args, **(kwargs or {}))
        except RuntimeError as error:
            device = None if isinstance(error, torch.OutOfMemoryError) else _common_device(func, args, kwargs)
            if device is None:
                raise
        args, kwargs = self._fetch((args, kwargs or {}), device)
        return func(*args, **kwargs)


def _common_device(func: Any, args: Any, kwargs: Any) -> torch.device | None:
    """None: they are on one device already."""
    tensors = [leaf for leaf in tree_leaves((args, kwargs)) if isinstance(leaf, Tensor)]
    if len({tensor.device for tensor in tensors}) < 2:
        return None
    parameter = next((tensor for tensor in tensors if isinstance(tensor, nn.Parameter)), None)
    return tensors[0].device if parameter is None or _writes(getattr(func, "__name__", "")) else parameter.device


def _writes(name: str) -> bool:
    """Whether a function of this name changes its first argument: `add_`, `__iadd__`, `__setitem__`."""
    inside = name.strip("_")
    return (
        inside == "setitem" or (name.startswith("__i") and inside != "invert")
        if name.startswith("__")
        else name.endswith("_")
    )
