"""`torch.vgpu`: the functions that torch and user code expect of an accelerator's module. Any thread; all figures are
the virtual GPUs'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, NamedTuple, TypeAlias

import torch

from devexplorer.core.virtual.device import streams
from devexplorer.core.virtual.device.accounting import current_gpu
from devexplorer.core.virtual.device.current import gpus, set_current
from devexplorer.core.virtual.device.streams import gpu_named
from devexplorer.core.virtual.torch_api import accelerator

Where: TypeAlias = "torch.device | str | int | None"


class Properties(NamedTuple):
    """What the profile knows of a card."""

    name: str
    major: int
    minor: int
    total_memory: int
    multi_processor_count: int | None


class VgpuModule:
    """What `torch.vgpu` is. `vgpu` without a number means the current device of the thread, `vgpu:0` unless told
    otherwise."""

    Stream = streams.Stream
    Event = streams.Event
    current_stream = staticmethod(streams.current_stream)
    default_stream = staticmethod(streams.default_stream)
    set_stream = staticmethod(streams.set_stream)
    mem_get_info = staticmethod(accelerator.memory_info)
    empty_cache = staticmethod(accelerator.empty_cache)

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

    _exchange_device = _maybe_exchange_device = staticmethod(accelerator.exchange)

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
        return Properties(profile.name, *self.get_device_capability(device), profile.memory_bytes, profile.sm_count)

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

    def memory_allocated(self, device: Where = None) -> int:
        """Bytes in live tensors, rounded as the allocator does."""
        return gpu_named(device).memory.allocated_bytes

    def max_memory_allocated(self, device: Where = None) -> int:
        """The most that was allocated at one time."""
        return gpu_named(device).memory.peak_allocated_bytes

    def reset_peak_memory_stats(self, device: Where = None) -> None:
        """Let the peak start again."""
        gpu_named(device).memory.reset_peak()

    def memory_reserved(self, device: Where = None) -> int:
        """Bytes in segments."""
        return gpu_named(device).memory.reserved_bytes

    def max_memory_reserved(self, device: Where = None) -> int:
        """The most that was reserved at one time."""
        return int(gpu_named(device).memory.statistics()["reserved_bytes"]["all"]["peak"])

    def memory_stats(self, device: Where = None) -> dict[str, int]:
        """What `torch.accelerator.memory_stats` says."""
        return torch.accelerator.memory_stats(gpu_named(device).index)

    def reset_accumulated_memory_stats(self, device: Where = None) -> None:
        """Let the sums of what came and went start again."""
        gpu_named(device).memory.reset_accumulated()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """dtypes for `torch.autocast("vgpu")`."""
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        """Nothing of its own: random values come from the CPU's generator, so a seed gives the same ones on every
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
