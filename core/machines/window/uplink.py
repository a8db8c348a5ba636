"""The link of one window to one host, through as many connections as it takes, and what has come over it, made fit to
be shown. Main thread, but for the thread `link`, which opens a channel and greets, and the two threads of each `Wire`:
these check what comes, put snapshots of large objects together and build the state of a snapshot.

After a break the next connection is tried at once, then after 1, 2, 5, 10 and every 30 s; each begins with a snapshot.
"""

from __future__ import annotations

import getpass
import math
import operator
import platform
import re
import secrets
import threading
import time
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple, TypeVar

import msgspec

import devexplorer
from devexplorer.core.base import Clock, LinkError
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.link import Joiner, sane
from devexplorer.core.feature import decoder
from devexplorer.core.machines.host.known import unpacked
from devexplorer.core.machines.host.wire import ByteStream, Wire, read_hello, send_hello
from devexplorer.core.machines.records import (
    ActionsChanged,
    Control,
    DevicesChanged,
    EngineChoice,
    Goodbye,
    Happened,
    Hello,
    HistoryChanged,
    PastEvents,
    PastReadings,
    RecordingChanged,
    Reply,
    SessionAction,
    SnapshotBegin,
    SnapshotEnd,
    Text,
    ToWindow,
)
from devexplorer.core.machines.window.link import CannotReach, LinkState, Route
from devexplorer.core.records import AllocatorSample, DeviceSample, Event, Log, Row
from devexplorer.core.records.base import Record
from devexplorer.core.session.poll import Past
from devexplorer.core.session.state import Marker, State
from devexplorer.core.telemetry.mailbox import Mailbox

T = TypeVar("T")
TIME = "_unix_s"
"""How the names of fields end that hold a time of the other clock."""
_HIDDEN = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]")


def visible(text: str) -> str:
    """The text with signs in place of control and escape characters; lines and tabs stay."""
    return text if text.isprintable() else _HIDDEN.sub(_sign, text)


def _sign(found: re.Match[str]) -> str:
    code = ord(found[0])
    if code < 0x20:
        return chr(0x2400 + code)
    return "\u2421" if code == 0x7F else f"\u27e8U+{code:04X}\u27e9"


def admitted(record: T, ahead_s: float = 0.0) -> T:
    """The record as it can be shown; `LinkError` when it holds what cannot be."""
    if not sane(record):
        raise LinkError(
            f"a {type(record).__name__} was refused: it holds a number that is not finite or a text that is too long"
        )
    shown: T = _shown(record, ahead_s)
    return shown


def _shown(value: Any, ahead_s: float) -> Any:
    """The same object where nothing is to be changed."""
    if isinstance(value, str):
        return visible(value)
    if isinstance(value, Row):
        return value if _is_plain(value) else _struct(value, ahead_s)
    if isinstance(value, msgspec.Struct):
        return _struct(value, ahead_s)
    if isinstance(value, tuple):
        if value and type(value[0]) is int:
            return value
        parts = tuple([_shown(part, ahead_s) for part in value])
        return value if all(map(operator.is_, parts, value)) else parts
    if isinstance(value, dict):
        items = {_shown(key, ahead_s): _shown(part, ahead_s) for key, part in value.items()}
        return value if items == value else items
    return value


def _is_plain(row: Row) -> bool:
    words = f"{row.path}{row.name}{row.kind}{row.type}{row.dtype}{row.tied_to}{row.grad_fn}{''.join(row.devices)}"
    return words.isprintable()


def _struct(value: msgspec.Struct, ahead_s: float) -> msgspec.Struct:
    changed = {}
    for name, is_time in _fields(type(value)):
        part = getattr(value, name)
        if is_time:
            if part and ahead_s:
                changed[name] = part - ahead_s
        elif not isinstance(part, (int, float)) and part is not None and (now := _shown(part, ahead_s)) is not part:
            changed[name] = now
    return msgspec.structs.replace(value, **changed) if changed else value


