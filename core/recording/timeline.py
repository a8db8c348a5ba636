"""Random access to a recording: the `State` of the window at any moment, and what follows. No Qt.

One thread at a time, and not the main one: it reads from the disk and computes.

Everything that is no reading is kept in memory. Readings are read in chunks of some seconds through a `State` that
reads along, so that curves hold what the live window drew; the chunks read last are kept as arrays. `advance` goes once
through the whole recording and collects what the coarse rings of the histories need; until it is done a state has only
the curves of the minutes before it.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile
from typing import NamedTuple

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import LastingState
from devexplorer.core.recording.format import DeviceList, Reading, Recorded, RecordedEntry, Recording, by_time
from devexplorer.core.recording.recorded_history import (
    RecordedHistory,
    RecordedReadings,
    RowCollector,
    bins,
    fits,
    monotone,
)
from devexplorer.core.records import (
    AllocatorSample,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    DeviceDetails,
    DeviceSample,
    EngineLost,
    EngineReady,
)
from devexplorer.core.session import Device, Settings, State
from devexplorer.core.telemetry.history import DEVICE_METRICS, GAP_S, READINGS, THROUGHPUT, TIERS, BinRing

CHUNK_FRAMES = 64
"""Half a minute of a recording at 10 Hz."""
CACHE_BYTES = 128 << 20
CONTEXT_FRAMES = 8
"""Before a chunk that is read alone: the last readings of the allocators belong to its first samples."""
LATEST_MS = 2_000
"""How far back the last reading of a device is searched."""
FINE_BINS_S = 2 * 86_400
"""Longer recordings have no bins of the finest ring but for the minutes before the moment: they would take
gigabytes."""
MOST_CHUNKS = 256
"""Chunks that are looked through for the readings of the minutes before a moment."""
SERIAL_BITS = 40
_SHAPES_ROWS = DeviceList | BenchPreparing | BenchStarted | BenchEnded | EngineReady | EngineLost
"""Events without which a `State` could not say which row a reading makes."""
_KINDS = (((*DEVICE_METRICS,), GAP_S), ((THROUGHPUT,), float("inf")))
"""Quantities and gap of `Device.history` and of `Device.throughput`."""

Key = tuple[int, int]
"""A device by its colour, which stays with it whatever it is called, and which of `_KINDS`."""


def apply_record(state: State, record: Recorded) -> None:
    """Apply a record, as the window does."""
    if isinstance(record, DeviceList):
        state.set_catalog(Catalog(record.devices, record.problems))
    else:
        state.apply(record)


class _RowReader:
    """A `State` whose histories only collect rows."""

    def __init__(self, events: Sequence[RecordedEntry]) -> None:
        self.next_chunk = -1
        self._state = State(parts=())
        self._events, self._taken = events, 0
        self._moment = [0]
        self._collectors: dict[Key, RowCollector] = {}

    def events_until(self, at_ms: int) -> Sequence[RecordedEntry]:
        """The events since the last call."""
        first, self._taken = self._taken, bisect_right(self._events, at_ms, lo=self._taken, key=by_time)
        return self._events[first : self._taken]

    def apply(self, entry: RecordedEntry) -> None:
        """One record, in its turn."""
        self._moment[0] = entry.at_ms
        apply_record(self._state, entry.record)
        if isinstance(entry.record, DeviceList):
            for device in self._state.devices.values():
                device.history, device.throughput = (self._collector((device.colour, kind)) for kind in (0, 1))

    def _collector(self, key: Key) -> RowCollector:
        if key not in self._collectors:
            self._collectors[key] = RowCollector(_KINDS[key[1]][0], self._moment)
        return self._collectors[key]

    def take(self) -> dict[Key, RecordedReadings]:
        """The rows since the last call."""
        taken = {key: collector.take() for key, collector in self._collectors.items()}
        return {key: readings for key, readings in taken.items() if len(readings.times)}


@dataclass
class _Chunk:
    """The readings of `CHUNK_FRAMES` frames."""

    rows: dict[Key, RecordedReadings]
    points: list[RecordedEntry]

    @property
    def bytes(self) -> int:
        """Of the arrays."""
        return sum(array.nbytes for readings in self.rows.values() for array in readings)


class RecordingTimeline:
    """Positions are milliseconds since the recording began, from 0 to `length_ms`."""

    def __init__(self, recording: Recording, fresh: Callable[[], State] = State) -> None:
        """`fresh` makes the states, before anything was read into them."""
        self.recording = recording
        self._fresh = fresh
        self._frames = recording.frames
        self._frame_ends = [frame.head.last_ms for frame in self._frames]
        self._details: dict[str, list[RecordedEntry]] = {}
        self._events: list[RecordedEntry] = []
        for entry in recording.events:
            record = entry.record
            (self._details.setdefault(record.device, []) if isinstance(record, DeviceDetails) else self._events).append(
                entry
            )
        self._shaping = [entry for entry in self._events if isinstance(entry.record, _SHAPES_ROWS)]
        self._cache: OrderedDict[int, _Chunk] = OrderedDict()
        self._cached_bytes = 0
        self._reader: _RowReader | None = None
        self._overview = _Overview(fine=recording.last_ms <= FINE_BINS_S * 1000)
        self._overview_reader: _RowReader | None = None
        self._lasting = LastingParts(recording, self.unix_s, fresh)
        self._serial = 0

    @property
    def length_ms(self) -> int:
        """The end of the recording."""
        return self.recording.last_ms

    @property
    def overview_done(self) -> float:
        """How much of the recording the coarse rings know, 0 to 1."""
        chunks = self._count(len(self._frames))
        return self._overview.chunks / chunks if chunks else 1.0

    @property
    def complete(self) -> bool:
        """Whether `advance` has nothing more to do."""
        return self.overview_done >= 1.0 and self._lasting.complete

    def unix_s(self, at_ms: int) -> float:
        """Wall-clock time at a position."""
        if not self._frames:
            return self.recording.header.time_unix_s + at_ms / 1000
        head = self._frames[min(bisect_left(self._frame_ends, at_ms), len(self._frames) - 1)].head
        return head.unix_s + (at_ms - head.last_ms) / 1000

    def advance(self) -> bool:
        """Collect the coarse rings and what lasts of one chunk more; False when they are complete."""
        if self.complete:
            return False
        self._lasting.advance()
        number = self._overview.chunks
        if self.overview_done < 1.0:
            chunk = self._cache.get(number)
            if chunk is None:
                chunk, self._overview_reader = self._read(number, self._overview_reader)
            self._overview.add(chunk.rows)
        return True

    def following(self, at_ms: int) -> Iterator[tuple[int, list[RecordedEntry]]]:
        """What comes after a position, in order: until which position that is all, and the records. The last one
        reaches the end."""
        events = self.recording.events[bisect_right(self.recording.events, at_ms, key=by_time) :]
        taken = 0
        for frame in self._frames[bisect_right(self._frame_ends, at_ms) :]:
            entries = [entry for entry in self.recording.readings(frame) if entry.at_ms > at_ms]
            stop = bisect_right(events, frame.head.last_ms, lo=taken, key=by_time)
            yield min(frame.head.last_ms, self.length_ms - 1), list(merge(events[taken:stop], entries, key=by_time))
            taken = stop
        yield self.length_ms, events[taken:]

    # --- the state at a position

    def is_near(self, at_ms: int) -> bool:
        """Whether the whole state of that moment can be had at once, without reading much."""
        return self._minutes_before(at_ms, may_read=False) is not None

    def knows_before(self, at_ms: int) -> bool:
        """Whether a state of that moment has the curves of everything before it, and what lasts: `advance` has come so
        far."""
        result = self._minutes_before(at_ms, may_read=False)
        return result is not None and result[0] <= self._overview.chunks and self._lasting.knows(at_ms)

    def state_at(self, at_ms: int, *, whole: bool = True) -> State:
        """What the window knew at that moment. Not `whole`: without the readings of the minutes before, which take long
        to be read."""
        latest = self._latest(at_ms)
        first = self._count(self._frame_number(at_ms))
        chunks: list[_Chunk] = []
        if whole:
            result = self._minutes_before(at_ms, may_read=True)
            assert result is not None, "it was allowed to read"
            first, chunks = result
            points = [entry for chunk in chunks for entry in chunk.points if entry.at_ms <= at_ms]
            latest = [*points, *(entry for entry in latest if not isinstance(entry.record, BenchPoint))]
            latest.sort(key=by_time)
        state, devices = self._fresh(), dict[int, Device]()
        for entry in merge(self._events_until(at_ms), latest, key=by_time):
            apply_record(state, entry.record)
            if isinstance(entry.record, DeviceList):
                devices |= {device.colour: device for device in state.devices.values()}
        self._serial += 1
        parts = [chunk.rows for chunk in chunks]
        for device in devices.values():
            device.history = self._history((device.colour, 0), first, parts, at_ms)
            device.throughput = self._history((device.colour, 1), first, parts, at_ms)
        self._lasting.follow(state.settings)
        state.take_parts(self._lasting.at(at_ms))
        return state

    def _history(
        self, key: Key, first: int, parts: Sequence[dict[Key, RecordedReadings]], at_ms: int
    ) -> RecordedHistory:
        metrics, gap_s = _KINDS[key[1]]
        result = [rows[key] for rows in parts if key in rows]
        readings = RecordedReadings.joined(result).until(at_ms) if result else RecordedReadings.none(len(metrics))
        before = self._overview.before(key, first)
        return RecordedHistory(metrics, readings, before, self.unix_s(at_ms), gap_s, self._serial << SERIAL_BITS)

    def _events_until(self, at_ms: int) -> list[RecordedEntry]:
        """Everything that is no reading; of what a device says about itself only the last."""
        events = self._events[: bisect_right(self._events, at_ms, key=by_time)]
        for details in self._details.values():
            events += details[: bisect_right(details, at_ms, key=by_time)][-1:]
        events.sort(key=by_time)
        return events

    def _latest(self, at_ms: int) -> list[RecordedEntry]:
        """The last reading of each kind of each device, unless it has been silent for long."""
        result: dict[tuple[type, str], RecordedEntry] = {}
        silent = set(self._devices_at(at_ms))
        number = self._frame_number(at_ms)
        for frame in reversed(self._frames[max(number + 1 - CHUNK_FRAMES, 0) : number + 1]):
            if not silent and frame.head.last_ms < at_ms - LATEST_MS:
                break
            for entry in reversed(self.recording.readings(frame)):
                record = entry.record
                if entry.at_ms <= at_ms and isinstance(record, Reading):
                    result.setdefault((type(record), record.device), entry)
                    silent.discard(record.device)
        return sorted(result.values(), key=by_time)

    def _devices_at(self, at_ms: int) -> list[str]:
        lists = [entry.record for entry in self._shaping[: bisect_right(self._shaping, at_ms, key=by_time)]]
        last = next((record for record in reversed(lists) if isinstance(record, DeviceList)), None)
        return [info.id for info in last.devices] if last is not None else []

    # --- chunks

    def _frame_number(self, at_ms: int) -> int:
        """The last frame that has something from before that moment, or that moment itself; -1: none."""
        return bisect_right(self._frames, at_ms, key=lambda frame: frame.head.first_ms) - 1

    @staticmethod
    def _count(frames: int) -> int:
        """Chunks that so many frames are in."""
        return -(-frames // CHUNK_FRAMES)

    def _minutes_before(self, at_ms: int, *, may_read: bool) -> tuple[int, list[_Chunk]] | None:
        """Chunks until that moment with as many readings as a history keeps, and the number of the first. None: they
        must be read."""
        chunks: list[_Chunk] = []
        numbers: Counter[Key] = Counter()
        stop = self._count(self._frame_number(at_ms) + 1)
        number = stop
        while number > 0 and max(numbers.values(), default=0) < READINGS and stop - number < MOST_CHUNKS:
            number -= 1
            chunk = self._cached(number, may_read=may_read)
            if chunk is None:
                return None
            chunks.append(chunk)
            if number < stop - 1:  # the last one goes on after that moment
                numbers.update({key: len(readings.times) for key, readings in chunk.rows.items()})
        return number, chunks[::-1]

    def _cached(self, number: int, *, may_read: bool) -> _Chunk | None:
        chunk = self._cache.get(number)
        if chunk is None and may_read:
            chunk, self._reader = self._read(number, self._reader)
            self._cache[number] = chunk
            self._cached_bytes += chunk.bytes
            while self._cached_bytes > CACHE_BYTES and len(self._cache) > 1:
                self._cached_bytes -= self._cache.popitem(last=False)[1].bytes
        elif chunk is not None:
            self._cache.move_to_end(number)
        return chunk

    def _read(self, number: int, reader: _RowReader | None) -> tuple[_Chunk, _RowReader]:
        """Read a chunk through a `State`: that of the chunk before when there is one, else one that gets to know what
        came before."""
        frames = self._frames[number * CHUNK_FRAMES : (number + 1) * CHUNK_FRAMES]
        if reader is None or reader.next_chunk != number:
            reader = self._reader_before(number)
        points: list[RecordedEntry] = []
        for frame in frames:
            entries = self.recording.readings(frame)
            for entry in merge(reader.events_until(frame.head.last_ms), entries, key=by_time):
                reader.apply(entry)
            points += [entry for entry in entries if isinstance(entry.record, BenchPoint)]
        reader.next_chunk = number + 1
        return _Chunk(reader.take(), points), reader

    def _reader_before(self, number: int) -> _RowReader:
        reader = _RowReader(self._shaping)
        start = number * CHUNK_FRAMES
        for entry in reader.events_until(self._frames[start].head.first_ms):
            reader.apply(entry)
        for frame in self._frames[max(start - CONTEXT_FRAMES, 0) : start]:
            for entry in self.recording.readings(frame):
                if isinstance(entry.record, AllocatorSample):
                    reader.apply(entry)
        reader.take()
        return reader


class _Overview:
    """The bins of every device for the coarse rings, for all of the recording, as far as it was read."""

    def __init__(self, *, fine: bool) -> None:
        self.chunks = 0
        self._grids = [seconds for seconds, _ in TIERS] if fine else [TIERS[-1][0]]
        self._bins: dict[Key, list[tuple[int, list[BinRing]]]] = {}
        """With the chunk from which on they are: a clock that was set back begins others."""

    def add(self, rows: dict[Key, RecordedReadings]) -> None:
        """Take in the next chunk."""
        for key, readings in rows.items():
            start, times = monotone(readings.times)
            begun = self._bins.setdefault(key, [])
            if start or not begun or not all(fits(ring, times) for ring in begun[-1][1]):
                begun.append((self.chunks, [bins(readings.rows.shape[1], seconds) for seconds in self._grids]))
            for ring in begun[-1][1]:
                ring.add(times, readings.rows[start:])
        self.chunks += 1

    def before(self, key: Key, chunk: int) -> list[BinRing | None]:
        """The bins for each of `TIERS` of what is before a chunk; None where there is nothing before, or it was not
        read yet."""
        nothing: list[BinRing | None] = [None] * len(TIERS)
        begun = [rings for first, rings in self._bins.get(key, []) if first < chunk]
        if self.chunks < chunk or not begun:
            return nothing
        return [*nothing[: len(TIERS) - len(self._grids)], *begun[-1]]


# What lasts in a recording, at any moment: its readings are judged once from the beginning, and where that has come
# to is kept now and then. One thread at a time, and not the main one; no Qt.
#
# An alert can have begun hours before: a reading between the two limits of its rule neither raises nor ends it. So a
# look at the readings just before a moment would miss it.

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
        said: Iterable[RecordedEntry] = takewhile(lambda entry: entry.at_ms <= until_ms, self._said[begin:])
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
