"""Mixed precision for "cuda" on virtual GPUs: autocast, its flags, and the scaler of gradients. Any thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.amp import autocast_mode, grad_scaler

from devexplorer.core.doctor.cuda.patches import Patches
from devexplorer.core.virtual.device.accounting import KIND


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
