"""Ring buffers for many metrics at once: single readings, and bins of some seconds. Main thread only; no Qt, no torch.

Both are tables with a row per moment and a column per metric, so a reading of thirty metrics is one write. Row numbers
grow without limit; the ring holds the newest rows. NaN means unknown.

Tables start small and grow to their capacity, so a device that existed for a minute uses a minute's worth of memory.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np
import numpy.typing as npt

T = TypeVar("T", np.float64, np.uint32)

Floats = npt.NDArray[np.float64]
Counts = npt.NDArray[np.uint32]


def unrolled(ring: Floats, first: int, stop: int) -> Floats:
    """Rows `first` to `stop` (not included) of an endless table of which `ring` has the newest: a view where it can be
    one."""
    if stop <= first:
        return ring[:0]
    start, end = first % len(ring), stop % len(ring)
    return ring[start:end] if start < end else np.concatenate((ring[start:], ring[:end]))


FIRST_ROWS, FIRST_BINS = 256, 32
"""Size of a table at first."""
_FIRST = np.zeros(1, dtype=np.intp)


def _resized(table: npt.NDArray[T], size: int, numbers: npt.NDArray[np.intp]) -> npt.NDArray[T]:
    """The endless rows of these numbers in a table of another size; the others are not known."""
    result = np.full((size, *table.shape[1:]), np.nan if table.dtype == np.float64 else 0, dtype=table.dtype)
    result[numbers % size] = table[numbers % len(table)]
    return result


class RowRing:
    """The newest `capacity` readings."""

    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.begin = 0
        """Number of the first row since the last `clear`."""
        self.stop = 0
        """Number of the row that comes next."""
        size = min(FIRST_ROWS, capacity)
        self._times: Floats = np.zeros(2 * size)  # each time is in it twice, one size apart: every part is one view
        self._values: Floats = np.empty((size, 0))

    @property
    def start(self) -> int:
        """Number of the oldest row that is still there."""
        return max(self.begin, self.stop - self.capacity)

    @property
    def last_time(self) -> float:
        """Time of the newest row; there must be one."""
        return float(self._times[(self.stop - 1) % len(self._values)])

    def add_columns(self, count: int) -> None:
        """Room for `count` more quantities; they were not known so far."""
        self._values = np.concatenate((self._values, np.full((len(self._values), count), np.nan)), axis=1)

    def append(self, time_s: float, row: Floats) -> None:
        """Add a reading; the oldest one leaves when the ring is full. `row` has shape `(columns,)`."""
        if self.stop - self.begin >= len(self._values) < self.capacity:
            self._grow()
        size = len(self._values)
        index = self.stop % size
        self._times[index] = self._times[index + size] = time_s
        self._values[index] = row
        self.stop += 1

    def _grow(self) -> None:
        numbers, size = np.arange(self.start, self.stop), min(2 * len(self._values), self.capacity)
        times = _resized(self._times[: len(self._values)], size, numbers)
        self._times = np.concatenate((times, times))
        self._values = _resized(self._values, size, numbers)

    def clear(self) -> None:
        """Forget every reading."""
        self.begin = self.stop

    def times(self) -> Floats:
        """Times of `start` to `stop`: a view, right until the next `append`."""
        size = len(self._values)
        end = (self.stop - 1) % size + 1 + size
        return self._times[end - (self.stop - self.start) : end] if self.stop > self.start else self._times[:0]

    def rows(self, first: int, stop: int) -> Floats:
        """Values of these rows, shape `(stop - first, columns)`."""
        return unrolled(self._values, first, stop)

    def column(self, column: int, first: int, stop: int) -> Floats:
        """Values of one quantity in these rows."""
        return unrolled(self._values[:, column], first, stop)


class BinRing:
    """Lowest, mean and highest reading of each `seconds` for the newest `capacity` bins of a fixed grid in time.

    Bin n is from n · `seconds` until before (n + 1) · `seconds`. One in which nothing was read is NaN: the grid has no
    holes, and a gap is a gap. The newest bin grows with each `fold`.
    """

    def __init__(self, seconds: float, capacity: int) -> None:
        self.seconds, self.capacity = seconds, capacity
        self.begin = 0
        """The first bin since the last `clear`."""
        self.stop = 0
        """The bin after the newest one; equal to `begin` while there is none."""
        self.end_s = -np.inf
        """When the newest bin ends."""
        self.folded = 0
        """Number of the first row that is in no bin yet."""
        size = min(FIRST_BINS, capacity)
        self.low, self.mean, self.high = (np.empty((size, 0)) for _ in range(3))
        self.count: Counts = np.empty((size, 0), dtype=np.uint32)

    @property
    def start(self) -> int:
        """The oldest bin that is still there."""
        return max(self.begin, self.stop - self.capacity)

    def middles(self, numbers: npt.NDArray[np.intp]) -> Floats:
        """Unix seconds of the middles of these bins."""
        return np.asarray((numbers + 0.5) * self.seconds, dtype=np.float64)

    def cells(self, numbers: npt.NDArray[np.intp]) -> npt.NDArray[np.intp]:
        """The indices of these bins in the tables."""
        return numbers % len(self.count)

    def reserve(self, bins: int) -> None:
        """Make room for so many bins, as far as the capacity goes."""
        if len(self.count) >= min(bins, self.capacity):
            return
        numbers, size = np.arange(self.start, self.stop), min(max(2 * len(self.count), bins), self.capacity)
        self.low, self.mean, self.high = (_resized(table, size, numbers) for table in (self.low, self.mean, self.high))
        self.count = _resized(self.count, size, numbers)

    def add_columns(self, count: int) -> None:
        """Room for `count` more quantities; they were not known so far."""
        unknown = np.full((len(self.count), count), np.nan)
        self.low, self.mean, self.high = (
            np.concatenate((table, unknown), axis=1) for table in (self.low, self.mean, self.high)
        )
        self.count = np.concatenate((self.count, np.zeros((len(self.count), count), dtype=np.uint32)), axis=1)

    def move_to(self, time_s: float) -> None:
        """Begin the bin that `time_s` lies in, later than the newest one; those between stay empty."""
        number = int(time_s // self.seconds)
        if self.stop == self.begin:
            self.begin = self.stop = number
        self.reserve(number + 1 - self.begin)
        fresh = self.cells(np.arange(max(self.stop, number + 1 - self.capacity), number + 1))
        self.low[fresh] = self.mean[fresh] = self.high[fresh] = np.nan
        self.count[fresh] = 0
        self.stop = number + 1
        self.end_s = self.stop * self.seconds

    def fold(self, rows: Floats) -> None:
        """Take readings of shape `(n, columns)` into the newest bin."""
        index = (self.stop - 1) % len(self.count)
        self._take(slice(index, index + 1), _FIRST, rows)

    def add(self, times: Floats, rows: Floats) -> None:
        """Take in readings of many bins, at least one, in the order of time; what is earlier than the newest bin goes
        there."""
        if self.stop > self.begin:
            times = np.maximum(times, (self.stop - 1) * self.seconds)
        else:
            self.move_to(float(times[0]))
        self.move_to(float(times[-1]))
        first = np.searchsorted(times, self.start * self.seconds)  # of a clock that jumped ahead the ring has the end
        numbers, rows = (times[first:] // self.seconds).astype(np.intp), rows[first:]
        starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        self._take(self.cells(numbers[starts]), starts, rows)

    def _take(self, cells: slice | npt.NDArray[np.intp], starts: npt.NDArray[np.intp], rows: Floats) -> None:
        """Take rows into the bins at these cells: those of each begin at its start."""
        known = ~np.isnan(rows)
        total = self.count[cells] + np.add.reduceat(known, starts, dtype=np.uint32)
        before = np.where(self.count[cells] > 0, self.mean[cells], 0.0) * self.count[cells]
        totals = before + np.add.reduceat(np.where(known, rows, 0.0), starts)
        low = self.low[cells] = np.fmin(self.low[cells], np.fmin.reduceat(rows, starts))
        high = self.high[cells] = np.fmax(self.high[cells], np.fmax.reduceat(rows, starts))
        with np.errstate(invalid="ignore"):
            self.mean[cells] = np.clip(totals / total, low, high)  # rounding must not carry the mean past both
        self.count[cells] = total

    def copy_to(self, other: BinRing, first: int, stop: int, columns: Sequence[int]) -> None:
        """Write the bins of these numbers into another ring, which has the given quantities of this one."""
        numbers = np.arange(max(first, self.start), min(stop, self.stop))
        target, source = other.cells(numbers), np.ix_(self.cells(numbers), np.asarray(columns, dtype=np.intp))
        for name in ("low", "mean", "high", "count"):
            getattr(other, name)[target] = getattr(self, name)[source]

    def clear(self) -> None:
        """Forget every bin."""
        self.begin = self.stop
        self.end_s = -np.inf
