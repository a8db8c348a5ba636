"""A world in which there is only the CPU, whatever device the code names: what a model takes is found out there, and
whether it works at all. The examination's main thread.
"""

from __future__ import annotations

from typing import Any

import torch
from torch.overrides import TorchFunctionMode

_METHODS = frozenset({torch.Tensor.cuda, torch.Tensor.xpu})


class OnCpu(TorchFunctionMode):
    """Within, every call of torch that names another device means the CPU; tensors without values stay without (device
    `meta`)."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func in _METHODS:
            return args[0]
        kwargs = dict(kwargs or {})
        if kwargs.get("device") is not None:
            kwargs["device"] = _here(kwargs["device"])
        if func is torch.Tensor.to:
            args = _to(args)
            if args[0].is_meta:  # brought nowhere: it has no values that could go
                kwargs.pop("device", None)
                args = (args[0], *(item for item in args[1:] if not _is_device(item)))
                if len(args) == 1 and not kwargs.get("dtype"):
                    return args[0]
        return func(*args, **kwargs)


def _to(args: Any) -> Any:
    return (args[0], *(_here(item) if _is_device(item) else item for item in args[1:2]), *args[2:])


def _is_device(value: Any) -> bool:
    return isinstance(value, (str, torch.device)) or (isinstance(value, int) and not isinstance(value, bool))


def _here(device: Any) -> torch.device:
    """`meta` stays `meta`; a number is a card's."""
    if isinstance(device, (str, torch.device)):
        kind = device.type if isinstance(device, torch.device) else device.partition(":")[0]
        return torch.device("meta" if kind == "meta" else "cpu")
    return torch.device("cpu")
