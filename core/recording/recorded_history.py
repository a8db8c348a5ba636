"""Histories at any moment of a recording, built at once instead of reading by reading. One thread at a time; no Qt.

A live history keeps the readings of ten minutes and bins of seconds for a day. To show a recording at any moment within
it the same is put together from two things: the readings of the minutes before (`RowCollector` takes them out of a
`State` that reads along), and `BinTable` of the whole recording, made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.telemetry.history import MAX_STEP_BACK_S, History
from devexplorer.core.telemetry.metrics import Metric
from devexplorer.core.telemetry.rings import BinRing, Floats

Integers = npt.NDArray[np.int64]
MOST_BINS = 200_000
"""A clock that jumped farther ahead starts new bins."""


class Readings(NamedTuple):
    """Rows of all quantities of one device: arrays of shape `(n,)`, `(n,)` and `(n, quantities)`."""

    at_ms: Integers
    """Since the recording began."""
    times: Floats
    """Unix seconds, as the samples were stamped."""
    rows: Floats

    @staticmethod
    def joined(parts: Sequence[Readings]) -> Readings:
        """Several after each other."""
        return (
            parts[0] if len(parts) == 1 else Readings(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        )

    @staticmethod
    def none(width: int) -> Readings:
        """Not a single one."""
        return Readings(np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, width)))

    def until(self, at_ms: int) -> Readings:
        """Those that are not later."""
        stop = int(np.searchsorted(self.at_ms, at_ms, side="right"))
        return Readings(self.at_ms[:stop], self.times[:stop], self.rows[:stop])


class RowCollector(History):
    """Stands in for a device's history while a recording is read: keeps the rows that `State` would have drawn."""

    def __init__(self, metrics: Sequence[Metric], moment: list[int]) -> None:
        """`moment[0]` is the position in the recording, in milliseconds; its owner moves it on."""
        super().__init__(metrics, readings=1)
        self._moment = moment
        self._width = len(metrics)
        self._kept: list[tuple[int, float, Sequence[float | None]]] = []

    def append(self, time_unix_s: float, values: Sequence[float | None]) -> None:
        """Keep a row."""
        self._kept.append((self._moment[0], time_unix_s, values))

    def take(self) -> Readings:
        """The rows since the last call."""
        kept, self._kept = self._kept, []
        if not kept:
            return Readings.none(self._width)
        at_ms, times, rows = zip(*kept, strict=True)
        return Readings(
            np.array(at_ms, dtype=np.int64), np.array(times, dtype=np.float64), np.array(rows, dtype=np.float64)
        )


def monotone(times: Floats) -> tuple[int, Floats]:
    """From which reading on a history would still have them, and their times there, made to never decrease: see
    `History.append`."""
    start = 0
    while True:
        rising: Floats = np.maximum.accumulate(times[start:])
        set_back = np.flatnonzero(times[start:] < rising - MAX_STEP_BACK_S)
        if not len(set_back):
            return start, rising
        start += int(set_back[0])


