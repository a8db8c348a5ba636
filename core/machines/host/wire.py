"""One link between a window and a host: frames in a compressed stream, numbered so that a broken connection loses
nothing. Two threads for each connection, `wire-in` and `wire-out`; no torch, no Qt.

`Outbox` is what one side has to say. It outlives connections: what has a number is kept until the other side has
acknowledged it, and said again on the next connection. Readings have no number; when the link is slower than they come,
the oldest are dropped and counted.

`Wire` is one connection. It sends at most `WINDOW_BYTES` that the other side has not seen, so that nothing piles up in
buffers on the way, where neither end could drop it. The other end is not trusted: sizes and numbers are checked, and
whatever does not fit ends the connection, never the process.
"""

from __future__ import annotations

import struct
import threading
import time
import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any, Protocol

import msgspec

from devexplorer.core.base import Clock, LinkError
from devexplorer.core.machines.records import ZLIB, Hello, Numbered, Ping, Pong, Received

HELLO_LIMIT = 1 << 16
FRAME_LIMIT = 64 << 20
KEPT_LIMIT_BYTES = 64 << 20
"""Of records that the other side has not acknowledged; beyond it they are forgotten, and it needs a snapshot."""
MOST_READINGS = 4096
WINDOW_BYTES = 256 << 10
"""On their way at any time: at 20 Mbit/s and 100 ms there and back the link is still full."""
ACKNOWLEDGE_BYTES, ACKNOWLEDGE_RECORDS = 32 << 10, 64
"""The latest after so much is it said that it arrived."""
BATCH_BYTES = 64 << 10
PING_S, FIRST_PINGS = 5.0, 3
SILENT_S = 25.0
"""Five heartbeats that did not come: the connection is given up."""
_LENGTH = struct.Struct(">I")
_READ_BYTES = 1 << 16

_encode = msgspec.msgpack.Encoder().encode


class Stream(Protocol):
    """Unbuffered: `read` returns what there is, at least one byte, or nothing at the end."""

    def read(self, size: int, /) -> bytes | None: ...  # noqa: D102
    def write(self, data: bytes | memoryview, /) -> int | None: ...  # noqa: D102


# --- the first record ------------------------------------------------------------------------------------------------


def send_hello(stream: Stream, hello: Hello) -> None:
    """Say who is there. Raises `OSError`."""
    _write(stream, _framed(_encode(hello)))


def read_hello(stream: Stream) -> Hello:
    """Hear who is there; raises `LinkError` when it is nobody of ours."""
    (length,) = _LENGTH.unpack(_read_exactly(stream, _LENGTH.size))
    if length > HELLO_LIMIT:
        raise LinkError("what answers is not DevExplorer: it begins with something else than a greeting")
    try:
        return msgspec.msgpack.decode(_read_exactly(stream, length), type=Hello)
    except (msgspec.MsgspecError, UnicodeDecodeError) as error:
        raise LinkError(f"what answers is not DevExplorer: its greeting cannot be read ({error})") from error


# --- what is to be said ----------------------------------------------------------------------------------------------


