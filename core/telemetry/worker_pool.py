"""Threads that do jobs of one queue, no more of them than the jobs need. No Qt, no torch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from devexplorer.core.devices.time_limit import ABANDONED

Job = Callable[[], None]


class WorkerPool:
    """`add` jobs, then `call` as many hands as shall work on them; a hand that finds nothing more to do waits to be
    called again.

    One hand for several quick jobs costs a tenth of one for each: they would wake each other for the interpreter's lock
    at every call into the driver. Hands wait without timers. A job that hangs holds its own hand only; one that raises
    ends it (the interpreter's hook says so), and another takes its place; so does one that was left behind
    (`time_limit`), when its call comes back.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._jobs: deque[Job] = deque()
        self._idle: list[_Worker] = []
        self._hands: list[_Worker] = []
        self._lock = threading.Lock()
        self._ending = False

    @property
    def waiting(self) -> int:
        """Jobs that no hand has begun."""
        return len(self._jobs)

    @property
    def idle(self) -> int:
        """Hands that wait to be called."""
        return len(self._idle)

    def add(self, jobs: Iterable[Job]) -> None:
        """Put jobs at the end of the queue. Any thread, also a hand."""
        self._jobs.extend(jobs)

    def call(self, hands: int) -> None:
        """Let so many hands more work on the queue: those that wait first, then new ones."""
        for _ in range(hands):
            with self._lock:
                if self._ending:
                    return
                if self._idle:
                    hand = self._idle.pop()  # the last that worked: one does all the work as long as that is enough
                else:
                    self._hands = [hand for hand in self._hands if hand.thread.is_alive()]
                    hand = _Worker(f"{self._name}-{len(self._hands) + 1}", self._work)
                    self._hands.append(hand)
                    hand.thread.start()
            hand.go.put(True)

    def end(self, deadline_s: float) -> bool:
        """Begin no job any more, and wait for the hands so many seconds at most; whether all have ended."""
        with self._lock:
            self._ending = True
            hands = list(self._hands)
        self._jobs.clear()
        for hand in hands:
            hand.go.put(False)
        until = time.monotonic() + deadline_s
        for hand in hands:
            if hand.thread.name != ABANDONED:  # that one is inside a call that may never come back
                hand.thread.join(max(until - time.monotonic(), 0))
        return not any(hand.thread.is_alive() for hand in hands)

    def _work(self, hand: _Worker) -> None:
        while hand.go.get():  # no timeout: each would be a timer
            while not self._ending:
                try:
                    job = self._jobs.popleft()
                except IndexError:
                    break
                job()
                if hand.thread.name == ABANDONED:
                    return  # another hand has taken its place
            with self._lock:
                self._idle.append(hand)


class _Worker:
    """A thread and the line on which it is called."""

    def __init__(self, name: str, work: Callable[[_Worker], None]) -> None:
        self.go: SimpleQueue[bool] = SimpleQueue()
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
