"""The engine in this process, for the command line and for tests: send a command, get its events. Called from one
thread."""

from __future__ import annotations

import queue
import time
from collections.abc import Iterator

import msgspec

from devexplorer.core.base import BadInput, LinkError
from devexplorer.core.engine.engine import Engine
from devexplorer.core.engine.link import Joiner, over_the_link
from devexplorer.core.records import AddVirtual, Answer, Command, Event, JobEnded, Log


class LocalEngine:
    """A context manager around an `Engine`; `events` holds everything that came and was not asked for yet."""

    def __init__(self, virtual_spec: str | None = None, *, sampling_seconds: float | None = None) -> None:
        self._events: queue.SimpleQueue[Event] = queue.SimpleQueue()
        self._joiner = Joiner()
        self.engine = Engine(self._receive, virtual_spec=virtual_spec, sampling_seconds=sampling_seconds)
        self._requests = 0

    def _receive(self, event: Event) -> None:
        """Through the link's encoding, so that what could not cross it does not pass here either."""
        try:
            for arrived in over_the_link(event, self._joiner):
                self._events.put(arrived)
        except (LinkError, TypeError, ValueError, OverflowError) as error:  # a bug; the job continues
            text = f"{type(event).__name__} could not be sent: {error}"
            self._events.put(Log(level="error", text=text, time_unix_s=time.time()))

    def __enter__(self) -> LocalEngine:
        self.engine.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.engine.close()

    def send(self, command: Command) -> int:
        """Send a command; returns its request number."""
        self._requests += 1
        self.engine.submit(msgspec.structs.replace(command, request=self._requests))
        return self._requests

    def events(self, request: int, timeout_s: float | None = None) -> Iterator[Event]:
        """Every event as it comes, until the command has ended; raises `queue.Empty` when nothing comes for
        `timeout_s`."""
        while True:
            event = self._events.get(timeout=timeout_s)
            yield event
            if isinstance(event, JobEnded) and event.request == request:
                return

    def run(self, command: Command, timeout_s: float | None = 60.0) -> list[Event]:
        """Send a command and wait until it has ended."""
        return list(self.events(self.send(command), timeout_s))

    def demand(self, command: Command) -> list[Event]:
        """As `run`, and raise `BadInput` with the engine's words when it was refused or failed."""
        events = self.run(command, None)
        for event in events:
            if isinstance(event, Answer) and event.failed:
                raise BadInput(
                    event.words, virtual_helps=any(isinstance(offer.command, AddVirtual) for offer in event.offers)
                )
        return events
