"""What `torch.accelerator` asks of C++, answered for virtual GPUs. Any thread.

The functions of `torch.accelerator` call these of `torch._C`, which ask the device guard and the allocator that a
device in C++ has. While `vgpu` is the accelerator of the process, the answers come from the virtual GPUs; each function
is replaced only where this torch has it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from devexplorer.core.virtual.device.accounting import KIND, current_gpu
from devexplorer.core.virtual.device.current import gpus, set_current
from devexplorer.core.virtual.device.streams import current_stream, gpu_named, set_stream
from devexplorer.core.virtual.operators.operations import DTYPE_NAMES


def register() -> None:
    """Let `torch.accelerator` speak of virtual GPUs wherever they are the accelerator."""
    for name, ours in _ANSWERS.items():
        original = getattr(torch._C, f"_accelerator_{name}", None)
        if original is not None:
            setattr(torch._C, f"_accelerator_{name}", _either(original, ours))


def _either(original: Callable[..., Any], ours: Callable[..., Any]) -> Callable[..., Any]:
    def answer(*args: Any) -> Any:
        accelerator = torch._C._accelerator_getAccelerator()
        return (ours if accelerator is not None and accelerator.type == KIND else original)(*args)

    return answer


def _set_index(index: int) -> None:
    if index >= 0:
        set_current(gpu_named(index))


def exchange(index: int) -> int:
    """Change the current device and return the one before; a negative index changes nothing."""
    before = current_gpu().index
    _set_index(index)
    return before


def empty_cache() -> None:
    """Give cached segments of every device back."""
    for gpu in gpus():
        gpu.memory.empty_cache()


def memory_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device, as cudaMemGetInfo counts: cached memory is not free."""
    gpu = gpu_named(device)
    return gpu.profile.memory_bytes - gpu.used_bytes, gpu.profile.memory_bytes


def _capability(index: int) -> dict[str, Any]:
    gpu_named(index)
    return {"supported_dtypes": {getattr(torch, name) for name in _DTYPES if hasattr(torch, name)} | set(DTYPE_NAMES)}


_DTYPES = ("bool", "uint8", "int8", "int16", "int32", "int64", "float32", "complex64", "complex128")

_ANSWERS: dict[str, Callable[..., Any]] = {
    "getDeviceIndex": lambda: current_gpu().index,
    "setDeviceIndex": _set_index,
    "exchangeDevice": exchange,
    "maybeExchangeDevice": exchange,
    "getStream": current_stream,
    "setStream": set_stream,
    "synchronizeDevice": gpu_named,
    "isAllocatorInitialized": lambda: True,
    "emptyCache": empty_cache,
    "emptyHostCache": lambda: None,
    "getDeviceStats": lambda index: gpu_named(index).memory.statistics(),
    "resetAccumulatedStats": lambda index: gpu_named(index).memory.reset_accumulated(),
    "resetPeakStats": lambda index: gpu_named(index).memory.reset_peak(),
    "getMemoryInfo": memory_info,
    "getDeviceCapability": _capability,
}
