"""Device ids as people write them (`cpu`, `cuda:1`); what the engine asks of a kind of device (`Backend`), and all
kinds together (`DeviceRegistry`). Engine's threads, the ids any; no torch.

A backend answers for every device of its kinds: `core.devices.torch_devices` for what torch itself drives (cpu, cuda,
mps, xpu, …), `core.virtual.device.machine` for virtual GPUs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Protocol

from devexplorer.core.base import BadInput
from devexplorer.core.records import AllocatorSample, DeviceInfo, DeviceSample, Problem

_PATTERN = re.compile(r"([a-z]+)(?::(\d{1,9}))?", re.ASCII)
_SINGLE = {"cpu", "mps"}
"""Kinds of which there is one; torch accepts `cpu:1` and means `cpu`."""

_OWN_MODULE = {"cuda", "xpu", "mps", "vgpu"}
"""Kinds whose module has what `torch.cuda` has."""


def torch_module(kind: str) -> str:
    """Where a person finds torch's functions for a kind: in its own module, or in the generic one where that may lack
    them.

    >>> torch_module("cuda"), torch_module("npu")
    ('torch.cuda', 'torch.accelerator')
    """
    return f"torch.{kind}" if kind in _OWN_MODULE else "torch.accelerator"


def parse_device(text: str) -> str:
    """Return the canonical id for what a person typed, without asking whether there is such a device.

    `cuda` without a number is the first device of that kind.

    >>> parse_device("CUDA"), parse_device("cpu")
    ('cuda:0', 'cpu')
    """
    match = _PATTERN.fullmatch(text.strip().lower())
    if match is None:
        raise BadInput(f"'{text}' is no device; devices are written like cpu, cuda:0 or vgpu:1")
    kind, number = match.groups()
    if kind in _SINGLE:
        if number not in (None, "0"):
            raise BadInput(f"there is only one {kind} (torch takes '{text}' for '{kind}'); write '{kind}'")
        return kind
    return f"{kind}:{int(number or 0)}"


def choose_device(text: str, available: list[str]) -> str:
    """Return the id of an available device, or raise `BadInput` that lists those there are."""
    device = parse_device(text)
    if device in available:
        return device
    raise BadInput(
        f"there is no device '{device}' here; there {'is' if len(available) == 1 else 'are'} {', '.join(available)}",
        virtual_helps=not any(name.startswith("vgpu") for name in available),
    )


class Backend(Protocol):
    """One family of devices as seen from inside the engine process. Device ids are canonical (`cuda:0`)."""

    def devices(self) -> tuple[DeviceInfo, ...]:
        """Every device of this family, the unusable ones with their reason. Creates no context and allocates
        nothing."""
        ...

    def problems(self) -> tuple[Problem, ...]:
        """What could not be found out, and why."""
        ...

    def free_bytes(self, device: str) -> int | None:
        """Bytes that new tensors can take now, memory cached by the allocator included; None: unknown.

        May create the device's context: called only for a device that is about to be used.
        """
        ...

    def footprint_bytes(self, device: str, sizes: Sequence[int]) -> int:
        """Bytes that the device's allocator would take for new tensors of these sizes (rounding included)."""
        ...

    def synchronize(self, device: str) -> None:
        """Wait until the device has done all its work."""
        ...

    def clock_seconds(self, device: str) -> float:
        """Seconds on the clock by which the calling thread times its work on this device; read before and after on the
        same thread.

        A virtual GPU's is simulated and counts that thread's work only; elsewhere it is the wall (`time.perf_counter`).
        """
        ...

    def allocator_sample(self, device: str, time_unix_s: float) -> AllocatorSample | None:
        """The allocator's numbers; None where there is no allocator to ask, or no context yet."""
        ...

    def device_sample(self, device: str, time_unix_s: float) -> DeviceSample | None:
        """A full reading, only from devices that nothing outside the engine can watch (virtual GPUs, torch backends
        without NVML)."""
        ...

    def empty_cache(self, device: str) -> None:
        """Give cached memory back to the device."""
        ...

    def readings(self, device: str, time_unix_s: float) -> tuple[AllocatorSample | None, DeviceSample | None]:
        """`allocator_sample` and `device_sample`, of one moment where both are there."""
        ...

    def used_bytes(self, device: str) -> int | None:
        """What all processes together use of the device; None where only the driver knows (NVML), or before there is a
        context."""
        ...

    def record(self, on: bool) -> tuple[str, ...]:
        """Let allocators keep where each new block was asked for, or stop that; returns the devices that can."""
        ...

    def snapshot(self, device: str) -> dict[str, Any]:
        """The allocator's blocks as `torch.cuda.memory._snapshot()` has them; `Unavailable` where there is nothing to
        look at."""
        ...


class DeviceRegistry:
    """All devices of the engine: finds the backend that answers for a device. Backends are asked again each time:
    devices may join."""

    def __init__(self, backends: Sequence[Backend], visible_devices: str | None = None) -> None:
        self.backends = tuple(backends)
        self.visible_devices = visible_devices
        """The CUDA_VISIBLE_DEVICES that was chosen for this process; None: as inherited."""

    def add(self, backend: Backend) -> None:
        """Take in another family of devices, unless it is there already."""
        if backend not in self.backends:
            self.backends = (*self.backends, backend)

    def infos(self) -> tuple[DeviceInfo, ...]:
        """Every device of every backend, in the backends' order."""
        return tuple(info for backend in self.backends for info in backend.devices())

    def problems(self) -> tuple[Problem, ...]:
        """Every backend's problems."""
        return tuple(problem for backend in self.backends for problem in backend.problems())

    def usable(self) -> list[str]:
        """Ids of the devices that tensors can be put on."""
        return [info.id for info in self.infos() if info.usable]

    def info(self, device: str) -> DeviceInfo:
        """The facts about one device."""
        return next(info for info in self.infos() if info.id == device)

    def record(self, on: bool) -> tuple[str, ...]:
        """Let every allocator record, or stop that; returns the devices that can."""
        return tuple(device for backend in self.backends for device in backend.record(on))

    def choose(self, text: str) -> str:
        """The canonical id for what a person typed; `BadInput` when there is no such usable device."""
        return choose_device(text, self.usable())

    def backend(self, device: str) -> Backend:
        """The backend that answers for a device id."""
        for backend in self.backends:
            if any(info.id == device for info in backend.devices()):
                return backend
        raise KeyError(device)