@cache
def _fields(kind: type[msgspec.Struct]) -> tuple[tuple[str, bool], ...]:
    return tuple((name, name.endswith(TIME)) for name in kind.__struct_fields__)


RETRY_S = (0.0, 1.0, 2.0, 5.0, 10.0, 30.0)
"""Before each further attempt; the last one again and again."""
PROVED_S = 10.0
"""A connection that lasted so long was one: the next break begins with the first pause again."""
GREETING_S = 30.0
"""The longest time for a greeting; starting a host is part of it."""
RATES_S = 3.0
_decode: Callable[[bytes], ToWindow] = decoder(ToWindow).decode


class LinkNews(NamedTuple):
    """What has come since the last time."""

    state: State | None
    running: tuple[int, ...]
    """With the state: the requests that have not ended there."""
    catalog: Catalog | None
    events: list[Event]
    replies: list[Reply]
    history: HistoryChanged | None
    past: list[Past]


class Incoming:
    """`begin` and `take` on the threads of the link, `news` and the attributes on the main thread."""

    def __init__(self, name: str, clock: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._name, self._clock, self._monotonic = name, clock, monotonic
        self._wire: Wire | None = None
        """The latest connection."""
        self.actions: tuple[SessionAction, ...] = ()
        self.control: Control | None = None
        """The last word about it; None: not said on this connection."""
        self.recording = RecordingChanged()
        self.engine: EngineChoice | None = None
        self.read_s: float | None = None
        """When the last reading came, by the monotonic clock."""
        self.heard_unix_s = clock()
        """When anything came last."""
        self._lock = threading.Lock()
        """Of what follows."""
        self._joiner = Joiner()
        self._snapshot: State | None = None
        """The state that is being told."""
        self._state: State | None = None
        self._running: tuple[int, ...] = ()
        self._catalog: Catalog | None = None
        self._mailbox = Mailbox()
        self._own: list[Event] = []
        """Events of the window itself: no snapshot takes their place."""
        self._dropped = 0
        self._replies: list[Reply] = []
        self._history: HistoryChanged | None = None
        self._past: list[Past] = []

    @property
    def ahead_s(self) -> float:
        """How far the host's clock is ahead."""
        return 0.0 if self._wire is None else self._wire.ahead_s

    @property
    def dropped(self) -> int:
        """Readings that this window was too slow for."""
        return self._dropped + self._mailbox.dropped

    def put(self, event: Event) -> None:
        """An event of the window's own. Any thread."""
        with self._lock:
            self._own.append(event)

    def news(self) -> LinkNews:
        """Take what has come. Main thread."""
        with self._lock:
            events = [*self._mailbox.drain(), *self._own]
            news = LinkNews(self._state, self._running, self._catalog, events, self._replies, self._history, self._past)
            self._own, self._replies, self._past = [], [], []
            self._state = self._catalog = self._history = None
        return news

    def begin(self, wire: Wire) -> None:
        """A connection was made; nothing has come over it. Main thread."""
        with self._lock:
            self._wire, self._joiner, self._snapshot, self.control = wire, Joiner(), None, None

    def take(self, record: Record) -> None:
        """A record has come. On the thread of the connection."""
        self.heard_unix_s = self._clock()
        try:
            if isinstance(record, Happened):
                event = self._joiner.take(record.event)
                if event is not None:  # otherwise more of it follows
                    event = admitted(event, self.ahead_s)
                    with self._lock:
                        self._happened(event)
                return
            if isinstance(record, Reply) and isinstance(record.result, Text):
                record = Reply(to=record.to, result=Text(text=visible(record.result.text)))  # of any length
            else:
                record = admitted(record, self.ahead_s)
            with self._lock:
                self._said(record)
        except LinkError as error:  # what belongs to it is missing; everything else goes on
            self.put(Log(level="warning", text=f"{self._name}: {error}", time_unix_s=self._clock()))

    def _said(self, record: Record) -> None:
        snapshot = self._snapshot
        match record:
            case Reply():
                self._replies.append(record)
            case DevicesChanged():
                catalog = Catalog(record.devices, record.problems)
                if snapshot is None:
                    self._catalog = catalog
                else:
                    snapshot.set_catalog(catalog)
            case ActionsChanged():
                self.actions = (*self.actions[: record.keep], *record.added)
            case Control():
                self.control = record
            case RecordingChanged():
                self.recording = record
            case EngineChoice():
                self.engine = record
            case HistoryChanged():
                self._history = record
            case PastEvents() if snapshot is not None:
                snapshot.markers.clear()
                snapshot.markers.extend(Marker(*msgspec.structs.astuple(mark)) for mark in record.marks)
            case PastReadings():
                self._past.append(Past(record.device, record.metrics, *unpacked(record)))
            case SnapshotBegin():
                self._snapshot, self.actions, self._past, self._joiner = State(), (), [], Joiner()
            case SnapshotEnd() if snapshot is not None:
                self._complete(snapshot, record.running)

    def _happened(self, event: Event) -> None:
        if isinstance(event, DeviceSample | AllocatorSample):
            self.read_s = self._monotonic()
        if self._snapshot is None:
            self._mailbox.put(event)
            return
        try:
            self._snapshot.apply(event)
        except Exception as error:  # one bad event must not cost the others: said as any other fault, and on
            thread = threading.current_thread()
            threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))

    def _complete(self, snapshot: State, running: tuple[int, ...]) -> None:
        """What came before the snapshot is in it; the curves follow it, all at once."""
        for device in snapshot.devices.values():
            device.history.clear()
            device.throughput.clear()
        self._dropped += self._mailbox.dropped
        self._state, self._running = snapshot, running
        self._snapshot, self._catalog, self._mailbox = None, None, Mailbox()


