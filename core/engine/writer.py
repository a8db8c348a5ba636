"""Sends events over a stream of bytes. The thread `link-out` does, so that a slow window never delays a
measurement."""

from __future__ import annotations

import threading
import time
from typing import Protocol

from devexplorer.core.engine.link import frame, pieces
from devexplorer.core.records import Event, Log
from devexplorer.core.telemetry.mailbox import Mailbox


class EventStream(Protocol):
    """Where the bytes go."""

    def write(self, data: memoryview, /) -> int | None:
        """Some of them; returns how many. Raises `OSError` once nobody reads."""
        ...


class EventWriter:
    """`send` never waits; `end` ends the thread."""

    def __init__(self, stream: EventStream) -> None:
        self._stream = stream
        self._mailbox = Mailbox()
        self._ready = threading.Event()
        self._over = False
        self._thread = threading.Thread(target=self._run, name="link-out", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Send an event soon. Any thread."""
        self._mailbox.put(event)
        self._ready.set()

    def flush(self, deadline_s: float) -> None:
        """Wait until everything is sent, at most so long."""
        end = time.monotonic() + deadline_s
        while self._ready.is_set() and time.monotonic() < end:
            time.sleep(0.005)

    @property
    def waits(self) -> bool:
        """Whether something is not sent yet."""
        return self._ready.is_set()

    def end(self) -> None:
        """Send nothing more. The stream has to be closed as well: a write may wait."""
        self._over = True
        self._ready.set()

    def _run(self) -> None:
        while True:
            self._ready.wait()
            if self._over:
                return
            events = self._mailbox.drain()
            if not events:
                self._ready.clear()
                events = self._mailbox.drain()  # put between the drain and the clear
            data = memoryview(b"".join([_frame(piece) for event in events for piece in pieces(event)]))
            while data:
                try:
                    data = data[self._stream.write(data) :]
                except OSError:  # the window is gone; the reader sees it too and ends the process
                    return


def _frame(event: Event) -> bytes:
    """An event that cannot be encoded is a bug: it is logged, and the link stays open."""
    try:
        return frame(event)
    except (TypeError, ValueError, OverflowError) as error:
        return frame(
            Log(level="error", text=f"{type(event).__name__} could not be sent: {error}", time_unix_s=time.time())
        )
