"""Whether new tensors fit on a device: asked before anything is allocated. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import nn

from devexplorer.core.base import DoesNotFit, bytes_text
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.models import cast_of, is_uninitialised, parameters_and_buffers
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.virtual.device.memory import worst_case_bytes


def check_sizes(
    sizes: Sequence[int], device: str, registry: DeviceRegistry, what: str, *, freed_bytes: int = 0
) -> None:
    """Raise `DoesNotFit`, with the bytes, when new tensors of these sizes would not fit; `what` begins the message.
    `freed_bytes` will be free there before they are made.

    What a virtual GPU holds is in this machine's memory as well. Where that is what runs short, the error says so, and
    names `cpu`.
    """
    backend = registry.backend(device)
    free = backend.free_bytes(device)
    free = None if free is None else free + freed_bytes
    impossible = sum(sizes) >= 2**63  # PyTorch itself counts bytes in 64 bits
    if free is not None and worst_case_bytes(sizes) <= free:
        return
    needed = sum(sizes) if impossible else backend.footprint_bytes(device, sizes)
    if not impossible and (free is None or needed <= free):
        return
    room = "" if free is None else f"{bytes_text(free)} are free on {device}"
    short = device
    if isinstance(backend, VirtualMachine):
        room = backend.shortage(device, needed) or room
        short = "cpu" if needed <= backend.device_free_bytes(device) else device
    message = f"{what} needs {bytes_text(needed)}{'; ' if room else ''}{room}"
    raise DoesNotFit(message, device=short, needed_bytes=needed, free_bytes=free or 0)


Sizes = Sequence[tuple[torch.dtype, int]]
"""Dtype and number of elements of each tensor."""


def model_sizes(model: nn.Module) -> Sizes:
    """Those of a model's tensors."""
    tensors = [tensor for tensor in parameters_and_buffers(model) if not is_uninitialised(tensor)]
    return [(tensor.dtype, tensor.numel()) for tensor in tensors]


def check_new_model(sizes: Sizes, device: str, dtype: torch.dtype | None, registry: DeviceRegistry) -> None:
    """Raise `DoesNotFit` when a new model would not fit: on the CPU, where it is built, or on its device in `dtype`."""
    for where, cast in {("cpu", None), (device, dtype)}:
        check_sizes([count * cast_of(own, cast).itemsize for own, count in sizes], where, registry, "this model")