class BinTable:
    """Lowest, mean and highest reading of every `seconds` of one device. `add` in the order of time."""

    def __init__(self, width: int, seconds: float) -> None:
        self.seconds = seconds
        self.first = self.stop = 0
        """Numbers of the first bin and of the one after the last, counted since 1970."""
        self.low, self.high, self.sums, self.count = (np.empty((0, width)) for _ in range(4))

    def fits(self, times: Floats) -> bool:
        """Whether readings of these times, which never decrease, can be added."""
        if self.stop == self.first or not len(times):
            return True
        begins, ends = times[0], times[-1]
        return bool(
            begins >= (self.stop - 1) * self.seconds - MAX_STEP_BACK_S and ends // self.seconds - self.first < MOST_BINS
        )

    def add(self, times: Floats, rows: Floats) -> None:
        """Take in readings that fit; what is a little earlier than the newest bin goes there."""
        if not len(times):
            return
        if self.stop > self.first:
            times = np.maximum(times, (self.stop - 1) * self.seconds)
        numbers = (times // self.seconds).astype(np.int64)
        if self.stop == self.first:
            self.first = self.stop = int(numbers[0])
        self._grow(int(numbers[-1]) + 1)
        starts = np.flatnonzero(np.concatenate(([True], numbers[1:] != numbers[:-1])))
        at = numbers[starts] - self.first
        known = ~np.isnan(rows)
        self.low[at] = np.fmin(self.low[at], np.fmin.reduceat(rows, starts))
        self.high[at] = np.fmax(self.high[at], np.fmax.reduceat(rows, starts))
        self.sums[at] += np.add.reduceat(np.where(known, rows, 0.0), starts)
        self.count[at] += np.add.reduceat(known.astype(np.float64), starts)

    def _grow(self, stop: int) -> None:
        missing = stop - self.first - len(self.low)
        if missing > 0:
            more = max(missing, len(self.low))
            unknown, nothing = (np.full((more, self.low.shape[1]), value) for value in (np.nan, 0.0))
            self.low, self.high = (np.concatenate((table, unknown)) for table in (self.low, self.high))
            self.sums, self.count = (np.concatenate((table, nothing)) for table in (self.sums, self.count))
        self.stop = max(self.stop, stop)

    def known(self) -> npt.NDArray[np.bool_]:
        """Which quantities ever had a value."""
        return np.asarray(self.count.any(axis=0))

    def copy_to(self, tier: BinRing, first: int, stop: int, columns: npt.NDArray[np.intp]) -> None:
        """Write the bins of these numbers into a ring that has the given quantities."""
        numbers = np.arange(max(first, self.first), min(stop, self.stop))
        cells, source = tier.cells(numbers), np.ix_(numbers - self.first, columns)
        tier.low[cells], tier.high[cells], count = self.low[source], self.high[source], self.count[source]
        with np.errstate(invalid="ignore"):
            tier.mean[cells] = np.clip(self.sums[source] / count, tier.low[cells], tier.high[cells])
        tier.count[cells] = count


class RecordedHistory(History):
    """The history that a live window would have at some moment of the recording."""

    def __init__(
        self,
        metrics: Sequence[Metric],
        readings: Readings,
        before: Sequence[BinTable | None],
        until_unix_s: float,
        gap_s: float,
        serial: int,
    ) -> None:
        """`readings`: of the minutes before the moment, which is `until_unix_s`.

        `before`: for each of `TIERS` bins that have everything before the first of the readings, and maybe more; None:
        the readings are all there is. `serial` makes `version` different from that of any other history that was shown
        for the device.
        """
        super().__init__(metrics, gap_s=gap_s)
        start, times = monotone(readings.times)
        times, rows = _with_gaps(times, readings.rows[start:], gap_s)
        older = [None if start else bins for bins in before]  # a clock that was set back starts everything again
        if not len(times):  # it fell silent earlier: a row of nothing where its bins end
            ends = [
                min(bins.stop, until_unix_s // bins.seconds) * bins.seconds
                for bins in older
                if bins is not None and bins.stop > bins.first
            ]
            times, rows = np.array(ends[:1]), np.full((len(ends[:1]), len(metrics)), np.nan)
        known = ~np.isnan(rows).all(axis=0)
        for bins in older:
            if bins is not None:
                known |= bins.known()
        self._add_columns(np.flatnonzero(known))
        self._rows.begin = self._rows.stop = serial
        for time_s, row in zip(times[-self.capacity :].tolist(), rows[-self.capacity :, self._taken], strict=True):
            self._rows.append(time_s, row)
        if len(times) > 1:
            self._step_s = float(times[-1] - times[-2])
        self._first = [
            self._fill(tier, bins, times, rows, until_unix_s) for tier, bins in zip(self._tiers, older, strict=True)
        ]
        self._has_more = len(times) > self.capacity or any(bins is not None for bins in older)

    def _fill(self, tier: BinRing, before: BinTable | None, times: Floats, rows: Floats, until_unix_s: float) -> int:
        """Fill a ring; returns the number of the first bin that there ever was."""
        seconds = tier.seconds
        seam = int(
            (times[0] if len(times) else until_unix_s) // seconds
        )  # the readings may begin in the middle of this bin
        newest = BinTable(rows.shape[1], seconds)
        if before is not None and before.first < seam + 1 and before.stop > before.first:
            if not len(times) or times[-1] // seconds > seam:
                seam += bool(len(times))
            later = np.searchsorted(times, seam * seconds, side="left")
            newest.add(times[later:], rows[later:])
            stop = newest.stop if newest.stop > newest.first else min(seam, before.stop)
            first = before.first
        else:
            newest.add(times, rows)
            first, stop, before = newest.first, newest.stop, None
        if stop > first:
            oldest = max(first, stop - tier.capacity)
            tier.reserve(stop - oldest)
            if before is not None:
                before.copy_to(tier, oldest, min(seam, stop), self._taken)
            newest.copy_to(tier, oldest, stop, self._taken)
            tier.begin, tier.stop, tier.end_s = first, stop, stop * seconds
        tier.folded = self._rows.stop
        return first

    def clear(self) -> None:
        """Forget every reading."""
        super().clear()
        self._has_more = False

    def _tier(self, left_s: float) -> BinRing | None:
        if not self._has_more:
            return super()._tier(left_s)
        if len(self) and left_s >= self._rows.times()[0]:
            return None
        for tier, first in zip(self._tiers, self._first, strict=True):
            if tier.start <= first or left_s >= tier.start * tier.seconds:
                return tier
        return self._tiers[-1]


def _with_gaps(times: Floats, rows: Floats, gap_s: float) -> tuple[Floats, Floats]:
    """With a row of nothing wherever readings stayed away for long, as `History.append` puts it there."""
    steps = np.diff(times)
    before = np.concatenate(([0.0], steps[:-1])) if len(steps) else steps
    gaps = np.flatnonzero((steps > gap_s) & (steps > 4 * before))
    if not len(gaps):
        return times, rows
    ends = times[gaps] + np.maximum(before[gaps], 0.1)
    return np.insert(times, gaps + 1, ends), np.insert(rows, gaps + 1, np.nan, axis=0)
