"""`torch.vgpu`, the functions that torch and user code expect of an accelerator's module, and what `torch.accelerator`
asks of C++. Any thread; all figures are the virtual GPUs'.

The functions of `torch.accelerator` call some of `torch._C`, which ask the device guard and the allocator that a device
in C++ has. While `vgpu` is the accelerator of the process, the answers come from the virtual GPUs; each function is
replaced only where this torch has it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch

from devexplorer.core.virtual.device import streams
from devexplorer.core.virtual.device.accounting import KIND, current_gpu, gpus, set_current
from devexplorer.core.virtual.device.streams import current_stream, gpu_named, set_stream
from devexplorer.core.virtual.operators.operations import DTYPE_NAMES


def register() -> None:
    """Let `torch.accelerator` answer for virtual GPUs where they are the accelerator."""
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


def reset_peak(device: Any = None) -> None:
    """Let the peaks start again."""
    gpu_named(device).memory.reset_peak()


def reset_accumulated(device: Any = None) -> None:
    """Let the sums of what came and went start again."""
    gpu_named(device).memory.reset_accumulated()


def memory_info(device: Any = None) -> tuple[int, int]:
    """Free and total bytes of the device, as cudaMemGetInfo counts: cached memory is not free."""
    gpu = gpu_named(device)
    return gpu.profile.usable_bytes - gpu.used_bytes, gpu.profile.usable_bytes


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
    "resetAccumulatedStats": reset_accumulated,
    "resetPeakStats": reset_peak,
    "getMemoryInfo": memory_info,
    "getDeviceCapability": _capability,
}


Where: TypeAlias = "torch.device | str | int | None"


class Properties(NamedTuple):
    """What the profile knows of a card."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int | None


def _counted(counter: str, figure: str) -> staticmethod[..., int]:
    """The function that returns one of the allocator's statistics: bytes in live tensors (rounded as the allocator
    does), or in segments."""
    return staticmethod(lambda device=None: gpu_named(device).memory.statistics()[counter]["all"][figure])


class VgpuModule:
    """What `torch.vgpu` is. `vgpu` without a number means the current device of the thread, by default
    `vgpu:0`."""

    Stream = streams.Stream
    Event = streams.Event
    current_stream = staticmethod(streams.current_stream)
    default_stream = staticmethod(streams.default_stream)
    set_stream = staticmethod(streams.set_stream)
    mem_get_info = staticmethod(memory_info)
    empty_cache = staticmethod(empty_cache)
    reset_peak_memory_stats = staticmethod(reset_peak)
    reset_accumulated_memory_stats = staticmethod(reset_accumulated)

    def is_available(self) -> bool:
        """Whether there is a virtual GPU."""
        return bool(gpus())

    def is_initialized(self) -> bool:
        """Nothing has to be initialised."""
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """How many virtual GPUs there are."""
        return len(gpus())

    def current_device(self) -> int:
        """What `vgpu` without a number means on this thread."""
        return current_gpu().index

    def set_device(self, device: Where) -> None:
        """Let `vgpu` without a number mean this device on the calling thread."""
        set_current(gpu_named(device))

    _exchange_device = _maybe_exchange_device = staticmethod(exchange)

    @contextmanager
    def device(self, device: Where) -> Iterator[None]:
        """The current device within a block; None or a negative number changes nothing."""
        if device is None or (isinstance(device, int) and device < 0):
            yield
            return
        before = current_gpu()
        set_current(gpu_named(device))
        try:
            yield
        finally:
            set_current(before)

    @contextmanager
    def stream(self, stream: Any) -> Iterator[None]:
        """The current stream within a block, its device included; None changes nothing."""
        if stream is None:
            yield
            return
        with stream:
            yield

    def is_current_stream_capturing(self) -> bool:
        """Nothing is captured: virtual GPUs have no graphs."""
        return False

    def get_device_properties(self, device: Where = None) -> Properties:
        """What the profile knows."""
        profile = gpu_named(device).profile
        return Properties(profile.name, *self.get_device_capability(device), profile.usable_bytes, profile.sm_count)

    def get_device_name(self, device: Where = None) -> str:
        """The profile's name."""
        return gpu_named(device).profile.name

    def get_device_capability(self, device: Where = None) -> tuple[int, int]:
        """Compute capability (major, minor); (0, 0) for a card that has none."""
        major, _, minor = gpu_named(device).profile.compute_capability.partition(".")
        return (int(major), int(minor)) if minor else (0, 0)

    def synchronize(self, device: Where = None) -> None:
        """Operations are done when they return."""
        gpu_named(device)

    memory_allocated = _counted("allocated_bytes", "current")
    max_memory_allocated = _counted("allocated_bytes", "peak")
    memory_reserved = _counted("reserved_bytes", "current")
    max_memory_reserved = _counted("reserved_bytes", "peak")

    def memory_stats(self, device: Where = None) -> dict[str, int]:
        """What `torch.accelerator.memory_stats` says."""
        return torch.accelerator.memory.memory_stats(gpu_named(device).index)

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """dtypes for `torch.autocast("vgpu")`."""
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        """Does nothing: random values come from the CPU's generator, so a seed gives the same ones on every
        device."""

    def manual_seed_all(self, seed: int) -> None:
        """As `manual_seed`."""

    def initial_seed(self) -> int:
        """The CPU generator's seed."""
        return torch.initial_seed()

    def get_rng_state(self, device: Where = None) -> torch.Tensor:
        """The CPU generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Where = None) -> None:
        """Set the CPU generator's state."""
        torch.set_rng_state(state)

    def get_rng_state_all(self) -> list[torch.Tensor]:
        """The CPU generator's state for each device."""
        return [torch.get_rng_state() for _ in gpus()]

    def set_rng_state_all(self, states: list[torch.Tensor]) -> None:
        """Set the CPU generator's state."""
        for state in states[:1]:
            torch.set_rng_state(state)
