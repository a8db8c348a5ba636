"""Queue of events from any thread to the main thread, emptied by the heartbeat. No Qt, no torch.

Readings are bounded: the oldest are dropped and counted. Reports, results and failures are never dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from heapq import merge
from operator import itemgetter

from devexplorer.core.records import AllocatorSample, BenchPoint, DeviceSample, Event

DROPPABLE = (DeviceSample, AllocatorSample, BenchPoint)
"""Readings: losing one costs a point of a curve."""


class Mailbox:
    """`put` on any thread, `drain` on the main thread, in order; at most `limit` droppable events wait."""

    def __init__(self, limit: int = 4096) -> None:
        if limit < 1:
            raise ValueError(f"a mailbox holds at least one event, not {limit}")
        self._limit = limit
        self._lock = threading.Lock()
        self._number = 0
        self._kept: list[tuple[int, Event]] = []
        self._stream: deque[tuple[int, Event]] = deque(maxlen=limit)
        self.dropped = 0
        """Number of readings dropped so far."""

    def put(self, event: Event) -> None:
        """Add an event; never blocks."""
        with self._lock:
            self._number += 1
            if isinstance(event, DROPPABLE):
                self.dropped += len(self._stream) == self._limit
                self._stream.append((self._number, event))  # a full deque lets go of its oldest
            else:
                self._kept.append((self._number, event))

    def drain(self) -> list[Event]:
        """Take all waiting events."""
        with self._lock:
            kept, stream = self._kept, self._stream
            if not kept and not stream:
                return []
            self._kept, self._stream = [], deque(maxlen=self._limit)
        return [event for _, event in merge(kept, stream, key=itemgetter(0))]
