"""All metrics of one device over time: every reading of the last ten minutes, bins of seconds for 24 hours, in ring
buffers. Main thread only; no Qt, no torch.

Each reading is a row of all metrics in ring buffers that share their times; a metric uses memory only once it has had a
value. A reading costs about 10 µs, and a day of them the same memory as half an hour.

The ring buffers, of single readings and of bins, are tables with a row per moment and a column per metric, so a reading
of thirty metrics is one write. Row numbers grow without limit; the ring holds the newest rows. NaN means unknown. They
start small and grow to their capacity, so a device that existed for a minute uses a minute's worth of memory.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from operator import attrgetter, itemgetter
from typing import NamedTuple, TypeVar

import numpy as np
import numpy.typing as npt

from devexplorer.core.records import AllocatorSample, DeviceSample
from devexplorer.core.telemetry.memory_breakdown import MemoryParts
from devexplorer.core.telemetry.metrics import METRICS, Metric

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


PART_METRICS: tuple[Metric, ...] = (
    Metric("workspace_bytes", "Workspace tensors", "bytes"),
    Metric("other_allocated_bytes", "Other allocations", "bytes"),
    Metric("cached_bytes", "Cached by the allocator", "bytes"),
    Metric("context_bytes", "Context and libraries", "bytes"),
    Metric("other_processes_bytes", "Other processes", "bytes"),
)
"""The parts of used memory, bottom to top of the stacked plot and in the order of `MemoryParts`. Known where an
allocator was read."""
ALLOCATOR_METRICS: tuple[Metric, ...] = (
    Metric("allocated_bytes", "Allocated by the engine", "bytes"),
    Metric("reserved_bytes", "Reserved by the allocator", "bytes"),
    Metric("largest_free_block_bytes", "Largest free block", "bytes"),
)
DEVICE_METRICS = (*METRICS, *PART_METRICS, *ALLOCATOR_METRICS)
"""Everything that a device's history has, in the order of its rows."""
THROUGHPUT = Metric("tflops", "Throughput", "tflops")
"""The one quantity of the history of a device's benchmark points."""
BY_ID = {metric.id: metric for metric in (*DEVICE_METRICS, THROUGHPUT)}

READINGS = 7600
"""Ten minutes at 10 Hz, and a quarter more: what has just left a plot of ten minutes is still drawn."""
TIERS = ((5.0, 960), (30.0, 2900))
"""Seconds of a bin and how many of them: 80 minutes (a plot of one hour has a bin a pixel) and 24 hours."""
GAP_S = 2.5
"""A longer pause is a gap, unless readings were about as far apart before."""
MAX_STEP_BACK_S = 10.0
"""A reading stamped earlier than the last by up to this much is taken as simultaneous with it (events from several
threads and processes may arrive slightly out of order); by more, the system clock was set back."""
SAME_S = 0.25
"""Of a reading that was told twice, by clocks that were compared twice, the times can differ by this much."""
LAG_S = 2.5
"""A reading holds for so many seconds after it, or until two later readings are due."""


Values = Sequence[float | None]
"""A reading of several quantities; None is not known."""


class Window(NamedTuple):
    """A part of a history, oldest first: arrays of shape `(n,)`, right until the next `append`; of several quantities
    `(n, quantities)`, and copies, safe to hand to another thread.

    Where `seconds` is 0 they are readings, and low, mean and high are the same array.
    """

    times: Floats
    """Unix seconds: of the readings, or the middles of the bins."""
    low: Floats
    mean: Floats
    high: Floats
    seconds: float
    """What one bin spans."""


class Span(NamedTuple):
    """What a quantity did in a span of time; NaN and 0 where nothing is known."""

    low: float
    mean: float
    """Of the readings."""
    high: float
    readings: int
    """How many had a value."""


EMPTY = Window(np.empty(0), np.empty(0), np.empty(0), np.empty(0), 0.0)
NOTHING = Span(math.nan, math.nan, math.nan, 0)
_sampled = attrgetter(*(metric.id for metric in METRICS))


def device_row(
    sample: DeviceSample, parts: MemoryParts | None, allocator: AllocatorSample | None
) -> tuple[float | None, ...]:
    """The values of `DEVICE_METRICS` at one moment; None is not known.

    Without an allocator reading the parts are not known: then all that is used is in `memory_used_bytes` alone.
    """
    if allocator is None or parts is None:
        return (*_sampled(sample), *_NO_ALLOCATOR)
    return (
        *_sampled(sample),
        parts.workspace,
        parts.other_allocated,
        parts.cached,
        parts.context,
        parts.other_processes,
        allocator.allocated_bytes,
        allocator.reserved_bytes,
        allocator.largest_free_block_bytes,
    )


