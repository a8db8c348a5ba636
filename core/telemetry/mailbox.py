"""From any thread to the main thread: events wait here until the heartbeat takes them all. No Qt, no torch.

Bounded where it may be: readings that a newer one replaces are dropped, oldest first, and counted. Reports, results and
failures are never dropped.
"""

from __future__ import annotations

import threading
from collections import deque
from heapq import merge
from operator import itemgetter

from devexplorer.core.records.benchmark import BenchPoint
from devexplorer.core.records.devices import AllocatorSample, DeviceSample
from devexplorer.core.records.messages import Event

DROPPABLE = (DeviceSample, AllocatorSample, BenchPoint)
"""Events of a stream, of which one lost is a point less in a curve."""


class Mailbox:
    """`put` on any thread, `drain` on the main thread; what remains comes out in the order in which it was put.

    `limit` is how many droppable events wait at most.
    """

    def __init__(self, limit: int = 4096) -> None:
        if limit < 1:
            raise ValueError(f"a mailbox holds at least one event, not {limit}")
        self._limit = limit
        self._lock = threading.Lock()
        self._number = 0
        self._kept: list[tuple[int, Event]] = []
        self._stream: deque[tuple[int, Event]] = deque(maxlen=limit)
        self._dropped = 0

    @property
    def dropped(self) -> int:
        """Droppable events lost so far because nobody drained in time."""
        return self._dropped

    def put(self, event: Event) -> None:
        """Leave an event; never waits for the reader."""
        with self._lock:
            self._number += 1
            if isinstance(event, DROPPABLE):
                self._dropped += len(self._stream) == self._limit
                self._stream.append((self._number, event))  # a full deque lets go of its oldest
            else:
                self._kept.append((self._number, event))

    def drain(self) -> list[Event]:
        """Take everything that waits."""
        with self._lock:
            kept, stream = self._kept, self._stream
            if not kept and not stream:
                return []
            self._kept, self._stream = [], deque(maxlen=self._limit)
        return [event for _, event in merge(kept, stream, key=itemgetter(0))]
