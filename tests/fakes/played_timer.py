"""A `BlockTimer` whose seconds per iteration are set by the test."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.benchmark.timing import Operation, TimedBlock


class PlayedTimer:
    """Each call takes the next figure of `seconds` for each of its iterations; the last one stays. A flush takes
    `flush_seconds`."""

    simulated = False

    def __init__(self, seconds: Sequence[float], flush_seconds: float = 0.0) -> None:
        self._seconds = list(seconds)
        self._flush_seconds = flush_seconds
        self._now = 0.0
        self.lengths: list[int] = []
        """Iterations of each call."""
        self.singles = 0
        """Calls that timed iterations one by one."""

    def now(self) -> float:
        return self._now

    def _each(self, iterations: int) -> float:
        self.lengths.append(iterations)
        return self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]

    def block(self, operation: Operation, iterations: int) -> TimedBlock:
        operation()
        each = self._each(iterations)
        self._now += each * iterations
        return TimedBlock(iterations, each * iterations, (each,))

    def singly(self, operation: Operation, iterations: int, each: float, flush: Operation | None = None) -> TimedBlock:
        self.singles += 1
        if flush is not None:
            flush()
        operation()
        each = self._each(iterations)
        between = 0.0 if flush is None else self._flush_seconds * iterations
        self._now += each * iterations + between
        return TimedBlock(iterations, each * iterations, (each,) * iterations, between)