_NO_ALLOCATOR = (None,) * (len(PART_METRICS) + len(ALLOCATOR_METRICS))


class History:
    """`append` a row per reading; read with `window`, `span` and `value_at`. Times never decrease inside, whatever the
    clock did.

    A clock that was set back by more than `MAX_STEP_BACK_S` clears the history, because all of it would lie in the
    future.
    """

    def __init__(
        self, metrics: Sequence[Metric] = DEVICE_METRICS, *, gap_s: float = GAP_S, readings: int = READINGS
    ) -> None:
        """`gap_s`: infinity where the caller appends the gaps itself."""
        if readings < 1:
            raise ValueError(f"a history holds at least one reading, not {readings}")
        self._index = {metric.id: number for number, metric in enumerate(metrics)}
        self._gap_s, self._step_s = gap_s, 0.0
        self.capacity = readings
        """Most readings that are kept one by one."""
        self._rows = RowRing(readings)
        self._tiers = tuple(BinRing(seconds, capacity) for seconds, capacity in TIERS)
        self._columns: dict[str, int] = {}
        self._taken: list[int] = []
        """Places in a row of the quantities that have a column, in the order of columns."""
        self._missing = list(range(len(metrics)))
        """Places of those that have none."""
        self._prepare()

    def __len__(self) -> int:
        """Readings that are there one by one."""
        return self._rows.stop - self._rows.start

    @property
    def metrics(self) -> tuple[str, ...]:
        """Ids of the quantities that ever had a value, in the order of menus."""
        return tuple(name for name in self._index if name in self._columns)

    def has(self, metric: str) -> bool:
        """Whether the quantity ever had a value."""
        return metric in self._columns

    @property
    def version(self) -> tuple[int, int]:
        """Changes with every reading; the first number only when the history was cleared."""
        return self._rows.begin, self._rows.stop

    @property
    def latest_unix_s(self) -> float:
        """Time of the newest reading; NaN where there is none."""
        return self._rows.last_time if len(self) else math.nan

    # --- writing
    # -------------------------------------------------------------------------------------------------------

    def append(self, time_unix_s: float, values: Values) -> None:
        """Add a reading of all quantities, in the order of the metrics; None and NaN are not known."""
        if self._from_missing(values) != self._all_unknown:
            self._add_columns([place for place in self._missing if _is_known(values[place])])
        if self._rows.stop > self._rows.begin:
            last = self._rows.last_time
            step = time_unix_s - last
            if step < -MAX_STEP_BACK_S:
                self.clear()
            elif step < 0:
                time_unix_s = last
            elif step > self._gap_s and step > 4 * self._step_s:
                self._push(last + max(self._step_s, 0.1), np.full(len(self._taken), np.nan))
            self._step_s = max(step, 0.0)
        self._push(time_unix_s, np.array(self._from_taken(values), dtype=np.float64))  # which makes None NaN

    def fill(self, times: Floats, metrics: Sequence[str], values: Floats) -> None:
        """Add what was kept elsewhere and is newer than all that is here, a row of `values` for each time."""
        newer = times > self.latest_unix_s + SAME_S if len(self) else np.ones(len(times), dtype=np.bool_)
        rows = np.full((len(times), len(self._index)), np.nan)
        for column, metric in enumerate(metrics):
            if metric in self._index:
                rows[:, self._index[metric]] = values[:, column]
        if not len(self) and len(times) > 1:
            self._step_s = float(times[1] - times[0])  # what is coarse from the first on has no gap there
        for time_s, row in zip(times[newer].tolist(), rows[newer].tolist(), strict=True):
            self.append(time_s, row)

    def clear(self) -> None:
        """Forget every reading."""
        self._rows.clear()
        for tier in self._tiers:
            tier.clear()
            tier.folded = self._rows.stop

    def _push(self, time_s: float, row: Floats) -> None:
        for tier in self._tiers:
            if time_s >= tier.end_s:
                self._fold(tier)
                tier.move_to(time_s)
            elif self._rows.stop - tier.folded == self.capacity:  # before a reading leaves that is in no bin yet
                self._fold(tier)
        self._rows.append(time_s, row)

    def _fold(self, tier: BinRing) -> None:
        """Bring the newest bin up to date."""
        if tier.folded < self._rows.stop:
            tier.fold(self._rows.rows(tier.folded, self._rows.stop))
            tier.folded = self._rows.stop

    def _prepare(self) -> None:
        """For `append`, which comes ten times a second of each device."""
        self._from_taken, self._from_missing = _picker(self._taken), _picker(self._missing)
        self._all_unknown = self._from_missing((None,) * len(self._index))

    def _add_columns(self, places: list[int]) -> None:
        if not places:
            return
        names = list(self._index)
        for index in places:
            self._columns[names[index]] = len(self._columns)
        self._taken = [*self._taken, *places]
        self._missing = [place for place in self._missing if place not in places]
        self._prepare()
        self._rows.add_columns(len(places))
        for tier in self._tiers:
            tier.add_columns(len(places))

    # --- reading
    # -------------------------------------------------------------------------------------------------------

    def readings(self, metric: str) -> tuple[Floats, Floats]:
        """Times and values of every reading that is there one by one."""
        times = self._rows.times().copy()
        column = self._columns.get(metric)
        if column is None:
            return times, np.full(len(times), np.nan)
        return times, self._rows.column(column, self._rows.start, self._rows.stop).copy()

    def latest(self, metric: str) -> float:
        """The newest value; NaN when that is a gap or there is none."""
        column = self._columns.get(metric)
        if column is None or not len(self):
            return math.nan
        return float(self._rows.column(column, self._rows.stop - 1, self._rows.stop)[0])

    def window(self, metric: str, left_unix_s: float, right_unix_s: float, point_s: float = 0.0) -> Window:
        """The quantity between both times and one more on each side, from the finest ring that reaches back to
        `left_unix_s`, or from a coarser one whose bins are no longer than `point_s` (what a pixel spans, say).

        Readings come as they are. Bins are joined as many as lie within `point_s`; joined bins too lie on a fixed
        grid, so that a scrolling curve does not shimmer, and a gap stays one.
        """
        column = self._columns.get(metric)
        if column is None:
            return EMPTY
        tier = self._tier(left_unix_s)
        for coarser in self._tiers:  # bins that a slow source would leave empty are no curve
            if 2 * self._step_s <= coarser.seconds <= point_s and (tier is None or coarser.seconds > tier.seconds):
                tier = coarser
        if tier is None:
            times, first, stop = self._row_range(left_unix_s, right_unix_s, extra=1)
            values = self._rows.column(column, first, stop)
            return Window(times, values, values, values, 0.0)
        first, stop = self._bin_range(tier, left_unix_s, right_unix_s, extra=1)
        numbers = np.arange(first, stop)
        cells = tier.cells(numbers)
        low, mean, high, count = (table[cells, column] for table in (tier.low, tier.mean, tier.high, tier.count))
        together = int(point_s // tier.seconds)
        if together > 1 and len(numbers):
            middles, low, mean, high = _joined(numbers, together, low, mean, high, count)
            return Window(middles * tier.seconds, low, mean, high, together * tier.seconds)
        return Window(tier.middles(numbers), low, mean, high, tier.seconds)

    def span(self, metric: str, left_unix_s: float, right_unix_s: float) -> Span:
        """Lowest, mean and highest reading between both times. Where only bins reach back that far: of the bins they
        lie in or touch."""
        column = self._columns.get(metric)
        if column is None or not len(self):
            return NOTHING
        tier = self._tier(left_unix_s)
        if tier is None:
            _, first, stop = self._row_range(left_unix_s, right_unix_s)
            values = self._rows.column(column, first, stop)
            values = values[~np.isnan(values)]
            if not len(values):
                return NOTHING
            low, high = float(values.min()), float(values.max())
            return Span(low, min(max(float(values.mean()), low), high), high, len(values))
        first, stop = self._bin_range(tier, left_unix_s, right_unix_s)
        cells = tier.cells(np.arange(first, stop))
        counts = tier.count[cells, column].astype(np.float64)
        if not counts.any():
            return NOTHING
        low, high = float(np.fmin.reduce(tier.low[cells, column])), float(np.fmax.reduce(tier.high[cells, column]))
        mean = float(np.nansum(tier.mean[cells, column] * counts) / counts.sum())
        return Span(low, min(max(mean, low), high), high, int(counts.sum()))

    def value_at(self, metric: str, time_unix_s: float) -> float:
        """The newest reading not later than that time, or the mean of the bin; NaN where it is a gap, too old, or there
        is none."""
        column = self._columns.get(metric)
        if column is None or not len(self):
            return math.nan
        tier = self._tier(time_unix_s)
        if tier is not None:
            self._fold(tier)
            number = int(time_unix_s // tier.seconds)
            return float(tier.mean[number % len(tier.mean), column]) if tier.start <= number < tier.stop else math.nan
        times = self._rows.times()
        index = int(np.searchsorted(times, time_unix_s, side="right")) - 1
        is_last = index == len(times) - 1  # up to the next one the curve is joined, or that one is a gap
        if index < 0 or (is_last and time_unix_s - times[index] > max(LAG_S, 2 * self._step_s)):
            return math.nan
        return float(self._rows.column(column, self._rows.start + index, self._rows.start + index + 1)[0])

    def seconds_at(self, time_unix_s: float) -> float:
        """What the value at that time is the mean of: seconds of a bin, or 0 where readings are kept one by one."""
        tier = self._tier(time_unix_s)
        return 0.0 if tier is None else tier.seconds

    def table(self, metrics: Sequence[str], left_unix_s: float, right_unix_s: float) -> Window:
        """Several quantities between both times, as in `window` but for what lies beyond the edges, and never
        joined."""
        columns = [self._columns.get(metric) for metric in metrics]
        tier = self._tier(left_unix_s)
        if tier is None:
            times, first, stop = self._row_range(left_unix_s, right_unix_s)
            values = _chosen(self._rows.rows(first, stop), columns)
            return Window(times.copy(), values, values, values, 0.0)
        first, stop = self._bin_range(tier, left_unix_s, right_unix_s)
        numbers = np.arange(first, stop)
        low, mean, high = (_chosen(table[tier.cells(numbers)], columns) for table in (tier.low, tier.mean, tier.high))
        return Window(tier.middles(numbers), low, mean, high, tier.seconds)

    def _tier(self, left_s: float) -> BinRing | None:
        """The finest ring that has everything from `left_s` on; None: the readings themselves."""
        rows = self._rows
        if rows.start == rows.begin or left_s > rows.times()[0]:  # of the same moment there may have been more
            return None
        for tier in self._tiers:
            if tier.start == tier.begin or left_s >= tier.start * tier.seconds:
                return tier
        return self._tiers[-1]

    def _row_range(self, left_s: float, right_s: float, extra: int = 0) -> tuple[Floats, int, int]:
        times = self._rows.times()
        first = max(int(np.searchsorted(times, left_s, side="left")) - extra, 0)
        stop = min(int(np.searchsorted(times, right_s, side="right")) + extra, len(times))
        return times[first:stop], self._rows.start + first, self._rows.start + max(stop, first)

    def _bin_range(self, tier: BinRing, left_s: float, right_s: float, extra: int = 0) -> tuple[int, int]:
        self._fold(tier)
        right_s = min(right_s, tier.end_s)
        first = max(int(left_s // tier.seconds) - extra, tier.start)
        return first, max(min(int(right_s // tier.seconds) + 1 + extra, tier.stop), first)


def _picker(places: Sequence[int]) -> Callable[[Values], Values]:
    """Takes what is at these places of a row."""
    if len(places) > 1:
        return itemgetter(*places)
    return lambda values: tuple(values[place] for place in places)


def _is_known(value: float | None) -> bool:
    """Whether it is neither None nor NaN."""
    return value is not None and value == value


def _chosen(rows: Floats, columns: Sequence[int | None]) -> Floats:
    """A copy with these columns; NaN for those that are not there."""
    result = np.full((len(rows), len(columns)), np.nan)
    places = [place for place, column in enumerate(columns) if column is not None]
    result[:, places] = rows[:, [column for column in columns if column is not None]]
    return result


def _joined(
    numbers: npt.NDArray[np.intp], together: int, low: Floats, mean: Floats, high: Floats, count: npt.NDArray[np.uint32]
) -> tuple[Floats, Floats, Floats, Floats]:
    """Every `together` bins as one, with their middles counted in bins. Bins with a value and bins without are never
    joined."""
    missing = np.isnan(mean)
    groups = numbers // together
    new = np.concatenate(([True], (groups[1:] != groups[:-1]) | (missing[1:] != missing[:-1])))
    starts = np.flatnonzero(new)
    weights = np.where(missing, 1.0, count)
    lows, highs = np.minimum.reduceat(low, starts), np.maximum.reduceat(high, starts)
    means = np.clip(np.add.reduceat(mean * weights, starts) / np.add.reduceat(weights, starts), lows, highs)
    ends = np.concatenate((starts[1:], [len(numbers)]))
    return numbers[0] + (starts + ends) / 2, lows, means, highs
