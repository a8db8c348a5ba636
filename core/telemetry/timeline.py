"""One quantity of one device over time, in a ring of fixed size. Main thread only; no Qt, no torch.

The ring is mirrored (each reading is written twice, one capacity apart), so that every window is one contiguous view:
a curve takes it without a copy, and a million readings later the memory is what it was at the start.
"""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

MAX_STEP_BACK_S = 10.0
"""A reading stamped earlier than the last by up to this much is taken as simultaneous with it (events from several
threads and processes may arrive slightly out of order); by more, the system clock was set back."""


class Timeline:
    """The newest `capacity` readings: seconds (of any one clock) against values. NaN values are gaps.

    Times never decrease inside the ring, whatever the clock did: see `MAX_STEP_BACK_S`. When the clock was set back by
    more than that, the history starts anew, because it would lie in the future.
    """

    __slots__ = ("_capacity", "_count", "_next", "_times", "_values")

    def __init__(self, capacity: int = 6000) -> None:
        if capacity < 1:
            raise ValueError(f"a timeline holds at least one reading, not {capacity}")
        self._capacity = capacity
        self._times: Floats = np.zeros(2 * capacity)
        self._values: Floats = np.zeros(2 * capacity)
        self._next = 0
        self._count = 0

    def __len__(self) -> int:
        return self._count

    @property
    def capacity(self) -> int:
        """Readings that it holds at most."""
        return self._capacity

    def append(self, time_s: float, value: float) -> None:
        """Add a reading; the oldest one leaves when the ring is full."""
        if self._count:
            last = float(self._times[self._next + self._capacity - 1])
            if time_s < last - MAX_STEP_BACK_S:
                self.clear()
            elif time_s < last:
                time_s = last
        at, mirror = self._next, self._next + self._capacity
        self._times[at] = self._times[mirror] = time_s
        self._values[at] = self._values[mirror] = value
        self._next = (at + 1) % self._capacity
        self._count = min(self._count + 1, self._capacity)

    def clear(self) -> None:
        """Forget every reading."""
        self._next = self._count = 0

    def window(self) -> tuple[Floats, Floats]:
        """Times and values, oldest first: read-only views, shape `(len(self),)`, right until the next `append`."""
        end = self._next + self._capacity
        times, values = self._times[end - self._count : end], self._values[end - self._count : end]
        times.flags.writeable = values.flags.writeable = False
        return times, values

    @property
    def latest(self) -> float:
        """The newest value; NaN when that is a gap or there is none."""
        return float(self._values[self._next + self._capacity - 1]) if self._count else float("nan")

    def value_at(self, time_s: float) -> float:
        """The value of the newest reading that is not later than `time_s`; NaN where it is a gap or there is none."""
        times, values = self.window()
        index = int(np.searchsorted(times, time_s, side="right")) - 1
        return float(values[index]) if index >= 0 else float("nan")
