"""Which virtual GPU a CUDA device means: `cuda:N` is `vgpu:N`, `cuda` is the current card of the calling thread. Any
thread."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.machine import VirtualGpu


class _CurrentCard(threading.local):
    index = 0


class Cards:
    """The cards that the examined code sees. `missing` is called with the name of one that is not there, before CUDA's
    error is raised."""

    def __init__(self, count: int, missing: Callable[[str], None]) -> None:
        self.count = count
        self._missing = missing
        self._current = _CurrentCard()
        self._virtual = tuple(torch.device(KIND, index) for index in range(count))
        self._cuda = tuple(torch.device("cuda", index) for index in range(count))

    @property
    def current(self) -> int:
        """The ordinal that `cuda` without a number means on this thread."""
        return self._current.index

    @current.setter
    def current(self, index: int) -> None:
        self._current.index = self.ordinal(index)

    def ordinal(self, device: Any = None) -> int:
        """The number of a device given in any of torch's ways; raises CUDA's error for a card that is not there."""
        if device is None:
            index: int | None = None
        elif isinstance(device, int):
            index = device
        else:
            where = torch.device(device)
            if where.type not in ("cuda", KIND):
                raise ValueError(f"Expected a cuda device, but got: {where}")
            index = where.index
        if index is None or index == -1:
            return self._current.index
        if not 0 <= index < self.count:
            self._missing(f"cuda:{index}")
            raise torch.AcceleratorError(
                f"CUDA error: invalid device ordinal\nThere is no cuda:{index} here: "
                + (f"the cards are cuda:0 to cuda:{self.count - 1}" if self.count > 1 else "the one card is cuda:0")
            )
        return index

    def virtual(self, device: Any) -> Any:
        """The virtual GPU that a device argument means; anything else as it is."""
        if isinstance(device, torch.device):
            is_card = device.type == "cuda"
        elif isinstance(device, str):
            is_card = device.startswith("cuda")
        else:
            is_card = isinstance(device, int) and not isinstance(device, bool)
        return self._virtual[self.ordinal(device)] if is_card else device

    def cuda(self, index: int) -> torch.device:
        """What code of the model sees instead of `vgpu:index`."""
        return self._cuda[index] if index < self.count else torch.device("cuda", index)

    def spoken(self, device: torch.device) -> torch.device:
        """A device as code of the model knows it."""
        return self.cuda(device.index or 0) if device.type == KIND else device

    def gpu(self, device: Any = None) -> VirtualGpu:
        """The virtual GPU behind a device given in any of torch's ways; None: the current one."""
        return gpu_of(self._virtual[self.ordinal(device)])
