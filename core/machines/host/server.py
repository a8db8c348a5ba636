"""Serves one session to windows: what happens goes out to each, their commands and questions come in. Main thread, but
for `take`; every window has two threads for its connection, one for its files, and one while it greets.

One window controls, the others watch: commands are carried out for the one that holds `Control`. It keeps it when its
connection breaks, until another window comes or takes over.
"""

from __future__ import annotations

import os
import platform
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Iterator
from functools import partial
from itertools import takewhile
from queue import Empty, SimpleQueue
from typing import Any

from msgspec.structs import replace

import devexplorer
from devexplorer.core.base import BadInput, Clock, LinkError, sentence
from devexplorer.core.engine.link import pieces
from devexplorer.core.machines.host.client import Client, SocketStream
from devexplorer.core.machines.host.known import Known
from devexplorer.core.machines.host.questions import Questions
from devexplorer.core.machines.host.wire import Wire, compresses, read_hello, send_hello
from devexplorer.core.machines.records import (
    BEGIN,
    PROTOCOL,
    SENT_TO,
    ZLIB,
    ActionsChanged,
    Ask,
    Control,
    Do,
    Goodbye,
    Happened,
    Hello,
    HistoryChanged,
    Numbered,
    RecordingChanged,
    SessionAction,
    SetHidden,
    SnapshotBegin,
    SnapshotEnd,
    TakeOver,
)
from devexplorer.core.records import AllocatorSample, Answer, DeviceSample, EngineLost, Event, JobEnded, Rebuilt
from devexplorer.core.session.poll import MOST_EVENTS
from devexplorer.core.session.session import Session

CHANGES_ACTIONS = (JobEnded, EngineLost, Rebuilt)
BEAT_S = 1 / 30
QUIET_S = 1.0
"""Between two looks at the session while nobody is connected; also between two heartbeats of connections."""
REPEAT_S = 5.0
"""A reading that does not change is told so often all the same: the one before may have been dropped."""
GREET_S = 10.0
MOST_GREETING = 32
MOST_ACTIONS = 1_000
"""In one record."""
MOST_CLIENTS = 16
"""Windows that are remembered."""
FORGET_S = 86_400.0
"""A window that was away for so long begins again."""
GOODBYE_S, LOOK_S = 0.5, 0.005


