"""Whose books a storage is in: finds the virtual GPU that torch names, and counts storages there for as long as they live. Any thread."""

from __future__ import annotations

from typing import Any

import torch

from devexplorer.core.virtual.machine import VirtualGpu, VirtualMachine
from devexplorer.core.virtual.memory import Block, OutOfDeviceMemoryError

KIND = "vgpu"
"""The device type's name in torch."""

_machine: VirtualMachine | None = None


def serve(machine: VirtualMachine) -> None:
    """Let the tensors of this process live on that machine's devices: one for all, as torch's dispatcher is one for all."""
    global _machine
    _machine = machine


def gpu_of(device: torch.device) -> VirtualGpu:
    """The device that torch names (`vgpu` without a number is the first); `RuntimeError` as CUDA words it when there is none."""
    gpus = _machine.gpus if _machine is not None else ()
    index = device.index or 0
    if index < len(gpus):
        return gpus[index]
    there = f"there is {gpus[0].id}" if len(gpus) == 1 else f"there are vgpu:0 to vgpu:{len(gpus) - 1}" if gpus else "there is none yet"
    raise RuntimeError(f"vgpu error: invalid device ordinal. There is no {KIND}:{index} here, {there}; more can be added at any time.")


class Held:
    """Rides on a storage and gives its block back when the storage dies."""

    __slots__ = ("block", "gpu", "nbytes")

    def __init__(self, gpu: VirtualGpu, block: Block, nbytes: int) -> None:
        self.gpu = gpu
        self.block = block
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.gpu.memory.free(self.block)


def address(storage: Any) -> int | None:
    """Where a storage begins in its virtual GPU's memory; None when it takes none there."""
    held = getattr(storage, "_vgpu", None)
    return held.block.address or None if held is not None else None


def count(storage: Any, gpu: VirtualGpu) -> None:
    """Take memory for a storage that is not counted yet, or that grew."""
    nbytes = storage.nbytes()
    held = getattr(storage, "_vgpu", None)
    if held is None or held.nbytes != nbytes:
        storage._vgpu = Held(gpu, take(gpu, nbytes), nbytes)


def take(gpu: VirtualGpu, nbytes: int) -> Block:
    """Allocate, with torch's own exception when the device is full."""
    try:
        return gpu.allocate(nbytes)
    except OutOfDeviceMemoryError as full:
        message = str(full)
    raise torch.OutOfMemoryError(message)
