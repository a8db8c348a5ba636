"""One connection between a window and a host: a greeting in each direction, then frames in two zlib streams. Two
threads for each, `wire-in` and `wire-out`; no torch, no Qt.

What is put waits until the link takes it. While a ping is not answered, readings are left out: nothing may pile up on
the way. When too much else waits, or nothing comes, the connection ends. The other end is not trusted: sizes and types
are checked, and whatever does not fit ends the connection, never the process.
"""

from __future__ import annotations

import io
import socket
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Protocol

import msgspec

from devexplorer.core.base import Clock, LinkError
from devexplorer.core.engine.link import frame, read_payload
from devexplorer.core.machines.records import Hello, Ping, Pong

if TYPE_CHECKING:
    from _typeshed import WriteableBuffer

HELLO_LIMIT = 1 << 16
FRAME_LIMIT = 64 << 20
MOST_WAITING_BYTES = 64 << 20
"""That the link has not taken; beyond it the connection ends, and the next one begins with a snapshot."""
BATCH_BYTES = 64 << 10
PING_S, FIRST_PING_S = 5.0, 0.5
LATE_S = 1.0
"""A ping that is not answered for so long: the link is busy, readings are left out."""
STEP_JUMP_S = 0.005
"""By less than this, or than the measurement can be wrong by, the other clock is not set anew: times of one minute must
not go back and forth."""
SILENT_S = 25.0
"""Five heartbeats that did not come: the connection is given up."""
_READ_BYTES = 1 << 16


class ByteStream(Protocol):
    """A stream of bytes, unbuffered."""

    def read(self, size: int, /) -> bytes | None:
        """What there is, at least one byte; nothing at the end."""
        ...

    def write(self, data: bytes | memoryview, /) -> int | None:
        """Some of it; returns how much."""
        ...

    def close(self) -> None:
        """Any thread, any number of times; reads and writes end."""
        ...


class SocketStream:
    """A socket as a `ByteStream`."""

    def __init__(self, connection: socket.socket) -> None:
        self.socket = connection

    def read(self, size: int, /) -> bytes:
        """What there is."""
        return self.socket.recv(size)

    def write(self, data: bytes | memoryview, /) -> int:
        """As much of it as goes now."""
        return self.socket.send(data)

    def hang_up(self) -> None:
        """End reads and writes on any thread."""
        with suppress(OSError):  # the other side was quicker
            self.socket.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        """Any thread."""
        self.hang_up()
        self.socket.close()


# --- the first record ------------------------------------------------------------------------------------------------


def send_hello(stream: ByteStream, hello: Hello) -> None:
    """Say who is there. Raises `OSError`."""
    _write(stream, frame(hello))


