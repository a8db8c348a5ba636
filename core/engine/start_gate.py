"""Where a run that is warm waits until it is told to begin. `wait` on the thread of the run, everything else on any
thread."""

from __future__ import annotations

import threading
import time

from devexplorer.core.base import Clock, Unavailable


class StartGate:
    """Closed until `begin`; who waits leaves it early when `stop` is set and `look` was called."""

    def __init__(self, clock: Clock, stop: threading.Event, limit_s: float) -> None:
        """`clock`: the one that `begin` means. After `limit_s` without `begin` nothing is going to happen."""
        self._clock, self._stop, self._limit_s = clock, stop, limit_s
        self._until_s = time.monotonic() + limit_s
        self._due_s: float | None = None
        self._changed = threading.Event()

    def begin(self, at_unix_s: float) -> None:
        """Open at this moment; at once where that is over."""
        self._due_s = time.monotonic() + min(max(at_unix_s - self._clock(), 0.0), self._limit_s)
        self.look()

    def look(self) -> None:
        """Something has changed."""
        self._changed.set()

    @property
    def left_s(self) -> float:
        """Until the run has something to do: 0 when it may begin, is to stop, or has waited for too long."""
        if self._stop.is_set():
            return 0.0
        due_s = self._due_s
        return max((self._until_s if due_s is None else due_s) - time.monotonic(), 0.0)

    def wait(self) -> None:
        """Until then."""
        while left_s := self.left_s:
            self._changed.wait(left_s)
            self._changed.clear()

    def check(self) -> None:
        """Raises `Unavailable` when it was never told to begin."""
        if self._due_s is None and not self._stop.is_set():
            raise Unavailable(f"the run was not told to begin within {self._limit_s:.0f} s")
