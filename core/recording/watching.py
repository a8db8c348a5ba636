"""Records what `devexplorer watch` reads. Main thread; the recorder has threads of its own."""

from __future__ import annotations

import argparse
import os
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from pathlib import Path

from devexplorer.core.base import BadInput, bytes_text
from devexplorer.core.cli.startup import say
from devexplorer.core.recording.recorder import Recorder
from devexplorer.core.records import Event
from devexplorer.core.watch.devices import WatchedDevices
from devexplorer.core.watch.table import WatchReading

CLOSE_S = 2.0
"""For the disk to take the end of a recording."""


class Watched:
    """`begin`, then `take` after each reading."""

    def __init__(self, _arguments: argparse.Namespace, text: str) -> None:
        """Raises `BadInput`."""
        self._path = Path(text)
        if not text.strip() or os.path.isdir(self._path):
            raise BadInput(f"--record '{text}' is not a file; name a file that is not there yet")
        if not os.path.isdir(self._path.parent):
            raise BadInput(f"--record '{text}': there is no folder '{self._path.parent}'; make it first")

    def begin(self, devices: WatchedDevices, ending: ExitStack) -> None:
        """Raises `BadInput` where the file cannot be made."""
        self._devices = devices
        self._listed = devices.infos, devices.problems
        self._recorder = Recorder(self._path, devices.infos, on_problem=say, problems=devices.problems)
        ending.callback(self._end)

    def take(self, _readings: Sequence[WatchReading], events: Iterable[Event]) -> None:
        """What was read."""
        if (listed := (self._devices.infos, self._devices.problems)) != self._listed:
            self._listed = listed
            self._recorder.put_devices(*listed)
        for event in events:
            self._recorder.put(event)

    @property
    def failed(self) -> bool:
        """Whether it has ended by itself, and said why."""
        return self._recorder.problem is not None

    def _end(self) -> None:
        recorder = self._recorder
        if recorder.close(CLOSE_S):
            say(f"recorded {bytes_text(recorder.bytes_written)}; show it with: devexplorer --replay {recorder.path}")
        elif recorder.problem is None:
            say(f"the disk did not take the end of {recorder.path} in time; what it has can be replayed")
