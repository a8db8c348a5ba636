"""What the checks of specifications have in common: devices that exist, one kind of clock, memory that is free. No
torch, no thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from devexplorer.core.base import DoesNotFit, Findings, bytes_text
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.virtual.device.machine import VirtualMachine


class Checks(Findings):
    """Ask what a specification needs, then `demand_none`."""

    def __init__(self, registry: DeviceRegistry) -> None:
        super().__init__()
        self._registry = registry

    def devices(self, names: Sequence[str]) -> tuple[str, ...]:
        """Canonical ids of those that exist, in their order."""
        # a default for a lambda
        chosen = [self.checked(lambda name=name: self._registry.choose(name)) for name in names]  # type: ignore[misc]
        return tuple(device for device in chosen if device is not None)

    def one_clock(self, devices: Sequence[str]) -> None:
        """Refuse a mix of real and virtual accelerators."""
        self.add(*mixed_clocks({device: self._registry.info(device).simulated for device in devices}))

    def fits(self, device: str, nbytes: int, what: str, *, values: bool = False) -> None:
        """Note a `DoesNotFit` when new tensors of so many bytes do not fit; `what` begins its message ("copies of 1 GiB
        need")."""
        free = free_bytes(self._registry, device, values=values)
        if free is not None and nbytes > free:
            message = f"{what} {bytes_text(nbytes)} on {device}, and {bytes_text(free)} are free; take less"
            self._errors.append(DoesNotFit(message, device=device, needed_bytes=nbytes, free_bytes=free))


def mixed_clocks(simulated: Mapping[str, bool]) -> list[str]:
    """What is wrong with measuring these devices in one run (device -> whether it is simulated): seconds and simulated
    seconds cannot be compared."""
    virtual = [device for device, is_simulated in simulated.items() if is_simulated]
    real = [device for device in simulated if device not in virtual]
    if not virtual or not real:
        return []
    are = "is" if len(real) == 1 else "are"
    clocks = "their clocks cannot be compared"
    return [f"{', '.join(real)} {are} real and {', '.join(virtual)} simulated: {clocks}; choose devices of one kind"]


def free_bytes(registry: DeviceRegistry, device: str, *, values: bool = False) -> int | None:
    """What new tensors can take; None where that is unknown.

    Without `values` a virtual GPU's tensors take nothing of the host's memory.
    """
    backend = registry.backend(device)
    if isinstance(backend, VirtualMachine) and not values:
        return backend.device_free_bytes(device)
    return backend.free_bytes(device)
