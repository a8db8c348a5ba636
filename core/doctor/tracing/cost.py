"""Seconds that a copy between devices takes: estimated for virtual GPUs, unknown for real ones. Any
thread."""

from __future__ import annotations

import torch

from devexplorer.core.virtual.device.accounting import KIND, gpu_of
from devexplorer.core.virtual.device.cost import transfer_seconds


def copy_seconds(source: torch.device, destination: torch.device, nbytes: int) -> float | None:
    """Simulated seconds; None where a real card takes part."""
    ends = (source, destination)
    if not any(device.type == KIND for device in ends) or any(device.type not in (KIND, "cpu") for device in ends):
        return None
    here, there = (gpu_of(device).profile if device.type == KIND else None for device in ends)
    return transfer_seconds(here, there, nbytes)


def simulated(*devices: torch.device) -> bool:
    """Whether a virtual GPU is among them."""
    return any(device.type == KIND for device in devices)
