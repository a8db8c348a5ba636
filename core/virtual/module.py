"""`torch.vgpu`: the functions that torch and user code expect of an accelerator's module. Any thread; all figures are the virtual GPUs'."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TypeAlias

import torch

from devexplorer.core.virtual.books import gpu_of
from devexplorer.core.virtual.machine import VirtualGpu, VirtualMachine

Where: TypeAlias = "torch.device | str | int | None"


class VgpuModule:
    """What `torch.vgpu` is. `vgpu` without a number means `vgpu:0`: torch's device guard for Python backends knows no other."""

    def __init__(self, machine: VirtualMachine) -> None:
        self._machine = machine

    def _gpu(self, device: Where = None) -> VirtualGpu:
        return gpu_of(torch.device("vgpu", device or 0) if isinstance(device, int | None) else torch.device(device))

    def is_available(self) -> bool:
        """Whether there is a virtual GPU."""
        return bool(self._machine.gpus)

    def is_initialized(self) -> bool:
        """Nothing has to be initialised."""
        return True

    def _is_in_bad_fork(self) -> bool:
        return False

    def device_count(self) -> int:
        """How many virtual GPUs there are."""
        return len(self._machine.gpus)

    def current_device(self) -> int:
        """What `vgpu` without a number means: always 0."""
        return 0

    def set_device(self, device: Where) -> None:
        """Accept vgpu:0 only: torch would go on taking `vgpu` for `vgpu:0`."""
        if self._gpu(device).index != 0:
            raise RuntimeError("'vgpu' without a number always means vgpu:0; name the device, as in x.to('vgpu:1')")

    @contextmanager
    def device(self, device: Where) -> Iterator[None]:
        """Check that there is such a device; which one an operation runs on is decided by its tensors."""
        self._gpu(device)
        yield

    def get_device_name(self, device: Where = None) -> str:
        """The profile's name."""
        return self._gpu(device).profile.name

    def get_device_capability(self, device: Where = None) -> tuple[int, int]:
        """Compute capability (major, minor); (0, 0) for a card that has none."""
        major, _, minor = self._gpu(device).profile.compute_capability.partition(".")
        return (int(major), int(minor)) if minor else (0, 0)

    def synchronize(self, device: Where = None) -> None:
        """Operations are done when they return."""
        self._gpu(device)

    def memory_allocated(self, device: Where = None) -> int:
        """Bytes in live tensors, rounded as the allocator does."""
        return self._gpu(device).memory.allocated_bytes

    def max_memory_allocated(self, device: Where = None) -> int:
        """The most that was allocated at one time."""
        return self._gpu(device).memory.peak_allocated_bytes

    def reset_peak_memory_stats(self, device: Where = None) -> None:
        """Let the peak start again."""
        self._gpu(device).memory.reset_peak()

    def memory_reserved(self, device: Where = None) -> int:
        """Bytes in segments."""
        return self._gpu(device).memory.reserved_bytes

    def mem_get_info(self, device: Where = None) -> tuple[int, int]:
        """Free and total bytes of the device, as cudaMemGetInfo counts: cached memory is not free."""
        gpu = self._gpu(device)
        return gpu.profile.memory_bytes - gpu.used_bytes, gpu.profile.memory_bytes

    def empty_cache(self) -> None:
        """Give cached segments of every device back."""
        for gpu in self._machine.gpus:
            gpu.memory.empty_cache()

    def get_amp_supported_dtype(self) -> list[torch.dtype]:
        """dtypes for `torch.autocast("vgpu")`."""
        return [torch.float16, torch.bfloat16]

    def manual_seed(self, seed: int) -> None:
        """Nothing of its own: random values come from the CPU's generator, so a seed gives the same ones on every device."""

    def manual_seed_all(self, seed: int) -> None:
        """As `manual_seed`."""

    def get_rng_state(self, device: Where = None) -> torch.Tensor:
        """The CPU generator's state."""
        return torch.get_rng_state()

    def set_rng_state(self, state: torch.Tensor, device: Where = None) -> None:
        """Set the CPU generator's state."""
        torch.set_rng_state(state)
