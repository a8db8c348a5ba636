"""What a host has said and the window has not taken yet. Records come on the threads of the link, which check them, put
snapshots of large objects together and build the state of a snapshot; the main thread takes them at each beat.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Literal, NamedTuple

from devexplorer.core.base import Clock, LinkError
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.engine.link import Joiner
from devexplorer.core.machines.host.wire import Wire
from devexplorer.core.machines.past import unpacked
from devexplorer.core.machines.records import (
    ActionsChanged,
    Control,
    DevicesChanged,
    EngineChoice,
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
)
from devexplorer.core.machines.window.untrusted import admitted, visible
from devexplorer.core.records import AllocatorSample, DeviceSample, Event, Log
from devexplorer.core.records.base import Record
from devexplorer.core.session.marker import Marker
from devexplorer.core.session.past import Past
from devexplorer.core.session.state import State
from devexplorer.core.telemetry.mailbox import Mailbox

Begin = Literal["first", "again", "unknown", "anew"]
"""What a new connection is: the first one; one to a host that remembers what this window asked for, or that does not
any more; one to another run of the host."""


class News(NamedTuple):
    """What has come since the last time."""

    begins: tuple[tuple[Begin, Wire], ...]
    """Connections that were made."""
    state: State | None
    catalog: Catalog | None
    events: list[Event]
    replies: tuple[Reply, ...]
    history: HistoryChanged | None
    past: tuple[Past, ...]


class Incoming:
    """`begin` and `take` on the threads of the link, `news` and the attributes on the main thread."""

    def __init__(self, name: str, clock: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._name, self._clock, self._monotonic = name, clock, monotonic
        self.ahead_s: Callable[[], float] = lambda: 0.0
        """How far the host's clock is ahead."""
        self.actions: tuple[SessionAction, ...] = ()
        self.control: Control | None = None
        """The last word about it; None: not said on this connection."""
        self.recording = RecordingChanged()
        self.engine: EngineChoice | None = None
        self.read_s: float | None = None
        """When the last reading came, by the monotonic clock."""
        self.heard_unix_s = clock()
        """When anything came last."""
        self._session = ""
        """The run of the host that was connected last."""
        self._lock = threading.Lock()
        """Of what follows."""
        self._joiner = Joiner()
        self._snapshot: State | None = None
        """The state that is being told."""
        self._begins: list[tuple[Begin, Wire]] = []
        self._state: State | None = None
        self._catalog: Catalog | None = None
        self._mailbox = Mailbox()
        self._own: list[Event] = []
        """Events of the window itself: no snapshot takes their place."""
        self._dropped = 0
        self._replies: list[Reply] = []
        self._history: HistoryChanged | None = None
        self._past: list[Past] = []

    @property
    def dropped(self) -> int:
        """Readings that this window was too slow for."""
        return self._dropped + self._mailbox.dropped

    def put(self, event: Event) -> None:
        """An event of the window's own. Any thread."""
        with self._lock:
            self._own.append(event)

    def news(self) -> News:
        """Take what has come. Main thread."""
        with self._lock:
            events = [*self._mailbox.drain(), *self._own]
            news = News(
                tuple(self._begins), self._state, self._catalog, events, tuple(self._replies), self._history,
                tuple(self._past),
            )  # fmt: skip
            self._begins, self._own, self._replies, self._past = [], [], [], []
            self._state = self._catalog = self._history = None
        return news

    # --- on the threads of the link

    def begin(self, hello: Hello, wire: Wire) -> None:
        """A connection was made."""
        begin: Begin = "first"
        if self._session and hello.session != self._session:
            begin = "anew"
        elif self._session:
            begin = "again" if hello.knows else "unknown"
        self._session = hello.session
        with self._lock:
            self._begins.append((begin, wire))
            self.ahead_s = lambda: wire.ahead_s
            self._joiner, self._snapshot = Joiner(), None
            self.control = None

    def take(self, record: Record) -> None:
        """A record has come."""
        self.heard_unix_s = self._clock()
        try:
            if isinstance(record, Happened):
                event = self._joiner.take(record.event)
                if event is not None:
                    self._happened(admitted(event, self.ahead_s()))
            elif isinstance(record, Reply) and isinstance(record.result, Text):
                text = Text(text=visible(record.result.text))  # of any length
                self._reply(Reply(to=record.to, result=text))
            else:
                self._said(admitted(record, self.ahead_s()))
        except LinkError as error:  # what belongs to it is missing; everything else goes on
            self.put(Log(level="warning", text=f"{self._name}: {error}", time_unix_s=self._clock()))

    def _happened(self, event: Event) -> None:
        if isinstance(event, DeviceSample | AllocatorSample):
            self.read_s = self._monotonic()
        with self._lock:
            if self._snapshot is None:
                self._mailbox.put(event)
                return
            try:
                self._snapshot.apply(event)
            except Exception as error:  # one bad event must not cost the others: said as any other fault, and on
                thread = threading.current_thread()
                threading.excepthook(threading.ExceptHookArgs((type(error), error, error.__traceback__, thread)))

    def _said(self, record: Record) -> None:
        match record:
            case Reply():
                self._reply(record)
            case DevicesChanged():
                self._devices(Catalog(record.devices, record.problems))
            case ActionsChanged():
                self.actions = (*self.actions[: record.keep], *record.added)
            case Control():
                self.control = record
            case RecordingChanged():
                self.recording = record
            case EngineChoice():
                self.engine = record
            case HistoryChanged():
                with self._lock:
                    self._history = record
            case PastEvents():
                self._past_events(record)
            case PastReadings():
                past = Past(record.device, record.metrics, *unpacked(record))
                with self._lock:
                    self._past.append(past)
            case SnapshotBegin():
                with self._lock:
                    self._snapshot, self.actions, self._past = State(), (), []
                    self._joiner = Joiner()
            case SnapshotEnd():
                self._complete()

    def _reply(self, reply: Reply) -> None:
        with self._lock:
            self._replies.append(reply)

    def _devices(self, catalog: Catalog) -> None:
        with self._lock:
            if self._snapshot is None:
                self._catalog = catalog
            else:
                self._snapshot.set_catalog(catalog)

    def _past_events(self, past: PastEvents) -> None:
        with self._lock:
            if (state := self._snapshot) is not None:
                state.markers.clear()
                state.markers.extend(Marker(mark.time_unix_s, mark.text, mark.device, mark.kind) for mark in past.marks)

    def _complete(self) -> None:
        """What came before the snapshot is in it; the curves follow it, all at once."""
        with self._lock:
            if self._snapshot is not None:
                for device in self._snapshot.devices.values():
                    device.history.clear()
                    device.throughput.clear()
                self._dropped += self._mailbox.dropped
                self._state, self._snapshot, self._catalog, self._mailbox = self._snapshot, None, None, Mailbox()
