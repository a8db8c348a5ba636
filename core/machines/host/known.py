"""What a host knows of its session, as the records that bring a window up to date: the state that a window would have,
and what it lets go of. Main thread.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from devexplorer.core.base import object_name
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.link import pieces
from devexplorer.core.feature import result_types
from devexplorer.core.files.records import WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.past import past_readings
from devexplorer.core.machines.records import DevicesChanged, Happened, PastEvents, PastMark, PastReadings
from devexplorer.core.records import (
    Answer,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchReady,
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

MOST_POINTS = 5_000
"""Of one run, those that finished a shape or a copy; of the others the newest is enough: its curve comes apart."""
MOST_RUNS = 50
"""That have ended."""
LOG_LINES = 300
MOST_COMMANDS = 256
"""Of windows, the latest, whose end can be told again."""
TOLD_AGAIN = (JobStarted, BenchReady, Answer, JobEnded)


class _RunEvents:
    """What a window needs to know of a run."""

    def __init__(self, preparing: BenchPreparing) -> None:
        self.preparing = preparing
        self.started: BenchStarted | None = None
        self.finished: deque[BenchPoint] = deque(maxlen=MOST_POINTS)
        self.latest: BenchPoint | None = None
        self.ended: BenchEnded | None = None

    def take(self, event: BenchStarted | BenchPoint | BenchEnded) -> None:
        """Take over what happened to it."""
        match event:
            case BenchStarted():
                self.started = event
            case BenchPoint():
                self.latest = event
                if event.finished is not None:
                    self.finished.append(event)
            case BenchEnded():
                self.ended = event

    def lost(self, event: EngineLost) -> None:
        """The engine ended, and the run with it."""
        if self.ended is None:
            run, now = self.preparing.run, event.time_unix_s
            self.ended = BenchEnded(run=run, time_unix_s=now, result=None, reason=event.reason)

    def events(self) -> Iterator[Event]:
        """The same again."""
        yield self.preparing
        if self.started is not None:
            yield self.started
        yield from self.finished
        if self.latest is not None and self.latest not in self.finished:
            yield self.latest
        if self.ended is not None:
            yield self.ended


class Known:
    """`follow` what the session tells; `records` are what a new window gets."""

    def __init__(self) -> None:
        self.state = State()
        self._files = self.state.part(FilesState)
        self._retained = RetainedEvents()
        self._catalog: Catalog | None = None
        self._runs: dict[int, _RunEvents] = {}
        """Of this session, in their order."""
        self._results: dict[tuple[type, str], Event] = {}
        """The latest result of each kind about each object."""
        self._lost: EngineLost | None = None
        """Until what the engine held is there again: why it ended."""
        self._answer: Answer | None = None
        self._commands: dict[int, list[Event]] = {}
        """What was said of the latest commands of windows, by request."""

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
        if isinstance(event, TOLD_AGAIN) and event.request in self._commands:
            self._commands[event.request].append(event)
        match event:
            case BenchPreparing():
                self._runs[event.run] = _RunEvents(event)
            case BenchStarted() | BenchPoint() | BenchEnded() if event.run in self._runs:
                self._runs[event.run].take(event)
                self._forget_runs()
            case Rebuilt():
                self._lost = None
            case EngineLost():
                self._lost = event
                for run in self._runs.values():
                    run.lost(event)
                self._results.clear()
                for request, said in self._commands.items():
                    if not any(isinstance(one, JobEnded) for one in said):
                        said.append(JobEnded(request=request, ok=False, time_unix_s=event.time_unix_s))
            case ObjectRemoved():
                self._results = {key: kept for key, kept in self._results.items() if key[1] != event.name}
            case Answer():
                self._answer = event
            case WorkspaceFile():  # the state knows it, also after an Undo and when the engine is lost
                pass
            case _ if isinstance(event, result_types()):
                self._results[type(event), _subject(event)] = event

    def asked(self, request: int) -> None:
        """A window's command goes to the engine: what is said of it is remembered."""
        self._commands[request] = []
        if len(self._commands) > MOST_COMMANDS:
            del self._commands[next(iter(self._commands))]

    def said_of(self, request: int) -> Sequence[Event] | None:
        """What was said of a command of a window, as far as no snapshot has it; None: it is not remembered."""
        said = self._commands.get(request)
        if said is None:
            return () if request in self.state.jobs else None
        if any(isinstance(event, JobEnded) for event in said):
            return said
        return [event for event in said if isinstance(event, BenchReady)]

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

    def _forget_runs(self) -> None:
        over = [number for number, run in self._runs.items() if run.ended is not None]
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
            yield from run.events()
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
