"""Makes the engine processes of a host, in the Python that was chosen for them. Main thread."""

from __future__ import annotations

import sys
from collections.abc import Sequence

from devexplorer.core.base.module_command import module_command
from devexplorer.core.engine.process import EngineProcess
from devexplorer.core.environments.environment import environ_for
from devexplorer.core.environments.in_use import note_use
from devexplorer.core.records import EventSink

ENGINE = "devexplorer.core.engine"


class Engines:
    """What a `Session` makes its engines with."""

    def __init__(self) -> None:
        self.python = sys.executable
        """What the next engine runs in."""
        self._prefix: tuple[str, ...] | None = None

    def choose(self, python: str, prefix: Sequence[str]) -> None:
        """From the next engine on, use this Python; `prefix` starts a module of ours in it."""
        self.python, self._prefix = python, tuple(prefix)

    def note_use(self) -> None:
        """Say that what is started here and there may not be removed."""
        for command in (module_command(ENGINE), self._prefix or ()):
            note_use(command)

    def __call__(self, put: EventSink, virtual_spec: str | None, visible_devices: str | None) -> EngineProcess:
        """A process that has not been started."""
        if self._prefix is None:
            return EngineProcess(put, virtual_spec, visible_devices)
        command = [*self._prefix, ENGINE]
        return EngineProcess(put, virtual_spec, visible_devices, command=command, environ=environ_for(self.python))
