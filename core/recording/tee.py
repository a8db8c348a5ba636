"""Copies what a session tells to the recorder, including readings that the mailbox drops. No Qt, no torch.

Readings are copied when they are put, on any thread; everything else when the window sees it, on the main thread.
Events that remain valid until replaced are retained, so that a recording that starts later begins with them.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, cast

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.feature import Listener
from devexplorer.core.recording.format import Reading
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.records import DeviceSample, Event, Log
from devexplorer.core.session.poll import RetainedEvents

if TYPE_CHECKING:
    from devexplorer.core.session.poll import PollResult
    from devexplorer.core.session.session import Session


class RecordingTee(Listener):
    """Between `start_recording` and `stop_recording` everything is recorded."""

    def __init__(self, session: Session) -> None:
        super().__init__(session)
        self._retained = RetainedEvents()
        self._catalog = Catalog()
        self._recorder: Recorder | None = None
        self._ending: list[Recorder] = []

    @property
    def recording(self) -> Recorder | None:
        """The current recorder; None if nothing is recorded or recording has failed."""
        return self._recorder if self._recorder is not None and self._recorder.problem is None else None

    @property
    def eager(self) -> bool:
        """Every reading is recorded."""
        return self.recording is not None

    def put(self, event: Event) -> None:
        """Any thread; never waits."""
        recorder = self._recorder
        if recorder is not None and isinstance(event, Reading):
            recorder.put(self.session.completed(event) if isinstance(event, DeviceSample) else cast("Event", event))

    def drained(self, result: PollResult) -> None:
        """What the window gets. Main thread; readings were taken by `put`."""
        if result.catalog is not None:
            self._catalog = result.catalog
            if self._recorder is not None:
                self._recorder.put_devices(self._catalog.devices, self._catalog.problems)
        for event in result.events:
            if not isinstance(event, Reading):
                self._retained.take(event)
                if self._recorder is not None:
                    self._recorder.put(event)

    def start_recording(self, path: Path, *, overwrite: bool = False) -> None:
        """Record everything from now on, instead of into another file. Raises `BadInput` with one line when the file
        cannot be made. When the disk is full or the file vanishes later, it ends with a `Log` of level error."""
        recorder = Recorder(
            path, self._catalog.devices, problems=self._catalog.problems, on_problem=self._failed, overwrite=overwrite
        )
        self._end()
        for event in self._retained.events():
            recorder.put(event)
        self._recorder = recorder
        self.session.on_event = (*self.session.on_event, self.put)
        self.session.set_pace()

    def stop_recording(self) -> None:
        """End the recording; the end of its file is written soon after."""
        self._end()
        self.session.set_pace()

    def _end(self) -> None:
        if self._recorder is not None:
            self._recorder.close(0.0)
            self._ending = [*(recorder for recorder in self._ending if not recorder.closed), self._recorder]
            self._recorder = None
            self.session.on_event = tuple(tell for tell in self.session.on_event if tell != self.put)

    def _failed(self, problem: str) -> None:
        self.session.put(Log(level="error", text=problem, time_unix_s=time.time()))

    def close(self, deadline_s: float) -> bool:
        """Stop recording and wait until every file is complete; False if a disk took too long."""
        self._end()
        in_time = True
        for recorder in self._ending:
            in_time &= recorder.close(deadline_s)
        return in_time
