"""Which virtual GPU torch means, the current device and stream of the calling thread, streams and events, and which
storages each GPU is charged for. Any thread.

torch's device guard for Python backends knows one device, so that `x.to("vgpu")` means `vgpu:0` in C++. While another
one is current, a `TorchFunctionMode` writes its number into calls that name `vgpu` without one, as
`torch.set_default_device` does with its device.

A virtual GPU does its work in the order in which it is given, whatever the stream, and is done when the call returns.
So nothing ever has to be waited for; an event notes the device's simulated clock, and the time between two of them is
what the card would have been busy.
"""

from __future__ import annotations

import itertools
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NoReturn, cast

import torch
from torch.overrides import TorchFunctionMode
from torch.utils import _device

from devexplorer.core.base.full_devices import say_full
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
    if gpu.spoken != gpu.id:  # backward and the loading of files raise it below what words other errors
        message = message.replace(KIND, "CUDA", 1)
    say_full(gpu, nbytes, message)
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


PRIVATE_USE: int = torch._C._autograd.DeviceType.PrivateUse1.value
"""What C++ calls the type of such devices."""
_numbers = itertools.count(1)
_CStream: Any = torch.Stream
_CEvent: Any = torch.Event


def gpu_named(device: Any = None) -> VirtualGpu:
    """The virtual GPU that a name, a number, a `torch.device` or None (the current one) means."""
    if device is None:
        return current_gpu()
    return gpu_of(torch.device(KIND, device) if isinstance(device, int) else torch.device(device))


class InOrder:
    """Stream methods for a device that finishes all work before the call returns."""

    def synchronize(self) -> None:
        """Everything is done."""

    def query(self) -> bool:
        """Everything is done."""
        return True

    def is_capturing(self) -> bool:
        """Nothing is captured: virtual GPUs have no graphs."""
        return False

    def wait_event(self, event: Any) -> None:
        """There is nothing to wait for."""

    def wait_stream(self, stream: Any) -> None:
        """There is nothing to wait for."""


class Timed:
    """Event methods for such a device: an event is a moment on its simulated clock."""

    _timed: bool
    _gpu: VirtualGpu | None
    _seconds: float | None

    def wait(self, stream: Any = None) -> None:
        """There is nothing to wait for."""

    def synchronize(self) -> None:
        """There is nothing to wait for."""

    def query(self) -> bool:
        """It has happened."""
        return True

    def elapsed_time(self, end_event: Any) -> float:
        """Simulated milliseconds that the device was busy between this event and another one."""
        if not (self._timed and end_event._timed):
            raise ValueError("Both events must be created with argument 'enable_timing=True'.")
        if self._seconds is None or end_event._seconds is None:
            raise ValueError("Both events must be recorded before calculating elapsed time.")
        if self._gpu is not end_event._gpu:
            own, other = self.device, end_event.device  # type: ignore[attr-defined]
            raise ValueError(f"the events are on {own} and {other}, whose clocks are not comparable")
        return 1000.0 * float(end_event._seconds - self._seconds)


class Stream(InOrder, _CStream):  # type: ignore[misc]  # torch publishes no types for it
    """`torch.vgpu.Stream(device, priority)`; work is done in order whatever the stream."""

    _gpu: VirtualGpu
    _before: list[tuple[VirtualGpu, Any]]

    def __new__(
        cls,
        device: Any = None,
        priority: int = 0,
        *,
        stream_id: int | None = None,
        device_index: int | None = None,
        device_type: int = PRIVATE_USE,
    ) -> Stream:
        """A new stream, or with `stream_id` the one that already has that number."""
        gpu = gpu_named(device if device_index is None else device_index)
        number = next(_numbers) if stream_id is None else stream_id
        made = super().__new__(cls, stream_id=number, device_index=gpu.index, device_type=PRIVATE_USE)
        made._gpu, made._before = gpu, []
        return cast(Stream, made)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Everything is done in `__new__`."""

    def record_event(self, event: Any = None) -> Any:
        """The event, or a new one, with the device's time of this moment."""
        event = Event(device=self.device) if event is None else event
        event.record(self)
        return event

    @property
    def native_handle(self) -> NoReturn:
        """Not available: there is no driver."""
        raise RuntimeError("streams of virtual GPUs have no native handle, as no driver is behind them")

    def __enter__(self) -> Stream:
        self._before.append((current_gpu(), streams().get(self._gpu)))
        set_current(self._gpu)
        streams()[self._gpu] = self
        return self

    def __exit__(self, *error: Any) -> None:
        gpu, stream = self._before.pop()
        set_current(gpu)
        if stream is None:
            streams().pop(self._gpu, None)
        else:
            streams()[self._gpu] = stream

    def __repr__(self) -> str:
        return f"<torch.vgpu.Stream device={self.device} stream_id={self.stream_id}>"


def default_stream(device: Any = None) -> Stream:
    """The stream that work is on when none was chosen."""
    return Stream(gpu_named(device).index, stream_id=0)


def current_stream(device: Any = None) -> Stream:
    """The chosen stream of a device on this thread, or its default one."""
    return cast(Stream, streams().get(gpu_named(device)) or default_stream(device))


def set_stream(stream: Any) -> None:
    """Let this stream and its device be the current ones of the thread."""
    if stream is not None:
        gpu = gpu_of(stream.device)
        set_current(gpu)
        streams()[gpu] = stream


class Event(Timed, _CEvent):  # type: ignore[misc]  # torch publishes no types for it
    """`torch.vgpu.Event(enable_timing=True)`: a moment on the simulated clock of a device."""

    def __new__(
        cls,
        enable_timing: bool = False,
        blocking: bool = False,
        interprocess: bool = False,
        external: bool = False,
        *,
        device: Any = None,
    ) -> Event:
        """An event that is not recorded yet; its device is that of the stream that records it first."""
        if interprocess:
            raise NotImplementedError("events of virtual GPUs cannot be shared between processes; make one in each")
        made = super().__new__(cls, torch.device(KIND, 0 if device is None else gpu_named(device).index))
        made._timed, made._gpu, made._seconds = enable_timing, None, None
        return cast(Event, made)

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        """Everything is done in `__new__`."""

    @property
    def device(self) -> torch.device | None:
        """Where it was recorded."""
        return None if self._gpu is None else torch.device(KIND, self._gpu.index)

    @property
    def event_id(self) -> int:
        """Unique per event."""
        return id(self)

    def record(self, stream: Any = None) -> None:
        """Note the time of the stream's device."""
        gpu = gpu_of((current_stream() if stream is None else stream).device)
        if self._gpu is not None and gpu is not self._gpu:
            raise RuntimeError(
                f"this event was recorded on {self._gpu.id}, so it cannot be recorded on {gpu.id}; make another one"
            )
        self._gpu, self._seconds = gpu, gpu.clock.busy_seconds

    def ipc_handle(self) -> NoReturn:
        """Refused."""
        raise NotImplementedError("events of virtual GPUs cannot be shared between processes; make one in each")

    def __repr__(self) -> str:
        return (
            f"<torch.vgpu.Event device={self.device}"
            f" {'not recorded' if self._seconds is None else f'{1000 * self._seconds:.6f} ms'}>"
        )
