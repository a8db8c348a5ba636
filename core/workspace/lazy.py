"""Tells an uninitialised parameter where it will be created. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

PlaceLazy = Callable[[Tensor, torch.device, torch.dtype], None]
"""How an uninitialised parameter is told its device and dtype."""


def place_uninitialised(tensor: Tensor, device: torch.device, dtype: torch.dtype) -> None:
    """Give a lazy parameter or buffer a new device and dtype; it stays the same object, still without a shape."""
    tensor.data = tensor.data.to(device=device, dtype=dtype)
