"""`torch.Generator(device="vgpu:1")`: reports a virtual GPU as its device and draws the CPU's random numbers. Any
thread."""

from __future__ import annotations

from typing import Any, cast

import torch

from devexplorer.core.virtual.device.accounting import KIND
from devexplorer.core.virtual.device.streams import gpu_named

_CGenerator: Any = torch.Generator


class VirtualGenerator(_CGenerator):  # type: ignore[misc]  # torch's type is final only to mypy
    """A generator of the CPU: a seed gives the same numbers on every device."""

    _index: int

    def __new__(cls, device: Any = KIND) -> VirtualGenerator:
        """Of the device that is named."""
        gpu = gpu_named(device)
        made = super().__new__(cls)
        made._index = gpu.index
        return cast(VirtualGenerator, made)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Everything is done in `__new__`."""

    @property
    def device(self) -> torch.device:
        """The virtual GPU."""
        return torch.device(KIND, self._index)

    def clone_state(self) -> VirtualGenerator:
        """Another generator that goes on from the same state."""
        return _restored(self._index, self.get_state())

    def graphsafe_get_state(self) -> VirtualGenerator:
        """As `clone_state`."""
        return self.clone_state()

    def __reduce__(self) -> Any:
        return _restored, (self._index, self.get_state())


def _restored(index: int, state: torch.Tensor) -> VirtualGenerator:
    made = VirtualGenerator(torch.device(KIND, index))
    made.set_state(state)
    return made
