"""Charges storages to virtual GPUs: finds the GPU that torch names, and counts a storage there while it is alive. Any
thread."""

from __future__ import annotations

from typing import Any

import torch

from devexplorer.core.virtual.device.current import KIND as KIND
from devexplorer.core.virtual.device.current import current_index, gpus
from devexplorer.core.virtual.device.machine import VirtualGpu
from devexplorer.core.virtual.device.memory import Block, OutOfDeviceMemoryError


def gpu_of(device: torch.device) -> VirtualGpu:
    """The device that torch names (`vgpu` without a number is the current one); `RuntimeError` as CUDA words it when
    there is none."""
    there = gpus()
    index = current_index() if device.index is None else device.index
    if index < len(there):
        return there[index]
    words = (
        f"there is {there[0].id}"
        if len(there) == 1
        else f"there are vgpu:0 to vgpu:{len(there) - 1}"
        if there
        else "there is none yet"
    )
    raise RuntimeError(
        f"vgpu error: invalid device ordinal. There is no {KIND}:{index} here, {words}; more can be added at any time."
    )


def current_gpu() -> VirtualGpu:
    """The current device of the calling thread."""
    return gpu_of(torch.device(KIND))


class StorageBlock:
    """Attached to a storage; frees the block when the storage is deleted."""

    __slots__ = ("block", "gpu", "nbytes")

    def __init__(self, gpu: VirtualGpu, block: Block, nbytes: int) -> None:
        self.gpu = gpu
        self.block = block
        self.nbytes = nbytes

    def __del__(self) -> None:
        self.gpu.memory.free(self.block)


def block_address(storage: Any) -> int | None:
    """Start address of a storage in virtual GPU memory; None when it has no block there."""
    held = getattr(storage, "_vgpu", None)
    return held.block.address or None if held is not None else None


def count_storage(storage: Any, gpu: VirtualGpu) -> None:
    """Allocate memory for a storage that is not counted yet, or that has grown."""
    nbytes = storage.nbytes()
    held = getattr(storage, "_vgpu", None)
    if held is None or held.nbytes != nbytes:
        storage._vgpu = StorageBlock(gpu, allocate_block(gpu, nbytes), nbytes)


def allocate_block(gpu: VirtualGpu, nbytes: int) -> Block:
    """Allocate a block; raises `torch.OutOfMemoryError` when the device is full."""
    try:
        return gpu.allocate(nbytes)
    except OutOfDeviceMemoryError as full:
        message = str(full)
    raise torch.OutOfMemoryError(message)
