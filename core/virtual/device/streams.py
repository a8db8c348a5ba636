"""Streams and events of virtual GPUs. Any thread.

A virtual GPU does its work in the order in which it is given, whatever the stream, and is done when the call returns.
So nothing ever has to be waited for; an event notes the device's simulated clock, and the time between two of them is
what the card would have been busy.
"""

from __future__ import annotations

import itertools
from typing import Any, NoReturn, cast

import torch

from devexplorer.core.virtual.device.accounting import KIND, current_gpu, gpu_of, set_current, streams
from devexplorer.core.virtual.device.machine import VirtualGpu

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