class _Attempt:
    """One connection, from the first step to its end. Its thread says how far it has come."""

    def __init__(self) -> None:
        self.stream: ByteStream | None = None
        self.answer_by_s = math.inf
        """When the greeting has to be there."""
        self.hello = Hello()
        """Of the host."""
        self.wire: Wire | None = None
        """Not begun yet; None: it was not greeted."""
        self.goodbye: Goodbye | None = None
        """Why the host has ended."""
        self.over: tuple[str, bool] | None = None
        """What ended it, and whether that would end the next one as well; None: it goes on."""


class Uplink:
    """`start`, `beat` often, look at `wire`; `close` at the end."""

    def __init__(
        self,
        name: str,
        route: Route,
        *,
        client: str = "",
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        self._name, self._route = name, route
        self.incoming = Incoming(name, clock, monotonic)
        self._client = client or secrets.token_hex(16)
        """Which window this is: its connections take the place of each other."""
        self._clock, self._monotonic = clock, monotonic
        self.state: LinkState = "connecting"
        self.since_unix_s = clock()
        self.reason = ""
        self.ended = False
        """The host has said that what it showed is over."""
        self.hello = Hello()
        """Of the host."""
        self.wire: Wire | None = None
        """The connection that there is."""
        self._attempt: _Attempt | None = None
        self._last: Wire | None = None
        """The latest connection, also when it is over."""
        self._connected_s = math.inf
        self._tries = 0
        self._retry_at_s = math.inf
        self.rates = (0.0, 0.0)
        """Bytes per second that came and went, over the last seconds."""
        self._counted = (monotonic(), 0, 0)
        """When that was measured, and what had come and gone by then."""
        self._threads: list[threading.Thread] = []

    # --- main thread

    def start(self) -> None:
        """Begin to connect; returns at once."""
        self._connect()

    @property
    def retry_in_s(self) -> float | None:
        """Until the next attempt; None: none is due, or one is being made."""
        return None if self._retry_at_s == math.inf else max(self._retry_at_s - self._monotonic(), 0.0)

    def beat(self) -> None:
        """Heartbeats of the connection, the end of it, and what is tried next."""
        now = self._monotonic()
        if (attempt := self._attempt) is not None:
            if self.wire is None and attempt.wire is not None:
                self._connected(attempt, attempt.wire)
            if self.wire is not None:
                self.wire.beat()
                self._count(self.wire)
            elif now >= attempt.answer_by_s:
                self._end(attempt, f"{self._name} did not answer within {GREETING_S:.0f} s")
            if attempt.over is not None:
                self._mend(attempt, *attempt.over)
        if now >= self._retry_at_s:
            self._tries += 1
            self._connect()

    def _count(self, wire: Wire) -> None:
        now, (then, came, went) = self._monotonic(), self._counted
        if now - then >= RATES_S:
            self._counted = now, wire.received_bytes, wire.sent_bytes
            self.rates = (wire.received_bytes - came) / (now - then), (wire.sent_bytes - went) / (now - then)

    def reconnect(self) -> None:
        """Try now, because the user asked for it; a connection that there is begins again. What has ended for good is
        not asked again: what was seen of it would be lost."""
        if self.ended:
            return
        self._tries = 0
        self._hang_up()
        self._connect()

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
        self.rates = (0.0, 0.0)
        if attempt is not None:
            waits = attempt.over is None and attempt.stream is None
            self._end(attempt, "")
            if waits:
                self._route.cancel()

    def _connect(self) -> None:
        self._enter("reconnecting" if self.hello.session else "connecting", self.reason)
        self._retry_at_s = math.inf
        self._attempt = attempt = _Attempt()
        self._spawn("link", lambda: self._open(attempt))

    def _connected(self, attempt: _Attempt, wire: Wire) -> None:
        self.wire = self._last = wire
        self.hello, self._connected_s = attempt.hello, self._monotonic()
        self._counted = self._connected_s, 0, 0
        self.incoming.begin(wire)
        wire.start()
        self._enter("connected", "")

    def _mend(self, attempt: _Attempt, reason: str, final: bool) -> None:
        """A connection or an attempt has ended: try again, unless that would be of no use."""
        self._hang_up()
        now = self._monotonic()
        if now - self._connected_s > PROVED_S:
            self._tries = 0
        self._connected_s = math.inf
        if attempt.goodbye is not None:
            self.ended = attempt.goodbye.for_good
            self._enter("lost", attempt.goodbye.reason or reason)
            return
        if final or not self.hello.session:
            self._enter("lost", reason)
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

    def _open(self, attempt: _Attempt) -> None:
        try:
            stream = self._route.open()
            attempt.answer_by_s = self._monotonic() + GREETING_S
            attempt.stream = stream
            if attempt.over is None:  # otherwise it was given up before there was anything to close
                self._greet(attempt, stream)
        except CannotReach as error:
            self._end(attempt, str(error), final=error.final)
        except (LinkError, OSError, ValueError) as error:  # ValueError: the stream was closed under us
            self._end(attempt, getattr(error, "strerror", None) or str(error))
        if attempt.wire is None:
            self._end(attempt, "")

    def _greet(self, attempt: _Attempt, stream: ByteStream) -> None:
        if self._last is not None and not self._last.join(GREETING_S):
            raise LinkError("the last connection does not end")  # and what it still delivers would come in between
        ours = Hello(devexplorer=devexplorer.__version__, client=self._client, machine=_who())
        sent_s = self._clock()
        send_hello(stream, ours)
        theirs = read_hello(stream)
        ahead_s = theirs.now_unix_s - (sent_s + self._clock()) / 2
        if theirs.problem:
            self._end(attempt, theirs.problem, final=True)
            return

        def take(record: Record) -> None:
            if isinstance(record, Goodbye):
                attempt.goodbye = record
            self.incoming.take(record)

        attempt.hello = theirs
        attempt.wire = Wire(
            stream, _decode, take, lambda reason: self._end(attempt, reason), lambda: self._shut(attempt),
            ahead_s=ahead_s, clock=self._clock, monotonic=self._monotonic,
        )  # fmt: skip


def _who() -> str:
    try:
        return f"{getpass.getuser()}@{platform.node()}"
    except (OSError, KeyError):  # a user without a name
        return platform.node()
