"""The link of one window to one host, through as many connections as it takes. Main thread, but for the thread `link`,
which opens a channel and greets, and the two threads of each `Wire`.

After a break the next connection is tried at once, then after 1, 2, 5, 10 and every 30 s; each begins with a snapshot.
"""

from __future__ import annotations

import getpass
import platform
import secrets
import threading
import time
from collections import deque
from collections.abc import Callable

import devexplorer
from devexplorer.core.base import Clock, LinkError
from devexplorer.core.codec import decoder
from devexplorer.core.machines.host.wire import Stream, Wire, read_hello, send_hello
from devexplorer.core.machines.records import PROTOCOL, Goodbye, Hello, ToWindow
from devexplorer.core.machines.window.incoming import Begin, Incoming
from devexplorer.core.machines.window.link import CannotReach, LinkState, Route
from devexplorer.core.records.base import Record

RETRY_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before each further attempt; the last one again and again."""
PROVED_S = 10.0
"""A connection that lasted so long was one: the next break begins with the first pause again."""
GREETING_S = 30.0
"""The longest time for a greeting; starting a host is part of it."""
RATES_S = 3.0
STEP_JUMP_S = 0.05
"""By less than this, or than the measurement can be wrong by, the other clock is not set anew: times of one minute must
not go back and forth."""

_decode: Callable[[bytes], ToWindow] = decoder(ToWindow).decode


class Uplink:
    """`start`, `beat` often, look at `wire`; `close` at the end."""

    def __init__(
        self,
        name: str,
        route: Route,
        incoming: Incoming,
        *,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        self._name, self._route, self._incoming = name, route, incoming
        self._client = secrets.token_hex(16)
        """As which the host remembers what was asked for."""
        self._clock, self._monotonic = clock, monotonic
        self.state: LinkState = "connecting"
        self.since_unix_s = clock()
        self.reason = ""
        self.hello = Hello()
        """Of the host."""
        self._lock = threading.Lock()
        """Of what follows: the thread of an attempt changes it as well."""
        self._wire: Wire | None = None
        self._channel: Stream | None = None
        self._attempt = 0
        """The number of the latest one: what an earlier one brings is of no use any more."""
        self._broke: tuple[str, bool] | None = None
        """What ended the connection or the attempt, and whether it would again; not dealt with yet."""
        self._goodbye = ""
        self._last: Wire | None = None
        """The latest connection, also when it is over."""
        self._was_connected = False
        self._greeted_s: float | None = None
        self._opening = 0
        """Attempts that wait for a channel."""
        self._tries = 0
        self._retry_at_s: float | None = None
        self._greet_by_s: float | None = None
        self._rates: deque[tuple[float, int, int]] = deque()
        self._threads: list[threading.Thread] = []
        self._closed = False

    # --- main thread

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._connect(unasked=False)

    @property
    def wire(self) -> Wire | None:
        """The connection that there is."""
        return self._wire

    @property
    def retry_in_s(self) -> float | None:
        """Until the next attempt; None: none is due, or one is being made."""
        return None if self._retry_at_s is None else max(self._retry_at_s - self._monotonic(), 0.0)

    @property
    def rates(self) -> tuple[float, float]:
        """Bytes per second that came and went, over the last seconds."""
        if len(self._rates) < 2:
            return 0.0, 0.0
        (begin_s, came_0, went_0), (end_s, came, went) = self._rates[0], self._rates[-1]
        return (came - came_0) / (end_s - begin_s), (went - went_0) / (end_s - begin_s)

    def beat(self) -> None:
        """Heartbeats of the connection, the end of it, and what is tried next."""
        now = self._monotonic()
        wire = self._wire
        if wire is not None:
            wire.beat()
            if not self._rates or now - self._rates[-1][0] >= 0.5:
                self._rates.append((now, wire.received_bytes, wire.sent_bytes))
                while self._rates[-1][0] - self._rates[0][0] > RATES_S:
                    self._rates.popleft()
        if self._greet_by_s is not None and now >= self._greet_by_s:
            self._greet_by_s = None
            self._fail(self._attempt, f"{self._name} did not answer within {GREETING_S:.0f} s")
        if self._broke is not None:
            self._mend(now)
        if self._retry_at_s is not None and now >= self._retry_at_s:
            self._connect(unasked=True)

    def reconnect(self) -> None:
        """Try now, because the user asked for it; a connection that there is begins again."""
        self._tries = 0
        self._hang_up()
        self._connect(unasked=False)

    def disconnect(self, reason: str) -> None:
        """End the connection and make no other by itself. The host goes on."""
        self._hang_up()
        self._enter("lost", reason)

    def close(self, deadline_s: float) -> bool:
        """End it for good; False when a thread still runs at the deadline."""
        if not self._closed:
            self._closed = True
            self.disconnect("the window has closed the connection")
        until = time.monotonic() + deadline_s
        ended = True
        for thread in tuple(self._threads):
            thread.join(max(until - time.monotonic(), 0.0))
            ended &= not thread.is_alive()
        return (self._last is None or self._last.join(max(until - time.monotonic(), 0.0))) and ended

    def _hang_up(self) -> None:
        with self._lock:
            self._attempt += 1
            wire, channel, self._wire, self._channel = self._wire, self._channel, None, None
            self._broke, self._greet_by_s, self._retry_at_s = None, None, None
        if wire is not None:
            wire.close()
        elif channel is not None:
            self._shut(channel)
        elif self._opening:
            self._route.cancel()

    def _connect(self, *, unasked: bool) -> None:
        self._enter("reconnecting" if self._was_connected else "connecting", self.reason)
        self._retry_at_s = None
        self._tries += unasked
        for thread in [thread for thread in self._threads if not thread.is_alive()]:
            self._threads.remove(thread)
        with self._lock:
            self._attempt += 1
            number = self._attempt
        thread = threading.Thread(target=self._open, args=(number, unasked), name="link", daemon=True)
        self._threads.append(thread)
        thread.start()

    def _mend(self, now: float) -> None:
        """A connection or an attempt has ended: try again, unless that would be of no use."""
        with self._lock:
            assert self._broke is not None
            (reason, final), self._broke = self._broke, None
            self._wire = self._channel = self._greet_by_s = None
        self._rates.clear()
        if self._goodbye:
            reason, final, self._goodbye = self._goodbye, True, ""
        if self._greeted_s is not None and now - self._greeted_s > PROVED_S:
            self._tries = 0
        self._greeted_s = None
        if final or not self._was_connected:
            self._enter("lost", reason)
            return
        self._enter("reconnecting", reason)
        self._retry_at_s = now + RETRY_S[min(self._tries, len(RETRY_S) - 1)]

    def _enter(self, state: LinkState, reason: str) -> None:
        if state != self.state:
            self.state, self.since_unix_s = state, self._clock()
        self.reason = reason

    # --- the thread of an attempt

    def _open(self, number: int, unasked: bool) -> None:
        try:
            self._opening += 1
            try:
                channel = self._route.open(unasked=unasked)
            finally:
                self._opening -= 1
        except CannotReach as error:
            self._fail(number, str(error), final=error.final)
            return
        except OSError as error:
            self._fail(number, error.strerror or str(error))
            return
        with self._lock:
            stale = number != self._attempt
            if not stale:
                self._channel, self._greet_by_s = channel, self._monotonic() + GREETING_S
        if stale:
            channel.close()
            return
        try:
            self._greet(number, channel)
        except (LinkError, OSError, ValueError) as error:  # ValueError: the channel was closed under us
            self._fail(number, getattr(error, "strerror", None) or str(error))

    def _greet(self, number: int, channel: Stream) -> None:
        if self._last is not None and not self._last.join(GREETING_S):
            raise LinkError("the last connection does not end")  # and what it still delivers would come in between
        ours = Hello(devexplorer=devexplorer.__version__, client=self._client, machine=_who())
        sent_s = self._clock()
        send_hello(channel, ours)
        theirs = read_hello(channel)
        trip_s = self._clock() - sent_s
        if theirs.problem or theirs.protocol != PROTOCOL:
            reason = theirs.problem or (
                f"{self._name} speaks protocol {theirs.protocol} (DevExplorer {theirs.devexplorer}), this window"
                f" protocol {PROTOCOL} (DevExplorer {ours.devexplorer}): run 'devexplorer host stop' there and connect"
                f" again, or use DevExplorer {theirs.devexplorer} here"
            )
            self._fail(number, reason, final=True)
            return
        begin: Begin
        if not self.hello.session:
            begin = "first"
        elif theirs.session != self.hello.session:
            begin = "anew"
        else:
            begin = "again" if theirs.knows else "unknown"
        with self._lock:
            if number != self._attempt:
                channel.close()
                return
            self._greet_by_s, self.hello = None, theirs
            self._last = wire = Wire(
                channel, _decode, self._take, lambda reason: self._fail(number, reason),
                lambda: self._shut(channel), clock=self._clock, monotonic=self._monotonic,
            )  # fmt: skip
            self._was_connected, self._greeted_s = True, self._monotonic()
            self.reason = ""
            self.state, self.since_unix_s = "connected", self._clock()
            ahead_s = theirs.now_unix_s - sent_s - trip_s / 2
            if abs(ahead_s - self._incoming.ahead_s) > max(STEP_JUMP_S, trip_s / 2):
                self._incoming.ahead_s = ahead_s
            self._incoming.begin(begin, wire)
            wire.start()
            self._wire = wire

    def _take(self, record: Record) -> None:
        if isinstance(record, Goodbye):
            self._goodbye = record.reason
        self._incoming.take(record)

    def _fail(self, number: int, reason: str, *, final: bool = False) -> None:
        """Any thread: an attempt or a connection is over."""
        with self._lock:
            if number != self._attempt or self._broke is not None:
                return
            self._broke = reason or "the connection was closed", final
            channel = self._channel
        if channel is not None:
            self._shut(channel)

    def _shut(self, channel: Stream) -> None:
        """Any thread. Not here: ssh takes its time to end."""
        thread = threading.Thread(target=channel.close, name="link-close", daemon=True)
        thread.start()
        self._threads.append(thread)


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):  # a user without a name
        return platform.node()
