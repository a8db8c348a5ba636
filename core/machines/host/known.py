"""What a host knows of its session, as the records that bring a window up to date: the state that a window would have,
histories, which the window reads back here, and what it lets go of. Main thread; of a window or its link, too.

The last two minutes in steps of a second, ten minutes of four seconds, an hour of twenty. Values keep 16 bits of their
mantissa: 1 MiB of 80 GiB, and fewer bytes when they are compressed.
"""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator

import numpy as np
from msgspec.structs import replace

from devexplorer.core.base import LinkError, object_name
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.link import pieces
from devexplorer.core.feature import result_types
from devexplorer.core.files.records import WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.records import DevicesChanged, Happened, PastEvents, PastMark, PastReadings
from devexplorer.core.records import (
    Answer,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchStarted,
    EngineLost,
    Event,
    JobEnded,
    JobProgress,
    JobStarted,
    ObjectChanged,
    ObjectRemoved,
    Rebuilt,
    UndoState,
)
from devexplorer.core.records.base import Record
from devexplorer.core.session.poll import PollResult, RetainedEvents
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.history import Floats, History

STEPS = ((3600.0, 20.0), (600.0, 4.0), (120.0, 1.0))
"""How many seconds ago steps of so many seconds begin."""
MOST_ROWS, MOST_METRICS = 4096, 64
LARGEST = 1e18
_KEPT_BITS = np.uint32(0xFFFFFF80)


def past_readings(device: str, history: History) -> PastReadings | None:
    """What there is of the last hour; None: nothing."""
    metrics, now = history.metrics[:MOST_METRICS], history.latest_unix_s
    if not metrics or math.isnan(now):
        return None
    times, values = [], []
    last = -math.inf
    for (begin, step), end in zip(STEPS, (*(begin for begin, _ in STEPS[1:]), 0.0), strict=True):
        window = history.table(metrics, now - begin, now - end)
        inside = (window.times > last) & (window.times <= now)
        if inside.any():
            part_times, part_values = _means(window.times[inside], window.mean[inside], step)
            times.append(part_times)
            values.append(part_values)
            last = float(part_times[-1])
    all_times = np.concatenate(times)
    kept = np.concatenate(values).T.astype("<f4", order="C").view("<u4") & _KEPT_BITS
    start = float(all_times[0])
    return PastReadings(
        device=device, start_unix_s=start, after_s=(all_times - start).astype("<f4").tobytes(), metrics=metrics,
        values=kept.tobytes(),
    )  # fmt: skip


def _means(times: Floats, values: Floats, step: float) -> tuple[Floats, Floats]:
    """One row for each step in which there are any: the mean of what is known, at the time of the last. A gap stays."""
    groups, known = np.floor(times / step), ~np.isnan(values)
    is_gap = np.logical_not(known.any(axis=1))
    begins = np.ones(len(times), dtype=np.bool_)
    begins[1:] = (groups[1:] != groups[:-1]) | (is_gap[1:] != is_gap[:-1])
    starts = np.flatnonzero(begins)
    counts = np.add.reduceat(known.astype(np.float64), starts)
    sums = np.add.reduceat(np.where(known, values, 0.0), starts)
    ends = np.append(starts[1:], len(times)) - 1
    return times[ends], np.divide(sums, counts, out=np.full(sums.shape, np.nan), where=counts > 0)


def unpacked(past: PastReadings) -> tuple[Floats, Floats]:
    """Times, and a row of values for each; `LinkError` when it is not what it should be."""
    count, rest = divmod(len(past.after_s), 4)
    metrics = len(past.metrics)
    if rest or count > MOST_ROWS or not 0 < metrics <= MOST_METRICS or len(past.values) != 4 * count * metrics:
        raise LinkError("past readings were refused: their sizes do not fit")
    after = np.frombuffer(past.after_s, dtype="<f4").astype(np.float64)
    values = np.frombuffer(past.values, dtype="<f4").reshape(metrics, count).T.astype(np.float64)
    in_order = bool(np.all(np.isfinite(after)) and np.all(np.diff(after) >= 0)) and (not count or after[0] >= 0)
    if not in_order or (count and after[-1] > 2 * STEPS[0][0]) or bool((np.abs(values) > LARGEST).any()):
        raise LinkError("past readings were refused: they hold times or values that cannot be shown")
    return past.start_unix_s + after, values


MOST_POINTS = 5_000
"""Of one run, those that finished a shape or a copy; of the others the newest is enough: its curve comes apart."""
MOST_RUNS = 50
"""That have ended."""
LOG_LINES = 300


