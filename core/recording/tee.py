"""Passes events to the mailbox and copies them to the recorder, including those that the mailbox drops. No Qt, no
torch.

Readings are copied when they are put, on any thread; everything else when the window sees it, on the main thread.
Events that remain valid until replaced are retained, so that a recording that starts later begins with them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.recording.format import Reading
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.records import (
    BenchEnded,
    BenchPreparing,
    BenchStarted,
    DeviceDetails,
    DeviceSample,
    EngineLost,
    EngineReady,
    Event,
    EventSink,
    Topology,
)

_RETAINED: dict[type, Callable[[Any], object]] = {
    DeviceDetails: lambda event: event.device,
    Topology: lambda event: event.source,
    EngineReady: lambda event: None,
    BenchPreparing: lambda event: event.run,
    BenchStarted: lambda event: event.run,
}
"""Events that are valid until the next one of the same kind with the same key."""
_OF_THE_ENGINE = (EngineReady, BenchPreparing, BenchStarted)


class RetainedEvents:
    """The latest events that are still valid: engine, details, topology, unfinished runs."""

    def __init__(self) -> None:
        self._events: dict[tuple[type, object], Event] = {}

    def take(self, event: Event) -> None:
        """Retain it, or drop what it ends."""
        key = _RETAINED.get(type(event))
        if key is not None:
            self._events[type(event), key(event)] = event
        elif isinstance(event, BenchEnded):
            self._events.pop((BenchPreparing, event.run), None)
            self._events.pop((BenchStarted, event.run), None)
        elif isinstance(event, EngineLost):
            self._events = {key: kept for key, kept in self._events.items() if key[0] not in _OF_THE_ENGINE}

    def events(self) -> list[Event]:
        """What a new recording starts with."""
        return list(self._events.values())


class RecordingTee:
    """`put` passes everything to the mailbox; between `start` and `stop` it is also recorded."""

    def __init__(
        self, put: EventSink, completed: Callable[[DeviceSample], DeviceSample] = lambda sample: sample
    ) -> None:
        """`completed` adds the fields to a sample that the window adds; any thread."""
        self._pass_on, self._completed = put, completed
        self._retained = RetainedEvents()
        self._catalog = Catalog()
        self._recorder: Recorder | None = None
        self._ending: list[Recorder] = []

    @property
    def recorder(self) -> Recorder | None:
        """The current recorder; None if nothing is recorded or recording has failed."""
        return self._recorder if self._recorder is not None and self._recorder.problem is None else None

    def put(self, event: Event) -> None:
        """Any thread; never waits."""
        recorder = self._recorder
        if recorder is not None and isinstance(event, Reading):
            recorder.put(self._completed(event) if isinstance(event, DeviceSample) else cast("Event", event))
        self._pass_on(event)

    def set_catalog(self, catalog: Catalog) -> None:
        """What devices the window has from now on. Main thread."""
        self._catalog = catalog
        if self._recorder is not None:
            self._recorder.put_devices(catalog.devices, catalog.problems)

    def take(self, event: Event) -> None:
        """What the window gets. Main thread; readings were taken by `put`."""
        if not isinstance(event, Reading):
            self._retained.take(event)
            if self._recorder is not None:
                self._recorder.put(event)

    def start(self, path: Path, on_problem: Callable[[str], None], *, overwrite: bool) -> Recorder:
        """Start recording; a running recording ends. Raises `BadInput` if the file cannot be created."""
        recorder = Recorder(
            path, self._catalog.devices, problems=self._catalog.problems, on_problem=on_problem, overwrite=overwrite
        )
        self.stop()
        for event in self._retained.events():
            recorder.put(event)
        self._recorder = recorder
        return recorder

    def stop(self) -> None:
        """Stop recording without waiting for the end of the file to be written."""
        if self._recorder is not None:
            self._recorder.close(0.0)
            self._ending = [*(recorder for recorder in self._ending if not recorder.closed), self._recorder]
            self._recorder = None

    def close(self, deadline_s: float) -> bool:
        """Stop recording and wait until every file is complete; False if a disk took too long."""
        self.stop()
        in_time = True
        for recorder in self._ending:
            in_time &= recorder.close(deadline_s)
        return in_time
