"""Histories at any moment of a recording, built at once instead of reading by reading. One thread at a time; no Qt.

A live history keeps the readings of ten minutes and bins of seconds for a day. To show a recording at any moment within
it the same is put together from two things: the readings of the minutes before (`RowCollector` takes them out of a
`State` that reads along), and `bins` of the whole recording, made once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.telemetry.history import MAX_STEP_BACK_S, BinRing, Floats, History
from devexplorer.core.telemetry.metrics import Metric

Integers = npt.NDArray[np.int64]
MOST_BINS = 200_000
"""A clock that jumped farther ahead starts new bins."""


class RecordedReadings(NamedTuple):
    """Rows of all quantities of one device: arrays of shape `(n,)`, `(n,)` and `(n, quantities)`."""

    at_ms: Integers
    """Since the recording began."""
    times: Floats
    """Unix seconds, as the samples were stamped."""
    rows: Floats

    @staticmethod
    def joined(parts: Sequence[RecordedReadings]) -> RecordedReadings:
        """Several after each other."""
        return (
            parts[0]
            if len(parts) == 1
            else RecordedReadings(*(np.concatenate(arrays) for arrays in zip(*parts, strict=True)))
        )

    @staticmethod
    def none(width: int) -> RecordedReadings:
        """Not a single one."""
        return RecordedReadings(np.empty(0, dtype=np.int64), np.empty(0), np.empty((0, width)))

    def until(self, at_ms: int) -> RecordedReadings:
        """Those that are not later."""
        stop = int(np.searchsorted(self.at_ms, at_ms, side="right"))
        return RecordedReadings(self.at_ms[:stop], self.times[:stop], self.rows[:stop])


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

    def take(self) -> RecordedReadings:
        """The rows since the last call."""
        kept, self._kept = self._kept, []
        if not kept:
            return RecordedReadings.none(self._width)
        at_ms, times, rows = zip(*kept, strict=True)
        return RecordedReadings(
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


def bins(width: int, seconds: float, capacity: int = MOST_BINS) -> BinRing:
    """Empty bins for so many quantities of one device, by default for a whole recording."""
    result = BinRing(seconds, capacity)
    result.add_columns(width)
    return result


def fits(ring: BinRing, times: Floats) -> bool:
    """Whether readings of these times, which never decrease, can be added."""
    if ring.stop == ring.begin or not len(times):
        return True
    begins, ends = times[0], times[-1]
    return bool(
        begins >= (ring.stop - 1) * ring.seconds - MAX_STEP_BACK_S and ends // ring.seconds - ring.begin < MOST_BINS
    )


class RecordedHistory(History):
    """The history that a live window would have at some moment of the recording."""

    def __init__(
        self,
        metrics: Sequence[Metric],
        readings: RecordedReadings,
        before: Sequence[BinRing | None],
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
        older = [None if start else ring for ring in before]  # a clock that was set back starts everything again
        if not len(times):  # it fell silent earlier: a row of nothing where its bins end
            ends = [
                min(ring.stop, until_unix_s // ring.seconds) * ring.seconds
                for ring in older
                if ring is not None and ring.stop > ring.begin
            ]
            times, rows = np.array(ends[:1]), np.full((len(ends[:1]), len(metrics)), np.nan)
        known = ~np.isnan(rows).all(axis=0)
        for ring in older:
            if ring is not None:
                known |= ring.count.any(axis=0)
        self._add_columns(np.flatnonzero(known).tolist())
        self._rows.begin = self._rows.stop = serial
        for time_s, row in zip(times[-self.capacity :].tolist(), rows[-self.capacity :, self._taken], strict=True):
            self._rows.append(time_s, row)
        if len(times) > 1:
            self._step_s = float(times[-1] - times[-2])
        self._first = [
            self._fill(tier, ring, times, rows, until_unix_s) for tier, ring in zip(self._tiers, older, strict=True)
        ]
        self._has_more = len(times) > self.capacity or any(ring is not None for ring in older)

    def _fill(self, tier: BinRing, before: BinRing | None, times: Floats, rows: Floats, until_unix_s: float) -> int:
        """Fill a ring; returns the number of the first bin that there ever was."""
        seconds = tier.seconds
        seam = int(
            (times[0] if len(times) else until_unix_s) // seconds
        )  # the readings may begin in the middle of this bin
        newest = bins(rows.shape[1], seconds, tier.capacity)
        if before is not None and before.begin < seam + 1 and before.stop > before.begin:
            if not len(times) or times[-1] // seconds > seam:
                seam += bool(len(times))
            later = np.searchsorted(times, seam * seconds, side="left")
            if later < len(times):
                newest.add(times[later:], rows[later:])
            stop = newest.stop if newest.stop > newest.begin else min(seam, before.stop)
            first = before.begin
        else:
            if len(times):
                newest.add(times, rows)
            first, stop, before = newest.begin, newest.stop, None
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