class Outbox:
    """`put` on any thread. At most one connection takes from it at a time."""

    def __init__(self, kept_limit_bytes: int = KEPT_LIMIT_BYTES, most_readings: int = MOST_READINGS) -> None:
        self._limit = kept_limit_bytes
        self.changed = threading.Condition()
        """Notified when there is more to send."""
        self._number = 0
        self._order = 0
        self._waiting: deque[tuple[int, int, bytes]] = deque()
        """Not sent on this connection yet: order, number, payload."""
        self._sent: deque[tuple[int, int, bytes]] = deque()
        """Sent, and not acknowledged yet."""
        self._kept_bytes = 0
        self._readings: deque[tuple[int, bytes]] = deque()
        self._most_readings = most_readings
        self._lost = 0
        """What was kept up to this number is gone."""
        self.overflowed = False
        """More was kept than is allowed: a connection that is behind has to begin again."""
        self.dropped = 0
        """Readings that were dropped so far."""

    def put(self, record: Numbered, *, reading: bool = False) -> int:
        """Send it soon; returns the number that it got, 0 for a `reading`."""
        with self.changed:
            self._order += 1
            if reading:
                if len(self._readings) >= self._most_readings:
                    self._readings.popleft()
                    self.dropped += 1
                self._readings.append((self._order, _encode(record)))
            else:
                payload = _encode(msgspec.structs.replace(record, number=self._number + 1))
                self._number += 1
                self._waiting.append((self._order, self._number, payload))
                self._kept_bytes += len(payload)
                if self._kept_bytes > self._limit:
                    self._forget()
            self.changed.notify_all()
            return 0 if reading else self._number

    def set_limit(self, kept_limit_bytes: int = KEPT_LIMIT_BYTES) -> None:
        """So much may be kept beyond what is kept now: a snapshot is as large as it is."""
        with self.changed:
            self._limit = self._kept_bytes + kept_limit_bytes

    @property
    def waits(self) -> bool:
        """Whether something numbered has not been sent yet on this connection."""
        return bool(self._waiting)

    def reaches(self, received: int) -> bool:
        """Whether everything after this number can still be said. If not, the other side needs a snapshot, from an
        `Outbox` of its own."""
        with self.changed:
            return self._lost <= received <= self._number

    def resume(self, received: int) -> None:
        """A new connection, whose other side has everything up to this number."""
        with self.changed:
            self._waiting.extendleft(reversed(self._sent))
            self._sent.clear()
            self._drop_through(received, self._waiting)

    def drop_readings(self) -> None:
        """Those that wait are told in another way."""
        with self.changed:
            self._readings.clear()

    def acknowledge(self, received: int) -> None:
        """Everything up to this number has arrived."""
        with self.changed:
            self._drop_through(received, self._sent)

    def take(self, most_bytes: int) -> list[bytes]:
        """What is to be sent next, in order, at least one record when there is any. The lock is held."""
        batch: list[bytes] = []
        size = 0
        while (self._waiting or self._readings) and (not batch or size < most_bytes):
            if not self._waiting or (self._readings and self._readings[0][0] < self._waiting[0][0]):
                payload = self._readings.popleft()[1]
            else:
                self._sent.append(item := self._waiting.popleft())
                payload = item[2]
            batch.append(payload)
            size += len(payload)
        return batch

    def _drop_through(self, received: int, kept: deque[tuple[int, int, bytes]]) -> None:
        while kept and kept[0][1] <= received:
            self._kept_bytes -= len(kept.popleft()[2])

    def _forget(self) -> None:
        self.overflowed, self._lost = True, self._number
        self._kept_bytes = 0
        self._waiting.clear()
        self._sent.clear()
        self._readings.clear()


# --- one connection --------------------------------------------------------------------------------------------------


