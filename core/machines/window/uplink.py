"""The link of one window to one host, through as many connections as it takes. Main thread, but for the thread `link`,
which opens a channel and greets, and the two threads of each `Wire`.

After a break the next connection is tried at once, then after 1, 2, 5, 10 and every 30 s; each begins with a snapshot.
"""

from __future__ import annotations

import getpass
import math
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
from devexplorer.core.machines.window.incoming import Incoming
from devexplorer.core.machines.window.link import CannotReach, LinkState, Route
from devexplorer.core.records.base import Record

RETRY_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before each further attempt; the last one again and again."""
PROVED_S = 10.0
"""A connection that lasted so long was one: the next break begins with the first pause again."""
GREETING_S = 30.0
"""The longest time for a greeting; starting a host is part of it."""
RATES_S = 3.0
_decode: Callable[[bytes], ToWindow] = decoder(ToWindow).decode


class _Attempt:
    """One connection, from the first step to its end. Its thread says how far it has come."""

    def __init__(self) -> None:
        self.stream: Stream | None = None
        self.answer_by_s = math.inf
        """When the greeting has to be there."""
        self.hello = Hello()
        """Of the host."""
        self.wire: Wire | None = None
        """None: it was not greeted yet."""
        self.goodbye = ""
        """Why the host has ended."""
        self.over: tuple[str, bool] | None = None
        """What ended it, and whether that would end the next one as well."""
        self.given_up = False


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
        self.wire: Wire | None = None
        """The connection that there is."""
        self._attempt: _Attempt | None = None
        self._making = threading.Lock()
        """Held while an attempt is given up, or becomes a connection."""
        self._last: Wire | None = None
        """The latest connection, also when it is over."""
        self._connected_s = math.inf
        self._tries = 0
        self._retry_at_s = math.inf
        self._rates: deque[tuple[float, int, int]] = deque()
        self._threads: list[threading.Thread] = []

    # --- main thread

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._connect(unasked=False)

    @property
    def retry_in_s(self) -> float | None:
        """Until the next attempt; None: none is due, or one is being made."""
        return None if self._retry_at_s == math.inf else max(self._retry_at_s - self._monotonic(), 0.0)

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
        if (attempt := self._attempt) is not None:
            if self.wire is None and attempt.wire is not None:
                self._connected(attempt, attempt.wire)
            if self.wire is not None:
                self.wire.beat()
                if not self._rates or now - self._rates[-1][0] >= 0.5:
                    self._rates.append((now, self.wire.received_bytes, self.wire.sent_bytes))
                    while self._rates[-1][0] - self._rates[0][0] > RATES_S:
                        self._rates.popleft()
            elif now >= attempt.answer_by_s:
                self._end(attempt, f"{self._name} did not answer within {GREETING_S:.0f} s")
            if attempt.over is not None:
                self._mend(attempt, *attempt.over)
        if now >= self._retry_at_s:
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
        self.disconnect("the window has closed the connection")
        until = time.monotonic() + deadline_s
        for thread in tuple(self._threads):
            thread.join(max(until - time.monotonic(), 0.0))
        ended = self._last is None or self._last.join(max(until - time.monotonic(), 0.0))
        return ended and not any(thread.is_alive() for thread in self._threads)

    def _hang_up(self) -> None:
        attempt, self._attempt, self.wire, self._retry_at_s = self._attempt, None, None, math.inf
        self._rates.clear()
        if attempt is not None:
            with self._making:
                attempt.given_up = True
            if attempt.stream is not None:
                self._end(attempt, "")
            elif attempt.over is None:
                self._route.cancel()

    def _connect(self, *, unasked: bool) -> None:
        self._enter("reconnecting" if self.hello.session else "connecting", self.reason)
        self._retry_at_s = math.inf
        self._tries += unasked
        self._attempt = attempt = _Attempt()
        self._spawn("link", lambda: self._open(attempt, unasked))

    def _connected(self, attempt: _Attempt, wire: Wire) -> None:
        self.wire, self.hello, self._connected_s = wire, attempt.hello, self._monotonic()
        self._enter("connected", "")

    def _mend(self, attempt: _Attempt, reason: str, final: bool) -> None:
        """A connection or an attempt has ended: try again, unless that would be of no use."""
        self._hang_up()
        now = self._monotonic()
        if now - self._connected_s > PROVED_S:
            self._tries = 0
        self._connected_s = math.inf
        if attempt.goodbye or final or not self.hello.session:
            self._enter("lost", attempt.goodbye or reason)
            return
        self._enter("reconnecting", reason)
        self._retry_at_s = now + RETRY_S[min(self._tries, len(RETRY_S) - 1)]

    def _enter(self, state: LinkState, reason: str) -> None:
        if state != self.state:
            self.state, self.since_unix_s = state, self._clock()
        self.reason = reason

    # --- any thread

    def _end(self, attempt: _Attempt, reason: str, *, final: bool = False) -> None:
        """An attempt or a connection is over."""
        if attempt.over is None:
            attempt.over = reason or "the connection was closed", final
        self._shut(attempt)

    def _shut(self, attempt: _Attempt) -> None:
        stream, attempt.stream = attempt.stream, None
        if stream is not None:
            self._spawn("link-close", stream.close)  # ssh takes its time to end

    def _spawn(self, name: str, work: Callable[[], None]) -> None:
        self._threads = [thread for thread in self._threads if thread.is_alive()]
        thread = threading.Thread(target=work, name=name, daemon=True)
        thread.start()
        self._threads.append(thread)

    # --- the thread of an attempt

    def _open(self, attempt: _Attempt, unasked: bool) -> None:
        try:
            stream = self._route.open(unasked=unasked)
            attempt.answer_by_s = self._monotonic() + GREETING_S
            attempt.stream = stream
            if not attempt.given_up:  # otherwise it was before there was anything to close
                self._greet(attempt, stream)
        except CannotReach as error:
            self._end(attempt, str(error), final=error.final)
        except (LinkError, OSError, ValueError) as error:  # ValueError: the stream was closed under us
            self._end(attempt, getattr(error, "strerror", None) or str(error))
        if attempt.wire is None:
            self._end(attempt, "")

    def _greet(self, attempt: _Attempt, stream: Stream) -> None:
        if self._last is not None and not self._last.join(GREETING_S):
            raise LinkError("the last connection does not end")  # and what it still delivers would come in between
        ours = Hello(devexplorer=devexplorer.__version__, client=self._client, machine=_who())
        sent_s = self._clock()
        send_hello(stream, ours)
        theirs = read_hello(stream)
        ahead_s = theirs.now_unix_s - (sent_s + self._clock()) / 2
        if theirs.problem or theirs.protocol != PROTOCOL:
            reason = theirs.problem or (
                f"{self._name} speaks protocol {theirs.protocol} (DevExplorer {theirs.devexplorer}), this window"
                f" protocol {PROTOCOL} (DevExplorer {ours.devexplorer}): run 'devexplorer host stop' there and connect"
                f" again, or use DevExplorer {theirs.devexplorer} here"
            )
            self._end(attempt, reason, final=True)
            return

        def take(record: Record) -> None:
            if isinstance(record, Goodbye):
                attempt.goodbye = record.reason
            self._incoming.take(record)

        wire = Wire(
            stream, _decode, take, lambda reason: self._end(attempt, reason), lambda: self._shut(attempt),
            ahead_s=ahead_s, clock=self._clock, monotonic=self._monotonic,
        )  # fmt: skip
        with self._making:
            if not attempt.given_up:
                attempt.hello, attempt.wire, self._last = theirs, wire, wire
                self._incoming.begin(theirs, wire)
                wire.start()


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):  # a user without a name
        return platform.node()
