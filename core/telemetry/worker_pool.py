"""A pool of threads for one queue of jobs, with no more threads than needed. No Qt, no torch."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterable
from queue import SimpleQueue

from devexplorer.core.devices.time_limit import ABANDONED

Job = Callable[[], None]


class WorkerPool:
    """`add` jobs, then `call` as many workers as shall do them; idle workers wait to be called again.

    One worker for several quick jobs costs a tenth of one worker each: they would compete for the GIL at every driver
    call. Workers wait without timers. A hanging job holds only its own worker; a worker ends when its job raises (the
    thread hook reports it) or when an abandoned call returns (`time_limit`), and is then replaced.
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
        """Number of jobs that have not begun."""
        return len(self._jobs)

    @property
    def idle(self) -> int:
        """Number of idle workers."""
        return len(self._idle)

    def add(self, jobs: Iterable[Job]) -> None:
        """Append jobs to the queue. Any thread, including workers."""
        self._jobs.extend(jobs)

    def call(self, hands: int) -> None:
        """Let that many more workers process the queue: idle ones first, then new ones."""
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
        """Start no more jobs, and wait for the workers until the deadline; returns whether all have ended."""
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
    """A thread and the queue that wakes it."""

    def __init__(self, name: str, work: Callable[[_Worker], None]) -> None:
        self.go: SimpleQueue[bool] = SimpleQueue()
        self.thread = threading.Thread(target=work, args=(self,), name=name, daemon=True)
