"""Streams and timing events of an accelerator: CUDA's own, torch's generic ones for any other. On the thread that runs
the benchmark.

`torch.Stream`, `torch.Event` and `torch.accelerator` work on every backend that follows PyTorch's own
reference backend, also where the device module has next to nothing. They serve torch's current accelerator only.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import Any

import torch

from devexplorer.core.base import Unavailable, first_line
from devexplorer.core.devices import accelerator


class CudaStreams:
    """`torch.cuda`."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)

    def here(self) -> AbstractContextManager[Any]:
        """Makes the device this thread's current one: `event().record()` is then about its current stream."""
        return torch.cuda.device(self._device)

    def event(self) -> Any:
        """A new event that keeps its time."""
        return torch.cuda.Event(enable_timing=True)

    def stream(self) -> Any:
        """A new stream."""
        return torch.cuda.Stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """Work of this thread goes to that stream."""
        return torch.cuda.stream(stream)

    def wait(self) -> None:
        """Until the device has done all its work."""
        torch.cuda.synchronize(self._device)


class AcceleratorStreams:
    """torch's generic interface, of the accelerator that it is about. `Unavailable` where that has no events that keep
    their time."""

    def __init__(self, device: str) -> None:
        self._device = torch.device(device)
        current = accelerator.current(torch)
        if current is None or current.type != self._device.type:
            raise Unavailable(f"torch's generic streams and events are about {current}, not about {device}")
        try:
            with self.here():
                first, last = self.event(), self.event()
                first.record()
                last.record()
                self.wait()
                first.elapsed_time(last)
        except Exception as error:  # a third-party package: it may lack anything and raise anything
            raise Unavailable(f"events on {device} keep no time: {first_line(error)}") from error

    def here(self) -> AbstractContextManager[Any]:
        """See `CudaStreams`."""
        return torch.accelerator.device_index(self._device.index or 0)

    def event(self) -> Any:
        """See `CudaStreams`."""
        return torch.Event(self._device, enable_timing=True)

    def stream(self) -> Any:
        """See `CudaStreams`."""
        return torch.Stream(self._device)

    def on(self, stream: Any) -> AbstractContextManager[Any]:
        """See `CudaStreams`."""
        return stream  # type: ignore[no-any-return]  # a stream is its own context

    def wait(self) -> None:
        """See `CudaStreams`."""
        torch.accelerator.synchronize(self._device.index or 0)


Streams = CudaStreams | AcceleratorStreams
"""What timing asks of one device."""


def streams_of(device: str) -> Streams:
    """Raises `Unavailable` where an accelerator has none."""
    return CudaStreams(device) if device.startswith("cuda") else AcceleratorStreams(device)