class Known:
    """`follow` what the session tells; `records` are what a new window gets."""

    def __init__(self) -> None:
        self.state = State()
        self._files = self.state.part(FilesState)
        self._retained = RetainedEvents()
        self._catalog: Catalog | None = None
        self._runs: dict[int, list[Event]] = {}
        """What happened to the runs of this session, in their order."""
        self._results: dict[tuple[type, str], Event] = {}
        """The latest result of each kind about each object."""
        self._lost: EngineLost | None = None
        """Until what the engine held is there again: why it ended."""
        self._answer: Answer | None = None
        self.running: set[int] = set()
        """The requests of windows' commands that have not ended."""

    def follow(self, result: PollResult) -> None:
        """Take over what happened."""
        if result.catalog is not None:
            self._catalog = result.catalog
            self.state.set_catalog(result.catalog)
        for event in result.events:
            try:
                self._take(event)
            except Exception:  # one bad event must not cost the others: said as any other fault, and on
                sys.excepthook(*sys.exc_info())

    def _take(self, event: Event) -> None:
        self.state.apply(event)
        self._retained.take(event)
        match event:
            case BenchPreparing():
                self._runs[event.run] = [event]
            case BenchStarted() | BenchPoint() | BenchEnded() if event.run in self._runs:
                self._take_of_run(self._runs[event.run], event)
                self._forget_runs()
            case Rebuilt():
                self._lost = None
            case EngineLost():
                self._lost = event
                for number, run in self._runs.items():
                    ended = BenchEnded(run=number, time_unix_s=event.time_unix_s, result=None, reason=event.reason)
                    self._take_of_run(run, ended)
                self._results.clear()
                self.running.clear()
            case JobEnded():
                self.running.discard(event.request)
            case ObjectRemoved():
                self._results = {key: kept for key, kept in self._results.items() if key[1] != event.name}
            case Answer():
                self._answer = event
            case WorkspaceFile():  # the state knows it, also after an Undo and when the engine is lost
                pass
            case _ if isinstance(event, result_types()):
                self._results[type(event), _subject(event)] = event

    def asked(self, request: int) -> None:
        """A window's command goes to the engine."""
        self.running.add(request)

    def devices(self) -> DevicesChanged:
        """The list of devices as it is now."""
        catalog = self._catalog
        return DevicesChanged(devices=() if catalog is None else tuple(catalog.devices),
                              problems=() if catalog is None else catalog.problems)  # fmt: skip

    def records(self) -> Iterator[Record]:
        """Everything, in an order in which a window can take it."""
        yield self.devices()
        for event in self._events():
            for piece in pieces(event):
                yield Happened(event=piece)
        marks = tuple(PastMark(*mark) for mark in self.state.markers)
        yield PastEvents(marks=marks)

    def past(self) -> Iterator[PastReadings]:
        """What was read until now, for the curves of a window that was not there."""
        for name, device in self.state.devices.items():
            for history in (device.history, device.throughput):
                if (past := past_readings(name, history)) is not None:
                    yield past

    def _take_of_run(self, run: list[Event], event: Event) -> None:
        if isinstance(run[-1], BenchEnded):
            return
        if isinstance(event, BenchPoint) and isinstance(run[-1], BenchPoint) and run[-1].finished is None:
            run.pop()
        run.append(event)
        if len(run) > MOST_POINTS:
            del run[2]  # behind its beginning

    def _forget_runs(self) -> None:
        over = [number for number, run in self._runs.items() if isinstance(run[-1], BenchEnded)]
        for number in over[:-MOST_RUNS]:
            del self._runs[number]

    def _events(self) -> Iterator[Event]:
        state = self.state
        yield from list(state.log)[-LOG_LINES:]
        if self._lost is not None:
            yield from self._before_loss()
            yield self._lost
        yield from (event for event in self._retained.events() if not isinstance(event, BenchPreparing | BenchStarted))
        for run in self._runs.values():
            yield from run
        for device in state.devices.values():
            yield from (reading for reading in (device.sample, device.allocator) if reading is not None)
        for snapshot in state.objects.values():
            yield ObjectChanged(snapshot=snapshot)
        yield from self._results.values()
        if self._lost is None and self._files.workspace_file is not None:
            yield self._files.workspace_file
        yield self._undo()
        if self._answer is not None:
            yield self._answer
        for job in state.jobs.values():
            yield JobStarted(request=job.request, title=job.title, time_unix_s=job.started_unix_s, command=job.command)
            if job.done is not None:
                yield JobProgress(request=job.request, done=job.done, text=job.text, part=job.part)
        yield from state.past()

    def _undo(self) -> UndoState:
        """As if it had come with the file of the workspace, where that holds everything: so a window knows it too."""
        file, changed = self._files.workspace_file, self._files.changed
        return replace(self.state.undo, request=0 if file is None or changed else file.request)

    def _before_loss(self) -> Iterator[Event]:
        """What the workspace was when the engine ended: whether its file had everything decides what is said of it when
        it is rebuilt."""
        file, changed = self._files.workspace_file, self._files.was_changed
        if file is not None:
            yield file
        yield UndoState(title=None, kept_bytes=0, contents=int(changed or file is not None),
                        request=0 if file is None or changed else file.request)  # fmt: skip


def _subject(event: Event) -> str:
    """The name of the object that a result is about; empty: it is the only one of its kind."""
    return object_name(getattr(event, "target", ""))