class Server:
    """`take` connections, `tick` and `wait` in turns, `end` at the end."""

    def __init__(
        self,
        session: Session,
        questions: Questions,
        *,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        self.id = secrets.token_hex(16)
        """Of this run of the host."""
        self.machine, self.version = platform.node(), devexplorer.__version__
        self.known = Known()
        self._session, self._questions = session, questions
        history: Any = session.listeners.get("history")
        self._history = history
        self._clock, self._monotonic = clock, monotonic
        self._clients: dict[str, Client] = {}
        self._holder: Client | None = None
        self._generation = 0
        self.make_way: Callable[[], None] = lambda: None
        """Called before a window's command goes to the engine."""
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._bell = threading.Event()
        self._behind = False
        """After a flood: more events wait than one `tick` took."""
        self._greeting = threading.Semaphore(MOST_GREETING)
        self._beat_due_s = monotonic()
        self._actions: tuple[SessionAction, ...] = ()
        self._allocators: dict[str, AllocatorSample] = {}
        """The latest reading of each that windows were told."""
        self._told: dict[type, Numbered] = {}
        """The latest of what is told when it changes, by type."""
        self._set_pace()
        if history is not None:
            history.on_change = lambda: self._tell(self._history_now())
            history.on_notice = lambda words, failed: questions.note(words, failed=failed)

    # --- any thread

    def take(self, connection: socket.socket) -> None:
        """Somebody has connected. Does not wait for their greeting."""
        if not self._greeting.acquire(blocking=False):
            connection.close()
            return
        threading.Thread(target=self._greet, args=(connection,), name="host-greet", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        stream = SocketStream(connection)
        stream.until_s = time.monotonic() + GREET_S
        try:
            hello = read_hello(stream)
            self._soon(partial(self._join, stream, hello))
        except (LinkError, OSError):  # whoever it was, it is nobody of ours; the others need not know
            connection.close()
        finally:
            self._greeting.release()

    def _soon(self, work: Callable[[], None]) -> None:
        self._inbox.put(work)
        self._bell.set()

    # --- main thread

    @property
    def connected(self) -> list[Client]:
        """Windows with a connection."""
        return [client for client in self._clients.values() if client.left_s is None]

    @property
    def engine_python(self) -> str:
        """What the engine runs in."""
        return self._questions.engine_now().python

    @property
    def busy(self) -> tuple[str, ...]:
        """What goes on though nobody is connected, in one word each."""
        state = self.known.state
        found = (
            ("benchmark", state.active_runs),
            ("job", state.jobs),
            ("recording", any(listener.eager for listener in self._session.listeners.values())),
        )
        return tuple(word for word, is_so in found if is_so)

    def wait(self) -> None:
        """Until something comes, or it is time for the next `tick`."""
        if self._behind:
            patience_s = 0.0
        elif self.connected:
            patience_s = BEAT_S
        else:
            patience_s = QUIET_S
        self._bell.wait(patience_s)
        self._bell.clear()

    def tick(self) -> None:
        """Carry out what windows want, and tell them what happened."""
        self._listen()
        result = self._session.drain()
        self.known.follow(result)
        if self._history is not None:
            self._history.deliver()
        if result.catalog is not None:
            self._tell(self.known.devices())
        if any(isinstance(event, CHANGES_ACTIONS) for event in result.events):
            self._tell_actions()  # a window looks at them when it is told that a command has ended
        for event in result.events:
            self._tell_event(event)
        for record in (self._recording_now(), self._questions.engine_now()):
            if self._told.get(type(record)) != record:
                self._tell(record)
        self._behind = len(result.events) >= MOST_EVENTS
        if (now := self._monotonic()) >= self._beat_due_s:
            self._beat_due_s = now + QUIET_S
            self._look_after(now)

    def _listen(self) -> None:
        while True:
            try:
                work = self._inbox.get_nowait()
            except Empty:
                return
            try:
                work()
            except Exception:  # a fault of ours must not cost the other windows their host: it is reported as one
                sys.excepthook(*sys.exc_info())

    def end(self, reason: str, deadline_s: float = 2.0) -> bool:
        """Take leave of every window; whether their threads ended in time."""
        self._tell(Goodbye(reason=reason))
        until = time.monotonic() + GOODBYE_S
        while time.monotonic() < until and any(client.outbox.waits for client in self.connected):
            self._bell.wait(LOOK_S)
            self._listen()
        clients = list(self._clients.values())
        self._clients.clear()
        ended = [self._forget(client) for client in clients]
        until = time.monotonic() + deadline_s
        for client in clients:
            ended.append(client.files.join(max(until - time.monotonic(), 0.0)))
        return all(ended)

    # --- windows come and go

    def _join(self, stream: SocketStream, hello: Hello) -> None:
        try:
            if problem := self._why_not(hello):
                send_hello(stream, self._hello(hello, problem=problem))
                stream.socket.close()
                return
            known = self._clients.get(hello.client)
            resumes = (
                known is not None
                and known.disconnect(self._monotonic())  # the window knows better whether that still works
                and hello.session == self.id
                and not known.outbox.overflowed
                and known.outbox.reaches(hello.received)
            )
            client = known if resumes and known is not None else Client(hello, self._arrived, self._soon, self._clock)
            answer = self._hello(hello, received=client.received, resumes=resumes)
            send_hello(stream, answer)
            stream.unlimited()
        except OSError:  # gone again
            stream.socket.close()
            return
        if resumes:
            client.outbox.resume(hello.received)
            if client is self._holder:
                self._tell_watchers(client)
            if client.misses_readings:
                client.outbox.drop_readings()
                for past in self.known.past():
                    client.tell(past)
        else:
            self._begin(client, known)
        client.connect(stream, compressed=compresses(answer, hello), ended=self._ended)
        self._set_pace()

    def _begin(self, client: Client, before: Client | None) -> None:
        """A window that is new here, or was away for too long."""
        held = before is not None and before is self._holder
        if before is not None:
            self._forget(before)
        self._clients[client.id] = client
        client.left_s = self._monotonic()  # until it is connected
        for record in self._snapshot():
            client.tell(record)
        for past in self.known.past():  # what is seen at once has gone ahead
            client.tell(past)
        client.outbox.set_limit()
        if held or self._holder is None or self._holder.left_s is not None:
            self._grant(client)
        else:
            client.tell(Control(granted=False, holder=self._holder.name))

    def _why_not(self, hello: Hello) -> str:
        if hello.protocol != PROTOCOL:
            return (
                f"the host that runs on {self.machine} speaks protocol {PROTOCOL} (DevExplorer {self.version}), this"
                f" window protocol {hello.protocol} (DevExplorer {hello.devexplorer}): end that host there with 'kill"
                f" {os.getpid()}', and connect again"
            )
        return "" if 0 < len(hello.client) <= 64 else "the window did not say which one it is"

    def _hello(self, theirs: Hello, *, received: int = 0, resumes: bool = False, problem: str = "") -> Hello:
        return Hello(
            devexplorer=self.version, features=(ZLIB, BEGIN, SENT_TO), client=theirs.client, session=self.id,
            received=received, resumes=resumes, machine=self.machine, problem=problem, now_unix_s=self._clock(),
        )  # fmt: skip

    def _ended(self, client: Client, wire: Wire) -> None:
        """On a thread of the connection."""

        def left() -> None:
            if client.is_on(wire):
                client.disconnect(self._monotonic())
                if client is self._holder:
                    self._tell_watchers(client, away=True)
                self._set_pace()

        self._soon(left)

    def _look_after(self, now: float) -> None:
        """Heartbeats, and windows that will not come back."""
        for client in list(self._clients.values()):
            client.beat()
        away = sorted(
            (client for client in self._clients.values() if client.left_s is not None),
            key=lambda client: client.left_s or 0.0,
        )
        surplus = len(self._clients) - MOST_CLIENTS
        for place, client in enumerate(away):
            too_long = now - (client.left_s or 0.0) > FORGET_S
            if client.outbox.overflowed or too_long or place < surplus:
                del self._clients[client.id]
                self._forget(client)

    def _forget(self, client: Client) -> bool:
        if self._holder is client:
            self._holder = None
        client.files.close()
        return client.disconnect(self._monotonic())

    def _set_pace(self) -> None:
        self._session.set_hidden(all(client.hidden for client in self.connected))

    # --- what windows say

    def _arrived(self, client: Client, record: Any) -> None:
        """On the thread of the connection."""
        self._soon(partial(self._handle, client, record))

    def _handle(self, client: Client, record: Any) -> None:
        client.taken()
        if self._clients.get(client.id) is not client:
            return  # it has begun again meanwhile
        match record:
            case Do():
                self._do(client, record)
            case TakeOver():
                self._grant(client)
            case Ask():
                self._questions.answer(client, record, controls=client is self._holder)
                if isinstance(record.question, SetHidden):
                    self._set_pace()

    def _do(self, client: Client, wanted: Do) -> None:
        command = wanted.command
        if client is not self._holder:
            other = "another window" if self._holder is None else self._holder.name or "another window"
            refusal = f"control of {self.machine} is with {other} now; take over to change something there"
        elif command.request >> 32 != client.generation or command.request & 0xFFFFFFFF == 0:
            refusal = "it was sent before this window had control"
        else:
            self.make_way()
            try:
                self._session.send_as(command)
                return
            except BadInput as error:
                refusal = str(error)
        now = self._clock()
        answer = Answer(
            request=command.request, title="That was not done", words=sentence(refusal), failed=True, time_unix_s=now
        )
        for event in (answer, JobEnded(request=command.request, ok=False, time_unix_s=now)):
            client.tell(Happened(event=event))

    def _grant(self, client: Client) -> None:
        self._generation += 1
        self._holder, client.generation = client, self._generation
        client.tell(Control(granted=True, generation=self._generation))
        self._tell_watchers(client)

    def _tell_watchers(self, holder: Client, *, away: bool = False) -> None:
        """Tell all other windows who has control."""
        for client in self._clients.values():
            if client is not holder:
                client.tell(Control(granted=False, holder=holder.name, away=away))

    # --- what windows are told

    def _tell(self, record: Numbered) -> None:
        self._told[type(record)] = record
        for client in self._clients.values():
            client.tell(record)

    def _tell_event(self, event: Event) -> None:
        reading = isinstance(event, DeviceSample | AllocatorSample)
        if isinstance(event, AllocatorSample) and not self._is_news(event):
            return
        for piece in pieces(event):
            happened = Happened(event=piece)
            for client in self._clients.values():
                (client.show if reading else client.tell)(happened)

    def _is_news(self, sample: AllocatorSample) -> bool:
        """Whether it says more than that time has passed: an allocator stands still most of the time."""
        told = self._allocators.get(sample.device)
        if (
            told is not None
            and 0 <= sample.time_unix_s - told.time_unix_s < REPEAT_S
            and replace(sample, time_unix_s=told.time_unix_s) == told
        ):
            return False
        self._allocators[sample.device] = sample
        return True

    def _tell_actions(self) -> None:
        actions = tuple(SessionAction(*action) for action in self._session.actions)
        if actions != self._actions:
            same = takewhile(lambda pair: pair[0] == pair[1], zip(actions, self._actions, strict=False))
            keep, self._actions = sum(1 for _ in same), actions
            for record in self._actions_after(keep):
                self._tell(record)

    def _actions_after(self, keep: int) -> Iterator[ActionsChanged]:
        """In records of a length that a window accepts."""
        for start in range(keep, max(len(self._actions), keep + 1), MOST_ACTIONS):
            yield ActionsChanged(keep=start, added=self._actions[start : start + MOST_ACTIONS])

    def _recording_now(self) -> RecordingChanged:
        listener: Any = self._session.listeners.get("recording")
        recorder = None if listener is None else listener.recording
        if recorder is None:
            return RecordingChanged()
        return RecordingChanged(path=str(recorder.path), started_unix_s=recorder.started_unix_s)

    def _history_now(self) -> HistoryChanged:
        return HistoryChanged(problem=(self._history and self._history.problem) or "")

    def _snapshot(self) -> list[Numbered]:
        return [
            SnapshotBegin(), self._questions.engine_now(), *self.known.records(),
            *self._actions_after(0), self._recording_now(), self._history_now(), SnapshotEnd(),
        ]  # fmt: skip