class Wire:
    """`start` it, call `beat` about once a second; `deliver` and `on_end` are called on its threads."""

    def __init__(
        self,
        stream: Stream,
        decode: Callable[[bytes], Any],
        outbox: Outbox,
        deliver: Callable[[Any], None],
        on_end: Callable[[str], None],
        hang_up: Callable[[], None],
        *,
        compressed: bool,
        received: int = 0,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`decode` validates a payload, or raises as msgspec does. `received`: the last number that has come from the
        other side. `hang_up` makes reads and writes of `stream` end. `on_end` gets the reason, once; empty: the stream
        ended between two records.
        """
        self._stream, self._decode, self.outbox = stream, decode, outbox
        self._deliver, self._on_end, self._hang_up = deliver, on_end, hang_up
        self._pack = zlib.compressobj(1) if compressed else None
        self._unpack = zlib.decompressobj() if compressed else None
        self.received = received
        self._clock, self._monotonic = clock, monotonic
        self._urgent: deque[bytes] = deque()
        self.sent_bytes = self.received_bytes = 0
        """Of this connection, as they crossed it."""
        self._seen_bytes = 0
        """So many of those sent have arrived."""
        self._said_bytes, self._said_number = 0, received
        self._over = False
        self._end_told = threading.Lock()
        self._heard_s = self._monotonic()
        self._ping_due_s, self._pings = self._heard_s, 0
        self._trips: deque[tuple[float, float]] = deque(maxlen=8)
        """Of the last pings: seconds there and back, and how far the other clock is ahead."""
        self.unreadable = False
        """It ended because of what came, which would come again when the other side went on from here."""
        self.dropped_there = 0
        """Readings that the other side has dropped."""
        self._threads = [
            threading.Thread(target=target, name=name, daemon=True)
            for name, target in (("wire-in", self._read), ("wire-out", self._write))
        ]

    def start(self) -> None:
        """Begin to read and to write."""
        for thread in self._threads:
            thread.start()

    @property
    def latency_s(self) -> float | None:
        """There and back, the median of the last pings; None: not measured yet."""
        trips = sorted(trip for trip, _ in tuple(self._trips))
        return trips[len(trips) // 2] if trips else None

    @property
    def ahead_s(self) -> float:
        """How far the other clock is ahead of ours, by the quickest of the last pings (the midpoint that NTP takes,
        RFC 5905)."""
        return min(tuple(self._trips), default=(0.0, 0.0))[1]

    @property
    def ahead_error_s(self) -> float:
        """By how much `ahead_s` can be wrong: half of that trip, when all of it was spent in one direction."""
        return min(tuple(self._trips), default=(0.0, 0.0))[0] / 2

    def beat(self) -> None:
        """Send a `Ping` when it is time; end the connection when nothing has come for too long."""
        now = self._monotonic()
        if now - self._heard_s > SILENT_S:
            self._end(f"nothing has come for {now - self._heard_s:.0f} s")
        elif now >= self._ping_due_s:
            self._pings += 1
            self._ping_due_s = now + (PING_S if self._pings >= FIRST_PINGS else PING_S / 10)
            self._say(Ping(sent_unix_s=self._clock()))

    def close(self, reason: str = "") -> None:
        """End the connection. Any thread; does not wait."""
        self._end(reason)

    def join(self, deadline_s: float) -> bool:
        """After `close`: whether its threads ended in time."""
        until = time.monotonic() + deadline_s
        for thread in self._threads:
            if thread.ident is not None and thread is not threading.current_thread():
                thread.join(max(until - time.monotonic(), 0.0))
        return not any(thread.is_alive() for thread in self._threads)

    # --- out ---------------------------------------------------------------------------------------------------------

    def _say(self, record: Received | Ping | Pong) -> None:
        """Before everything that waits."""
        with self.outbox.changed:
            self._urgent.append(_encode(record))
            self.outbox.changed.notify_all()

    def _next(self) -> list[bytes]:
        with self.outbox.changed:
            while not self._over and not self.outbox.overflowed:
                batch = [*self._urgent]
                self._urgent.clear()
                if self.sent_bytes - self._seen_bytes < WINDOW_BYTES:
                    batch += self.outbox.take(BATCH_BYTES)
                if batch:
                    return batch
                self.outbox.changed.wait()
            return []

    def _write(self) -> None:
        try:
            while batch := self._next():
                data = b"".join(map(_framed, batch))
                if self._pack is not None:
                    data = self._pack.compress(data) + self._pack.flush(zlib.Z_SYNC_FLUSH)
                self.sent_bytes += len(data)  # before it is gone: its acknowledgement may be quicker than this thread
                _write(self._stream, data)
            self._end("the other side is too slow for what there is to say")
        except (OSError, ValueError) as error:  # ValueError: the stream was closed under us
            self._end(getattr(error, "strerror", None) or str(error))

    # --- in ----------------------------------------------------------------------------------------------------------

    def _read(self) -> None:
        buffer = bytearray()
        try:
            while data := self._stream.read(_READ_BYTES):
                self._heard_s = self._monotonic()
                self.received_bytes += len(data)
                for plain in self._unpacked(data):
                    buffer += plain
                    self._take_frames(buffer)
                self._acknowledge()
            self._end("" if not buffer else "the connection ended in the middle of a record")
        except (LinkError, zlib.error, msgspec.MsgspecError, UnicodeDecodeError) as error:
            self.unreadable = True
            self._end(f"what came cannot be read: {error}")
        except (OSError, ValueError) as error:
            self._end(getattr(error, "strerror", None) or str(error))
        except BaseException:  # a fault of ours: it is reported as one, and the other side is not left waiting
            self._end("a record could not be handled")
            raise

    def _unpacked(self, data: bytes) -> Iterator[bytes]:
        if self._unpack is None:
            yield data
            return
        while data:  # piece by piece: a few bytes can stand for gigabytes
            if plain := self._unpack.decompress(data, _READ_BYTES):
                yield plain
            if self._unpack.eof:
                raise LinkError("the compressed stream has ended")
            data = self._unpack.unconsumed_tail
        while plain := self._unpack.decompress(b"", _READ_BYTES):
            yield plain

    def _take_frames(self, buffer: bytearray) -> None:
        start = 0
        while len(buffer) - start >= _LENGTH.size:
            (length,) = _LENGTH.unpack_from(buffer, start)
            if length > FRAME_LIMIT:
                raise LinkError(f"a record of {length} bytes was refused: the limit is {FRAME_LIMIT}")
            end = start + _LENGTH.size + length
            if len(buffer) < end:
                break
            self._take(self._decode(bytes(memoryview(buffer)[start + _LENGTH.size : end])))
            start = end
        del buffer[:start]

    def _take(self, record: Any) -> None:
        if isinstance(record, Numbered):
            if record.number:
                if record.number <= self.received:
                    return  # said again after a reconnect, and here already
                if record.number != self.received + 1:
                    raise LinkError(f"record {record.number} came after {self.received}")
                self.received = record.number
            self._deliver(record)
        elif isinstance(record, Received):
            self.outbox.acknowledge(record.number)
            with self.outbox.changed:
                self._seen_bytes = min(max(self._seen_bytes, record.stream_bytes), self.sent_bytes)
                self.outbox.changed.notify_all()
        elif isinstance(record, Ping):
            self._say(Pong(sent_unix_s=record.sent_unix_s, here_unix_s=self._clock(), dropped=self.outbox.dropped))
            self._acknowledge(at_once=True)
        elif isinstance(record, Pong):
            self._pong(record)

    def _pong(self, pong: Pong) -> None:
        trip = self._clock() - pong.sent_unix_s
        if 0 <= trip < SILENT_S:  # otherwise our clock was set in between
            self._trips.append((trip, pong.here_unix_s - pong.sent_unix_s - trip / 2))
        self.dropped_there = pong.dropped
        self._acknowledge(at_once=True)

    def _acknowledge(self, *, at_once: bool = False) -> None:
        new_bytes, new_records = self.received_bytes - self._said_bytes, self.received - self._said_number
        if at_once or new_bytes >= ACKNOWLEDGE_BYTES or new_records >= ACKNOWLEDGE_RECORDS:
            self._said_bytes, self._said_number = self.received_bytes, self.received
            self._say(Received(number=self.received, stream_bytes=self.received_bytes))

    # --- the end -----------------------------------------------------------------------------------------------------

    def _end(self, reason: str) -> None:
        if not self._end_told.acquire(blocking=False):
            return
        with self.outbox.changed:
            self._over = True
            self.outbox.changed.notify_all()
        self._hang_up()
        self._on_end(reason)


def compresses(ours: Hello, theirs: Hello) -> bool:
    """Whether what follows two greetings is compressed."""
    return ZLIB in ours.features and ZLIB in theirs.features


def _framed(payload: bytes) -> bytes:
    return _LENGTH.pack(len(payload)) + payload


def _write(stream: Stream, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[stream.write(rest) or 0 :]


def _read_exactly(stream: Stream, count: int) -> bytes:
    parts = bytearray()
    while len(parts) < count:
        part = stream.read(count - len(parts))
        if not part:
            raise LinkError("the connection ended before a greeting was complete")
        parts += part
    return bytes(parts)
