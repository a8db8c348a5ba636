"""Passes events to the mailbox and copies them to the recorder, including those that the mailbox drops. No Qt, no
torch.

Readings are copied when they are put, on any thread; everything else when the window sees it, on the main thread.
Events that remain valid until replaced are retained, so that a recording that starts later begins with them.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import cast

from devexplorer.core.base.event_handlers import EventHandlers, handles
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.recording.format import Reading
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.records.devices import DeviceDetails, DeviceSample, Topology
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted, EngineLost, EngineReady, Event


class RetainedEvents(EventHandlers):
    """The latest events that are still valid: engine, details, topology, unfinished runs."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, object], Event] = {}

    @handles(DeviceDetails)
    def _details(self, event: DeviceDetails) -> None:
        self._events["details", event.device] = event

    @handles(Topology)
    def _topology(self, event: Topology) -> None:
        self._events["topology", event.source] = event

    @handles(EngineReady)
    def _engine_ready(self, event: EngineReady) -> None:
        self._events["engine", None] = event

    @handles(BenchPreparing)
    def _preparing(self, event: BenchPreparing) -> None:
        self._events["preparing", event.run] = event

    @handles(BenchStarted)
    def _started(self, event: BenchStarted) -> None:
        self._events["started", event.run] = event

    @handles(BenchEnded)
    def _ended(self, event: BenchEnded) -> None:
        self._forget(("preparing", event.run), ("started", event.run))

    @handles(EngineLost)
    def _engine_lost(self, event: EngineLost) -> None:
        self._forget(*(key for key in self._events if key[0] in ("engine", "preparing", "started")))

    def _forget(self, *keys: tuple[str, object]) -> None:
        for key in keys:
            self._events.pop(key, None)

    def events(self) -> list[Event]:
        """What a new recording starts with."""
        return list(self._events.values())


class RecordingTee:
    """`put` passes everything to the mailbox; between `start` and `stop` it is also recorded."""

    def __init__(
        self, put: Callable[[Event], None], completed: Callable[[DeviceSample], DeviceSample] = lambda sample: sample
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
            self._retained.handle(event)
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
