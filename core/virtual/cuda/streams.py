"""Streams and events of virtual GPUs, on which everything is done when it returns. Any thread; times are the simulated
clock's."""

from __future__ import annotations

import threading
from itertools import count
from typing import Any

import torch

from devexplorer.core.virtual.cuda.cards import Cards
from devexplorer.core.virtual.device.streams import InOrder, Timed


class _Current(threading.local):
    def __init__(self) -> None:
        self.streams: dict[int, Any] = {}


def kinds(cards: Cards) -> dict[str, Any]:
    """`torch.cuda.Stream`, `Event` and what goes with them, for these cards."""
    numbers = count(1)
    current = _Current()

    class Stream(InOrder):
        """Orders work of a card that is done in order anyway."""

        def __init__(self, device: Any = None, priority: int = 0, **options: Any) -> None:
            self.device_index = cards.ordinal(device)
            self.device = cards.cuda(self.device_index)
            self.priority = priority
            self.stream_id = next(numbers)
            self.cuda_stream = self.stream_id

        def record_event(self, event: Any = None) -> Any:
            """An event that has happened."""
            event = Event() if event is None else event
            event.record(self)
            return event

        def __enter__(self) -> Any:
            return StreamContext(self).__enter__()

        def __exit__(self, *error: Any) -> None:
            current.streams.pop(self.device_index, None)

    class StreamContext:
        """`torch.cuda.stream(...)`: its card and stream are the current ones within."""

        def __init__(self, stream: Any) -> None:
            self.stream = stream
            self._before: tuple[int, Any] = (0, None)

        def __enter__(self) -> Any:
            if self.stream is not None:
                index = self.stream.device_index
                self._before = cards.current, current.streams.get(index)
                cards.current = index
                current.streams[index] = self.stream
            return self.stream

        def __exit__(self, *_: object) -> None:
            if self.stream is not None:
                cards.current = self._before[0]
                current.streams[self.stream.device_index] = self._before[1]

    class Event(Timed):
        """A moment on the simulated clock of a card."""

        def __init__(
            self,
            enable_timing: bool = False,
            blocking: bool = False,
            interprocess: bool = False,
            external: bool = False,
        ) -> None:
            self._timed, self._gpu, self._seconds = enable_timing, None, None
            self.device: torch.device | None = None

        def record(self, stream: Any = None) -> None:
            """Note the time."""
            index = cards.current if stream is None else stream.device_index
            self.device, self._gpu = cards.cuda(index), cards.gpu(index)
            self._seconds = self._gpu.clock.thread_seconds

    def current_stream(device: Any = None) -> Any:
        index = cards.ordinal(device)
        return current.streams.get(index) or default_stream(index)

    default: dict[int, Any] = {}

    def default_stream(device: Any = None) -> Any:
        index = cards.ordinal(device)
        if index not in default:
            default[index] = Stream(index)
            default[index].stream_id = default[index].cuda_stream = 0
        return default[index]

    def set_stream(stream: Any) -> None:
        if stream is not None:
            cards.current = stream.device_index
            current.streams[stream.device_index] = stream

    return {
        "Stream": Stream,
        "Event": Event,
        "StreamContext": StreamContext,
        "stream": StreamContext,
        "current_stream": current_stream,
        "default_stream": default_stream,
        "set_stream": set_stream,
    }