def read_hello(stream: ByteStream) -> Hello:
    """Hear who is there; raises `LinkError` when it is nobody of ours."""
    try:
        if (payload := read_payload(stream, HELLO_LIMIT)) is not None:
            return msgspec.msgpack.decode(payload, type=Hello)
    except (LinkError, msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LinkError(f"what answers is not DevExplorer: its greeting cannot be read ({error})") from error
    raise LinkError("the connection ended before a greeting")


# --- what follows ----------------------------------------------------------------------------------------------------


class Wire:
    """`start` it, `put` frames, call `beat` about once a second; `deliver` and `on_end` are called on its threads."""

    def __init__(
        self,
        stream: ByteStream,
        decode: Callable[[bytes], Any],
        deliver: Callable[[Any], None],
        on_end: Callable[[str], None],
        hang_up: Callable[[], None],
        *,
        ahead_s: float = 0.0,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`decode` validates a payload, or raises as msgspec does. `hang_up` makes reads and writes of `stream` end.
        `on_end` gets the reason, once; empty: the stream ended between two records. `ahead_s`: how far the other clock
        is ahead, as far as is known.
        """
        self._stream, self._decode = stream, decode
        self._deliver, self._on_end, self._hang_up = deliver, on_end, hang_up
        self._clock, self._monotonic = clock, monotonic
        self._changed = threading.Condition()
        """Notified when there is more to send. Of what follows:"""
        self._urgent: deque[bytes] = deque()
        self._waiting: deque[bytes] = deque()
        self._waiting_bytes = 0
        self._writing, self._over = True, False
        self._pings: deque[float] = deque()
        """When those were sent that are not answered."""
        self.dropped = self.dropped_there = 0
        """Readings that were left out here, and by the other side."""
        self.sent_bytes = self.received_bytes = 0
        """As they crossed the connection."""
        self._end_told = threading.Lock()
        self._heard_s = self._ping_due_s = monotonic()
        self._trips: deque[float] = deque(maxlen=8)
        """Of the last pings: seconds there and back."""
        self.ahead_s = ahead_s
        self._threads = [
            threading.Thread(target=self._write, name="wire-out", daemon=True),
            threading.Thread(target=self._read, name="wire-in", daemon=True),
        ]
        self._first: Sequence[bytes] = ()

    def start(self, first: Sequence[bytes] = ()) -> None:
        """Begin to read and to write; the frames of a snapshot come `first`, however many there are."""
        self._first = first
        for thread in self._threads:
            thread.start()

    def put(self, data: bytes, *, reading: bool = False) -> None:
        """Send this frame soon. Any thread."""
        with self._changed:
            if reading and self._is_late():
                self.dropped += 1
                return
            self._waiting.append(data)
            self._waiting_bytes += len(data)
            too_slow = self._waiting_bytes > MOST_WAITING_BYTES
            self._changed.notify_all()
        if too_slow:
            self.close("the link is too slow for what there is to say")

    @property
    def waits(self) -> bool:
        """Whether something has not been sent."""
        return bool(self._waiting or self._writing)

    def _is_late(self) -> bool:
        return bool(self._pings) and self._monotonic() - self._pings[0] > LATE_S

    @property
    def latency_s(self) -> float | None:
        """There and back, the median of the last pings; None: not measured yet."""
        trips = sorted(self._trips)
        return trips[len(trips) // 2] if trips else None

    def beat(self) -> None:
        """Send a `Ping` when it is time; end the connection when nothing has come for too long."""
        now = self._monotonic()
        if now - self._heard_s > SILENT_S:
            self.close(f"nothing has come for {now - self._heard_s:.0f} s")
        elif now >= self._ping_due_s:
            self._ping_due_s = now + (PING_S if self._trips else FIRST_PING_S)
            with self._changed:
                self._pings.append(now)
                self._say(Ping(sent_s=now))

    def close(self, reason: str = "") -> None:
        """End the connection. Any thread; does not wait."""
        if not self._end_told.acquire(blocking=False):
            return
        with self._changed:
            self._over = True
            self._changed.notify_all()
        self._hang_up()
        self._on_end(reason)

    def join(self, deadline_s: float) -> bool:
        """After `close`: whether its threads ended in time."""
        until = time.monotonic() + deadline_s
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    # --- out ---------------------------------------------------------------------------------------------------------

    def _say(self, record: Ping | Pong) -> None:
        """Before everything that waits."""
        with self._changed:
            self._urgent.append(frame(record))
            self._changed.notify_all()

    def _next(self) -> list[bytes]:
        """What is to be sent now; nothing: the connection is over."""
        with self._changed:
            self._writing = False
            while not self._over:
                batch = [*self._urgent]
                self._urgent.clear()
                size = 0
                while self._waiting and size < BATCH_BYTES:
                    batch.append(self._waiting.popleft())
                    size += len(batch[-1])
                self._waiting_bytes -= size
                if batch:
                    self._writing = True
                    return batch
                self._changed.wait()
            return []

    def _write(self) -> None:
        pack = zlib.compressobj(1)
        try:
            for data in self._first:
                self._send(pack.compress(data))
            self._first = ()
            self._send(pack.flush(zlib.Z_SYNC_FLUSH))
            while batch := self._next():
                self._send(pack.compress(b"".join(batch)) + pack.flush(zlib.Z_SYNC_FLUSH))
        except (OSError, ValueError) as error:  # ValueError: the stream was closed under us
            self.close(getattr(error, "strerror", None) or str(error))

    def _send(self, data: bytes) -> None:
        self.sent_bytes += len(data)
        _write(self._stream, data)

    # --- in ----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        stream = io.BufferedReader(_Plain(self._stream, self._heard), _READ_BYTES)
        try:
            while (payload := read_payload(stream, FRAME_LIMIT)) is not None:
                self._take(self._decode(payload))
            self.close()
        except (LinkError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.close(f"what came cannot be read: {error}")
        except (OSError, ValueError) as error:
            self.close(getattr(error, "strerror", None) or str(error))
        except BaseException:  # a fault of ours: it is reported as one, and the other side is not left waiting
            self.close("a record could not be handled")
            raise
        finally:
            self._threads[0].join()
            self._stream.close()

    def _heard(self, count: int) -> None:
        self._heard_s = self._monotonic()
        self.received_bytes += count

    def _take(self, record: Any) -> None:
        if isinstance(record, Ping):
            self._say(Pong(sent_s=record.sent_s, here_unix_s=self._clock(), dropped=self.dropped))
        elif isinstance(record, Pong):
            self.dropped_there = record.dropped
            with self._changed:
                if record.sent_s in self._pings:
                    trip = self._monotonic() - record.sent_s
                    self._trips.append(trip)
                    ahead_s = record.here_unix_s - self._clock() + trip / 2  # the midpoint that NTP takes, RFC 5905
                    if abs(ahead_s - self.ahead_s) > max(STEP_JUMP_S, trip / 2):
                        self.ahead_s = ahead_s
                while self._pings and self._pings[0] <= record.sent_s:
                    self._pings.popleft()
                self._changed.notify_all()
        else:
            self._deliver(record)


class _Plain(io.RawIOBase):
    """What a compressed stream has in it, piece by piece: a few bytes can stand for gigabytes."""

    def __init__(self, stream: ByteStream, heard: Callable[[int], None]) -> None:
        self._stream, self._heard = stream, heard
        self._unpack = zlib.decompressobj()

    def readable(self) -> bool:
        """It is."""
        return True

    def readinto(self, buffer: WriteableBuffer, /) -> int:
        """What there is, at least one byte; 0 at the end."""
        view = memoryview(buffer).cast("B")
        while not (plain := self._unpack.decompress(self._unpack.unconsumed_tail, len(view))):
            if self._unpack.eof:
                raise LinkError("the compressed stream has ended")
            if not (data := self._stream.read(_READ_BYTES)):
                return 0
            self._heard(len(data))
            if plain := self._unpack.decompress(data, len(view)):
                break
        view[: len(plain)] = plain
        return len(plain)


def _write(stream: ByteStream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) or 0 :]
