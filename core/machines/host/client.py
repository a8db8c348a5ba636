"""One window of a host: what it is told, what it said, its connection, which it outlives. Main thread, but for
`outbox`, which any thread may use."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

from devexplorer.core.base import Clock, LinkError
from devexplorer.core.codec import decoder
from devexplorer.core.machines.host.files import FileWork
from devexplorer.core.machines.host.wire import Outbox, Wire
from devexplorer.core.machines.records import Happened, Hello, Numbered, ToHost

LONGEST_NAME = 100
MOST_SNAPSHOT_BYTES = 4 << 30
ROOM_S = 5.0
MOST_WAITING = 1_000
"""Of what a window sent and the main thread has not taken yet."""
decode: Callable[[bytes], Any] = decoder(ToHost).decode


class SocketStream:
    """A socket as a `Stream`; while `until` is set, everything has to be there by then."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection
        self.until_s: float | None = None

    def read(self, size: int, /) -> bytes:
        """What there is."""
        self._limit()
        return self.socket.recv(size)

    def write(self, data: bytes | memoryview, /) -> int:
        """As much of it as goes now."""
        return self.socket.send(data)

    def unlimited(self) -> None:
        """From now on there is time."""
        self.until_s = None
        self.socket.settimeout(None)

    def hang_up(self) -> None:
        """End reads and writes on any thread."""
        with suppress(OSError):  # the other side was quicker
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Any thread."""
        self.hang_up()
        self.socket.close()

    def _limit(self) -> None:
        if self.until_s is not None:
            left = self.until_s - time.monotonic()
            if left <= 0:
                raise TimeoutError("it took too long")
            self.socket.settimeout(left)


class Client:
    """A window, by the id that it gave itself."""

    def __init__(
        self,
        hello: Hello,
        take: Callable[[Client, Any], None],
        later: Callable[[Callable[[], None]], None],
        clock: Clock = time.time,
    ) -> None:
        """`take` gets what it says, on the thread of its connection; `later` has work done on the main thread."""
        self.id, self.name = hello.client, hello.machine[:LONGEST_NAME]
        self.later = later
        self.outbox = Outbox(kept_limit_bytes=MOST_SNAPSHOT_BYTES)
        self.files = FileWork()
        self.generation = 0
        """Of its commands, while it controls."""
        self.hidden = False
        self.left_s: float | None = None
        """When its connection ended; None: it is connected."""
        self._take, self._clock = take, clock
        self._wire: Wire | None = None
        self._stream: SocketStream | None = None
        self._received = self._dropped = 0
        self._room = threading.Semaphore(MOST_WAITING)

    @property
    def received(self) -> int:
        """The last number that has come from it."""
        return self._received if self._wire is None else self._wire.received

    def connect(self, stream: SocketStream, *, compressed: bool, ended: Callable[[Client, Wire], None]) -> None:
        """Go on over this connection; `ended` is told of its end, on a thread."""
        received = self._received
        wire = Wire(
            stream, decode, self.outbox, self._arrived, lambda reason: ended(self, wire), stream.hang_up,
            compressed=compressed, received=received, clock=self._clock,
        )  # fmt: skip
        self._wire, self._stream, self.left_s = wire, stream, None
        wire.start()

    def is_on(self, wire: Wire) -> bool:
        """Whether that is its connection now."""
        return self._wire is wire

    def disconnect(self, now_s: float, deadline_s: float = 1.0) -> bool:
        """End its connection; False where a thread of it still runs, so that nothing can go on from here."""
        wire, stream = self._wire, self._stream
        if wire is None or stream is None:
            return True
        wire.close()
        ended = wire.join(deadline_s)
        self._received, self._wire, self._stream, self.left_s = wire.received, None, None, now_s
        self._dropped = self.outbox.dropped
        stream.socket.close()
        return ended

    @property
    def misses_readings(self) -> bool:
        """Whether more was read while it was away than was kept for it."""
        return self.outbox.dropped > self._dropped

    def beat(self) -> None:
        """About once a second."""
        if self._wire is not None:
            self._wire.beat()

    def tell(self, record: Numbered) -> None:
        """What it must get."""
        self.outbox.put(record)

    def show(self, reading: Happened) -> None:
        """What it can do without when the link is slow."""
        self.outbox.put(reading, reading=True)

    def taken(self) -> None:
        """One of its records was dealt with."""
        self._room.release()

    def _arrived(self, record: Any) -> None:
        if not self._room.acquire(timeout=ROOM_S):  # meanwhile nothing more is read, and it is told nothing has arrived
            raise LinkError("it says more than can be listened to")
        self._take(self, record)
