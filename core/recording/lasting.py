"""What lasts in a recording, at any moment: its readings are judged once from the beginning, and where that has come to
is kept now and then. One thread at a time, and not the main one; no Qt.

An alert can have begun hours before: a reading between the two limits of its rule neither raises nor ends it. So a look
at the readings just before a moment would miss it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Sequence
from heapq import merge
from itertools import takewhile
from typing import NamedTuple

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import LastingState
from devexplorer.core.recording.format import DeviceList, Entry, by_time
from devexplorer.core.recording.reader import Recording
from devexplorer.core.records import DeviceDetails, DeviceSample
from devexplorer.core.session import Settings, State

STEP_FRAMES = 64
"""Judged at a time."""
MOST_KEPT = 1024
"""Moments from which a later one is reached by judging the readings between them."""
LOOK_BACK_MS = 60_000
"""Readings before a moment that are looked at until all before it are judged."""


class _Kept(NamedTuple):
    frames: int
    """Those that were judged."""
    until_ms: int
    parts: tuple[LastingState, ...]

    def copy(self) -> _Kept:
        return self._replace(parts=tuple(part.copy() for part in self.parts))


class LastingParts:
    """`advance` until it is `complete`; `at` any moment."""

    def __init__(self, recording: Recording, unix_s: Callable[[int], float], fresh: Callable[[], State]) -> None:
        self._recording, self._unix_s, self._fresh = recording, unix_s, fresh
        self._said = [entry for entry in recording.events if isinstance(entry.record, DeviceList | DeviceDetails)]
        self._every = -(-len(recording.frames) // (STEP_FRAMES * MOST_KEPT)) * STEP_FRAMES
        self._begin(fresh())

    def _begin(self, state: State) -> None:
        self._settings = state.settings
        for part in state.lasting:
            part.begin(self._unix_s(0))
        self._now = _Kept(0, -1, state.lasting)
        self._kept = [self._now.copy()]

    def follow(self, settings: Settings) -> None:
        """Judge all over again where the user has chosen otherwise."""
        if settings.of_features != self._settings.of_features:
            self._begin(self._fresh())

    @property
    def complete(self) -> bool:
        """Whether everything was judged."""
        return self._now.frames >= len(self._recording.frames)

    def knows(self, at_ms: int) -> bool:
        """Whether everything before that moment was judged."""
        return self.complete or at_ms <= self._now.until_ms

    def advance(self) -> None:
        """Judge some frames more."""
        frames, until_ms, parts = self._now
        stop = min(frames + STEP_FRAMES, len(self._recording.frames))
        if stop > frames:
            end_ms = self._recording.frames[stop - 1].head.last_ms
            self._judge(parts, frames, stop, until_ms, end_ms)
            self._now = _Kept(stop, end_ms, parts)
            if stop % self._every == 0:
                self._kept.append(self._now.copy())

    def at(self, at_ms: int) -> tuple[LastingState, ...]:
        """What they are at that moment; what follows can be fed to them."""
        kept = self._kept[bisect_right(self._kept, at_ms, key=lambda kept: kept.until_ms) - 1]
        frames, until_ms, parts = kept.copy()
        if not self.knows(at_ms):
            frames = max(frames, self._frame_number(at_ms - LOOK_BACK_MS))
        self._judge(parts, frames, self._frame_number(at_ms) + 1, until_ms, at_ms)
        return tuple(part.copy() for part in parts)  # what was judged is no news

    def _frame_number(self, at_ms: int) -> int:
        return bisect_right(self._recording.frames, at_ms, key=lambda frame: frame.head.first_ms) - 1

    def _judge(self, parts: Sequence[LastingState], first: int, stop: int, after_ms: int, until_ms: int) -> None:
        if not parts:
            return
        begin = bisect_right(self._said, after_ms, key=by_time)
        said: Iterable[Entry] = takewhile(lambda entry: entry.at_ms <= until_ms, self._said[begin:])
        readings = (
            entry
            for frame in self._recording.frames[first:stop]
            for entry in self._recording.readings(frame)
            if entry.at_ms <= until_ms and isinstance(entry.record, DeviceSample)
        )
        for entry in merge(said, readings, key=by_time):
            for part in parts:
                if isinstance(entry.record, DeviceList):
                    part.devices_changed(Catalog(entry.record.devices, entry.record.problems))
                else:
                    part.handle(entry.record)
