"""The devices of an examination: which there are, virtual ones made for it, and the one that is meant. The doctor's
process."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base import Unavailable
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.nvml.library import free_bytes
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import DeviceInfo, DoctorRequest
from devexplorer.core.virtual.backend import add_virtual_gpus, installed

DEFAULT = "2x Tesla T4"
"""Virtual GPUs where there is no other GPU: two, so that code that names the second one works as well."""


class Devices(NamedTuple):
    """What an examination has to work with."""

    chosen: DeviceInfo
    """Where the model goes."""
    cards: int
    """How many cards code that asks for CUDA sees."""
    imitated: bool
    """Whether those are virtual GPUs, rather than CUDA's own."""


def chosen(request: DoctorRequest) -> Devices:
    """Make the virtual GPUs that are wanted and choose the device. Raises `BadInput`, `Unavailable`."""
    virtual = request.wants_virtual
    gpus = [device for device in _registry().usable() if device != "cpu"]
    if request.virtual or not [device for device in gpus if device.startswith("vgpu") or not virtual]:
        try:
            add_virtual_gpus(request.virtual or DEFAULT, request.visible)
        except Unavailable as error:
            if virtual:
                raise
            if not request.device.strip():
                raise Unavailable(f"{error}; --device cpu examines it on the CPU") from error
    return picked(request.device)


def picked(device: str) -> Devices:
    """The device of that name among those there are; empty: the first GPU that is not virtual, or else `vgpu:0`. Raises
    `BadInput`, `DoesNotFit`."""
    registry = _registry()
    usable = registry.usable()
    gpus = [item for item in usable if item != "cpu"]
    first = next((item for item in gpus if not item.startswith("vgpu")), "vgpu:0")
    info = registry.info(registry.choose(device or first))
    registry.backend(info.id).free_bytes(info.id)  # no room for a CUDA context is not the model's fault
    real = sum(item.startswith("cuda") for item in usable)
    imitated = info.simulated or not real
    return Devices(info, sum(item.startswith("vgpu") for item in usable) if imitated else real, imitated)


def _registry() -> DeviceRegistry:
    real, machine = TorchBackend(free_of=free_bytes), installed()
    return DeviceRegistry([real] if machine is None else [real, machine])
