"""What a host knows of its session, as the records that bring a window up to date: the state that a window would have,
and what it lets go of. Main thread.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Iterator
from typing import get_args

from msgspec.structs import replace

from devexplorer.core.base import object_name
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.link import pieces
from devexplorer.core.recording.tee import RetainedEvents
from devexplorer.core.records import (
    Answer,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    EngineLost,
    EngineReady,
    Event,
    JobProgress,
    JobStarted,
    LaboratoryEvent,
    ObjectChanged,
    ObjectRemoved,
    SplitPlanned,
    UndoState,
    ValuesDescribed,
    WorkspaceFile,
)
from devexplorer.core.records.host import DevicesChanged, Happened, Numbered
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.state import State

MOST_POINTS = 50_000
"""Of one run, the newest."""
LOG_LINES = 300
_RESULTS = get_args(LaboratoryEvent)


class Known:
    """`follow` what the session tells; `records` are what a new window gets."""

    def __init__(self) -> None:
        self.state = State()
        self._retained = RetainedEvents()
        self._catalog: Catalog | None = None
        self._points: dict[int, deque[BenchPoint]] = {}
        """Of runs that have not ended."""
        self._results: dict[tuple[type, str], LaboratoryEvent] = {}
        """The latest result of each kind about each object."""
        self._lost: EngineLost | None = None
        """While there is no engine: why."""
        self._answer: Answer | None = None

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
                self._points[event.run] = deque(maxlen=MOST_POINTS)
            case BenchPoint() if event.run in self._points:
                self._points[event.run].append(event)
            case BenchEnded():
                self._points.pop(event.run, None)
            case EngineReady():
                self._lost = None
            case EngineLost():
                self._lost = event
                self._points.clear()
                self._results.clear()
            case ObjectRemoved():
                self._results = {key: kept for key, kept in self._results.items() if key[1] != event.name}
            case Answer():
                self._answer = event
            case _ if isinstance(event, _RESULTS):
                self._results[type(event), _subject(event)] = event

    def devices(self) -> DevicesChanged:
        """The list of devices as it is now."""
        catalog = self._catalog
        return DevicesChanged(devices=() if catalog is None else tuple(catalog.devices),
                              problems=() if catalog is None else catalog.problems)  # fmt: skip

    def records(self) -> Iterator[Numbered]:
        """Everything, in an order in which a window can take it."""
        yield self.devices()
        for event in self._events():
            for piece in pieces(event):
                yield Happened(event=piece)

    def _events(self) -> Iterator[Event]:
        state = self.state
        yield from list(state.log)[-LOG_LINES:]
        if self._lost is not None:
            yield self._lost
        yield from self._retained.events()
        for points in self._points.values():
            yield from points
        for device in state.devices.values():
            yield from (reading for reading in (device.sample, device.allocator) if reading is not None)
        for snapshot in state.objects.values():
            yield ObjectChanged(snapshot=snapshot)
        yield from self._results.values()
        yield self._undo()
        yield from state.answers.values()
        if self._answer is not None and self._answer is not next(reversed(state.answers.values()), None):
            yield self._answer
        for job in state.jobs.values():
            yield JobStarted(request=job.request, title=job.title, time_unix_s=job.started_unix_s, command=job.command)
            if job.done is not None:
                yield JobProgress(request=job.request, done=job.done, text=job.text, part=job.part)

    def _undo(self) -> UndoState:
        """As if it had come with the file of the workspace, where that holds everything: so a window knows it too."""
        state = self.state
        file = self._results.get((WorkspaceFile, ""))
        number = 0 if file is None or state.unsaved.changed else file.request
        return replace(state.undo, request=number)


def _subject(event: LaboratoryEvent) -> str:
    """The name of the object that a result is about; empty: it is the only one of its kind."""
    match event:
        case ValuesDescribed():
            return object_name(event.values.target)
        case SplitPlanned():
            return object_name(event.plan.target)
        case _:
            return object_name(getattr(event, "target", ""))
