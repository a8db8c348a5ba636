"""Which virtual GPU torch means, the current device and stream of the calling thread, and which storages each GPU is
charged for. Any thread.

torch's device guard for Python backends knows one device, so that `x.to("vgpu")` means `vgpu:0` in C++. While another
one is current, a `TorchFunctionMode` writes its number into calls that name `vgpu` without one, as
`torch.set_default_device` does with its device.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from devexplorer.core.virtual.device.machine import VirtualGpu, VirtualMachine
from devexplorer.core.virtual.device.memory import Block, OutOfDeviceMemoryError

KIND = "vgpu"
"""The device type's name in torch."""

_stack: Any = torch.overrides
_machine: VirtualMachine | None = None


class _AccountingLocal(threading.local):
    def __init__(self) -> None:
        self.gpu: VirtualGpu | None = None
        self.mode: _IndexMode | None = None
        self.streams: dict[VirtualGpu, Any] = {}


_thread = _AccountingLocal()


def set_machine(machine: VirtualMachine) -> None:
    """Use this machine's devices for all tensors of this process (torch has one dispatcher per process)."""
    global _machine
    _machine = machine


def gpus() -> tuple[VirtualGpu, ...]:
    """Every device, by index."""
    return _machine.gpus if _machine is not None else ()


def current_index() -> int:
    """Index that `vgpu` without a number means on this thread; 0 if the chosen device no longer exists."""
    gpu = _thread.gpu
    return gpu.index if gpu is not None and gpu in gpus() else 0


def set_current(gpu: VirtualGpu) -> None:
    """Make this the device that `vgpu` without a number means on the calling thread."""
    _thread.gpu = gpu
    if gpu.index and _thread.mode is None:
        _thread.mode = _IndexMode()
        _insert(_thread.mode)
    elif not gpu.index and _thread.mode is not None:
        _push([item for item in _popped() if item is not _thread.mode])
        _thread.mode = None


def streams() -> dict[VirtualGpu, Any]:
    """The current stream of each device on this thread, where it is not the default one."""
    return _thread.streams


class _IndexMode(TorchFunctionMode):
    """Adds the current index to `vgpu` in every call, including torch's default device."""

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func is torch.device:  # which takes the number by itself
            return func(*args, **(kwargs or {}))
        index = current_index()
        named = {name: _with_index(value, index) for name, value in (kwargs or {}).items()}
        default = _device.CURRENT_DEVICE
        if (
            default is not None
            and _lacks_index(default)
            and named.get("device") is None
            and func in _device._device_constructors()
        ):
            named["device"] = torch.device(KIND, index)
        return func(*(_with_index(value, index) for value in args), **named)


def _lacks_index(value: Any) -> bool:
    if isinstance(value, str):
        return value == KIND
    return isinstance(value, torch.device) and value.type == KIND and value.index is None


def _with_index(value: Any, index: int) -> Any:
    return torch.device(KIND, index) if _lacks_index(value) else value


def _popped() -> list[Any]:
    """The modes of this thread, the innermost first, taken off the stack."""
    return [_stack._pop_mode() for _ in range(_stack._len_torch_function_stack())]


def _push(modes: Sequence[Any]) -> None:
    for mode in reversed(modes):
        _stack._push_mode(mode)


def _insert(mode: Any) -> None:
    """Insert below all active modes, so that none of them removes it on exit; torch's default device must stay
    lowest."""
    modes = _popped()
    place = len(modes) - 1 if modes and isinstance(modes[-1], _device.DeviceContext) else len(modes)
    _push([*modes[:place], mode, *modes[place:]])


def gpu_of(device: torch.device) -> VirtualGpu:
    """The device that torch names (`vgpu` without a number is the current one); `RuntimeError` as CUDA words it when
    there is none."""
    there = gpus()
    index = current_index() if device.index is None else device.index
    if index < len(there):
        return there[index]
    if not there:
        known = "there is none yet"
    elif len(there) == 1:
        known = f"there is {there[0].id}"
    else:
        known = f"there are vgpu:0 to vgpu:{len(there) - 1}"
    raise RuntimeError(
        f"vgpu error: invalid device ordinal. There is no {KIND}:{index} here, {known}; more can be added at any time."
    )


def is_virtual(value: Any) -> bool:
    """Whether this is a tensor on a virtual GPU (a lazy parameter that waits for one included)."""
    return isinstance(value, torch.Tensor) and value.device.type == KIND


def current_gpu() -> VirtualGpu:
    """The current device of the calling thread."""
    return gpu_of(torch.device(KIND))


@dataclass(slots=True, eq=False)
class StorageBlock:
    """Attached to a storage; frees the block when the storage is deleted."""

    gpu: VirtualGpu
    block: Block
    nbytes: int
    lost: bool = False
    """Whether a result without values was written there."""

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
        return gpu.memory.allocate(nbytes)
    except OutOfDeviceMemoryError as full:
        message = str(full)
    raise torch.OutOfMemoryError(message)


def take_and_give_back(gpu: VirtualGpu, sizes: Sequence[int]) -> None:
    """What a kernel takes beside its result while it runs, all of it at once; raises as `allocate_block`."""
    blocks: list[Block] = []
    try:
        for nbytes in sizes:
            blocks.append(allocate_block(gpu, nbytes))
    finally:
        for block in blocks:
            gpu.memory.free(block)
