"""An engine for window tests: the real `Engine`, in this process, behind the interface of `EngineProcess`."""

from __future__ import annotations

from collections.abc import Callable

from devexplorer.core.engine.engine import Engine
from devexplorer.core.engine.link import Joiner, over_the_link
from devexplorer.core.records import Command, EngineLost, Event


class EngineHere:
    """Everything is encoded for the link, as between processes. No sampling thread: the test requests readings."""

    def __init__(
        self, put: Callable[[Event], None], virtual_spec: str | None, visible_devices: str | None = None
    ) -> None:
        self._put = put
        self._joiner = Joiner()
        self.engine = Engine(
            self._receive, virtual_spec=virtual_spec, visible_devices=visible_devices, sampling_seconds=None
        )

    def _receive(self, event: Event) -> None:
        for arrived in over_the_link(event, self._joiner):
            self._put(arrived)

    def start(self) -> None:
        """Start its threads."""
        self.engine.start()

    def send(self, command: Command) -> None:
        """Take a command."""
        self.engine.submit(command)

    def kill(self) -> None:
        """As if the process had died."""
        self.engine.close()
        if self.engine.machine is not None:
            self.engine.machine.reset()
        self._put(
            EngineLost(
                reason="The engine ended by signal SIGKILL.", will_restart=False, time_unix_s=self.engine.clock()
            )
        )

    def close(self) -> None:
        """End its threads."""
        self.engine.close()

    def join(self, deadline_s: float) -> bool:
        """Ended by `close`."""
        return True

    def beat(self) -> None:
        """There is no process to renice."""
