"""Between everybody who puts events and the mailbox: what is recorded is taken here, also what the mailbox will drop.
No Qt, no torch.

Readings are taken where they are put, on any thread. Everything else is taken as the window sees it, on the main
thread. What stays true until something else is said is remembered, so that a recording that begins later can be told it
first.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import cast

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.recording.format import Reading
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.records.devices import DeviceDetails, DeviceSample, Topology
from devexplorer.core.records.messages import BenchEnded, BenchPreparing, BenchStarted, EngineLost, EngineReady, Event


class RetainedEvents:
    """The newest of everything that holds until further notice: the engine, details, topology, runs that have not
    ended."""

    def __init__(self) -> None:
        self._events: dict[tuple[str, object], Event] = {}

    def see(self, event: Event) -> None:
        """Remember, or forget."""
        match event:
            case DeviceDetails(device=device):
                self._events["details", device] = event
            case Topology(source=source):
                self._events["topology", source] = event
            case EngineReady():
                self._events["engine", None] = event
            case BenchPreparing(run=run):
                self._events["preparing", run] = event
            case BenchStarted(run=run):
                self._events["started", run] = event
            case BenchEnded(run=run):
                self._forget(("preparing", run), ("started", run))
            case EngineLost():
                self._forget(*(key for key in self._events if key[0] in ("engine", "preparing", "started")))

    def _forget(self, *keys: tuple[str, object]) -> None:
        for key in keys:
            self._events.pop(key, None)

    def events(self) -> list[Event]:
        """What a newcomer has to be told."""
        return list(self._events.values())


class RecordingTee:
    """`put` passes everything on to the mailbox; `start` and `stop` say when it is recorded as well."""

    def __init__(
        self, put: Callable[[Event], None], completed: Callable[[DeviceSample], DeviceSample] = lambda sample: sample
    ) -> None:
        """`completed` adds to a sample what the window will add to it; any thread."""
        self._pass_on, self._completed = put, completed
        self._standing = RetainedEvents()
        self._catalog = Catalog()
        self._recorder: Recorder | None = None
        self._ending: list[Recorder] = []

    @property
    def recorder(self) -> Recorder | None:
        """What records now; None: nothing is recorded, or it had to stop."""
        return self._recorder if self._recorder is not None and self._recorder.problem is None else None

    def put(self, event: Event) -> None:
        """Any thread; never waits."""
        recorder = self._recorder
        if recorder is not None and isinstance(event, Reading):
            recorder.put(self._completed(event) if isinstance(event, DeviceSample) else cast("Event", event))
        self._pass_on(event)

    def seen(self, events: Sequence[Event], catalog: Catalog | None) -> None:
        """What the window gets with this beat. Main thread."""
        if catalog is not None:
            self._catalog = catalog
            if self._recorder is not None:
                self._recorder.put_devices(catalog.devices, catalog.problems)
        for event in events:
            if not isinstance(event, Reading):
                self._standing.see(event)
                if self._recorder is not None:
                    self._recorder.put(event)

    def start(self, path: Path, on_problem: Callable[[str], None], *, overwrite: bool) -> Recorder:
        """Record from now on; what was recorded elsewhere ends. Raises `BadInput` when the file cannot be made."""
        recorder = Recorder(
            path, self._catalog.devices, problems=self._catalog.problems, on_problem=on_problem, overwrite=overwrite
        )
        self.stop()
        for event in self._standing.events():
            recorder.put(event)
        self._recorder = recorder
        return recorder

    def stop(self) -> None:
        """Record no more; the end of the file is written soon, and nobody waits for it."""
        if self._recorder is not None:
            self._recorder.close(0.0)
            self._ending = [*(recorder for recorder in self._ending if not recorder.closed), self._recorder]
            self._recorder = None

    def close(self, deadline_s: float) -> bool:
        """Record no more, and wait until every file has its end; False when a disk took too long."""
        self.stop()
        in_time = True
        for recorder in self._ending:
            in_time &= recorder.close(deadline_s)
        return in_time
