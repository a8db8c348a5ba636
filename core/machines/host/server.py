"""Serves one session to windows: what happens goes out to each, their commands and questions come in. Main thread, but
for `take`; every window has two threads for its connection, one for its files, and one while it greets.

One window controls, the others watch: commands are carried out for the one that holds `Control`. When its connection
has broken, the next window that comes controls. Every connection begins with a snapshot, which says what is under way
of what windows wanted; nothing else is remembered of a connection.
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
from pathlib import Path
from queue import Empty, SimpleQueue
from typing import Any

import devexplorer
from devexplorer.core.base import BadInput, Clock, LinkError, sentence
from devexplorer.core.engine.link import frame, pieces
from devexplorer.core.feature import decoder
from devexplorer.core.machines.host.files import FileWork
from devexplorer.core.machines.host.known import Known
from devexplorer.core.machines.host.questions import Questions
from devexplorer.core.machines.host.wire import SocketStream, Wire, read_hello, send_hello
from devexplorer.core.machines.records import (
    PROTOCOL,
    ActionsChanged,
    Control,
    Do,
    ForgetCopy,
    Goodbye,
    Happened,
    Hello,
    HistoryChanged,
    HostQuestion,
    RecordingChanged,
    SessionAction,
    SetHidden,
    SnapshotBegin,
    SnapshotEnd,
    TakeOver,
    ToHost,
)
from devexplorer.core.records import (
    AllocatorSample,
    Answer,
    Command,
    DeviceSample,
    EngineLost,
    Event,
    JobEnded,
    Rebuilt,
)
from devexplorer.core.records.base import Record
from devexplorer.core.session.poll import MOST_EVENTS
from devexplorer.core.session.session import Session

CHANGES_ACTIONS = (JobEnded, EngineLost, Rebuilt)
BEAT_S = 1 / 30
QUIET_S = 1.0
"""Between two looks at the session while nobody is connected; also between two heartbeats of connections."""
GREET_S = 10.0
MOST_ACTIONS = 1_000
"""In one record."""
LONGEST_NAME = 100
GOODBYE_S, LOOK_S = 0.5, 0.005
_decode: Callable[[bytes], Any] = decoder(ToHost).decode


class Client:
    """A window that is connected. Main thread, but for `tell`."""

    def __init__(self, hello: Hello, files: FileWork) -> None:
        self.id, self.name = hello.client, hello.machine[:LONGEST_NAME]
        self.files = files
        self.generation = 0
        """Of its commands, while it controls."""
        self.hidden = False
        self.wire: Wire

    def tell(self, record: Record) -> None:
        """Send this record. Any thread."""
        self.wire.put(frame(record))


class Server:
    """`take` connections, `tick` and `wait` in turns, `end` at the end."""

    def __init__(
        self,
        session: Session,
        copies: Path | None = None,
        *,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`copies`: the folder of files that cross between machines; None: in the user's cache."""
        self.id = secrets.token_hex(16)
        """Of this run of the host."""
        self.machine, self.version = platform.node(), devexplorer.__version__
        self.known = Known()
        self._since_unix_s = clock()
        self._session, self._copies = session, copies
        self._questions = questions = Questions(session, clock)
        history: Any = session.listeners.get("history")
        self._history = history
        self._clock, self._monotonic = clock, monotonic
        self.connected: list[Client] = []
        """Windows with a connection."""
        self._holder: Client | None = None
        """The window that controls, or that did when its connection ended."""
        self._generation = 0
        self.make_way: Callable[[], None] = lambda: None
        """Called before a window's command goes to the engine."""
        self._inbox: SimpleQueue[Callable[[], None]] = SimpleQueue()
        self._bell = threading.Event()
        self._behind = False
        """After a flood: more events wait than one `tick` took."""
        self._beat_due_s = monotonic()
        self._actions: tuple[SessionAction, ...] = ()
        self._told: dict[type, Record] = {}
        """The latest of what is told when it changes, by type."""
        self._set_pace()
        if history is not None:
            history.on_change = lambda: self._tell(self._history_now())
            history.on_notice = lambda words, failed: questions.note(words, failed=failed)

    # --- any thread

    def take(self, connection: socket.socket) -> None:
        """Somebody has connected. Does not wait for their greeting."""
        threading.Thread(target=self._greet, args=(connection,), name="host-greet", daemon=True).start()

    def _greet(self, connection: socket.socket) -> None:
        stream = SocketStream(connection)
        connection.settimeout(GREET_S)
        try:
            hello = read_hello(stream)
            self._soon(partial(self._join, stream, hello))
        except (LinkError, OSError):  # whoever it was, it is nobody of ours; the others need not know
            connection.close()

    def _soon(self, work: Callable[[], None]) -> None:
        self._inbox.put(work)
        self._bell.set()

    # --- main thread

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
            for client in self.connected:
                client.wire.beat()

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

    def end(self, reason: str, deadline_s: float = 2.0, *, for_good: bool = False) -> bool:
        """Take leave of every window; whether their threads ended in time."""
        self._listen()  # those who greet just now are told as well
        self._tell(Goodbye(reason=reason, for_good=for_good))
        until = time.monotonic() + GOODBYE_S
        clients = list(self.connected)
        while time.monotonic() < until and any(client.wire.waits for client in clients):
            self._bell.wait(LOOK_S)
            self._listen()
        self.connected = []
        for client in clients:
            client.wire.close()
            client.files.close()
        until = time.monotonic() + deadline_s
        ended = [client.wire.join(max(until - time.monotonic(), 0.0)) for client in clients]
        ended += [client.files.join(max(until - time.monotonic(), 0.0)) for client in clients]
        FileWork(self._session, self._copies).remove_copies()
        return all(ended)

    # --- windows come and go

    def _join(self, stream: SocketStream, hello: Hello) -> None:
        problem = self._why_not(hello)
        try:
            send_hello(stream, Hello(
                devexplorer=self.version, client=hello.client, session=self.id, machine=self.machine, problem=problem,
                now_unix_s=self._clock(), pid=os.getpid(), since_unix_s=self._since_unix_s,
                python=self._questions.engine_now().python, clients=len(self.connected), busy=self.busy,
            ))  # fmt: skip
            stream.socket.settimeout(None)
        except OSError:  # gone again
            problem = "gone"
        for client in self.connected:
            if client.id == hello.client:  # the window knows better whether that still works
                client.wire.close()
                self._left(client)
        if problem:
            stream.close()
            return
        client = Client(hello, FileWork(self._session, self._copies))
        client.wire = Wire(
            stream, _decode, lambda record: self._soon(partial(self._handle, client, record)),
            lambda _: self._soon(partial(self._left, client)), stream.hang_up, clock=self._clock,
        )  # fmt: skip
        control = Control(granted=False, holder="" if self._holder is None else self._holder.name)
        if self._holder not in self.connected:
            control = self._grant(client)
        client.wire.start([frame(record) for record in (*self._snapshot(), control, *self.known.past())])
        self.connected.append(client)
        if client is self._holder:
            self._tell_watchers()
        self._set_pace()

    def _grant(self, client: Client) -> Control:
        """This window controls from now on."""
        self._generation += 1
        self._holder, client.generation = client, self._generation
        return Control(granted=True, generation=self._generation)

    def _left(self, client: Client) -> None:
        """Its connection has ended."""
        if client in self.connected:
            self.connected.remove(client)
            client.files.ask(ForgetCopy(), lambda _, __: None)  # nobody waits for what is being saved
            client.files.close()
            if client is self._holder:
                self._tell_watchers(away=True)
            self._set_pace()

    def _why_not(self, hello: Hello) -> str:
        if hello.protocol != PROTOCOL:
            return (
                f"the host that runs on {self.machine} speaks protocol {PROTOCOL} (DevExplorer {self.version}), this"
                f" window protocol {hello.protocol} (DevExplorer {hello.devexplorer}): end that host there with 'kill"
                f" {os.getpid()}' and connect again, or use DevExplorer {self.version} here"
            )
        return "" if 0 < len(hello.client) <= 64 else "the window did not say which one it is"

    def _set_pace(self) -> None:
        self._session.set_hidden(all(client.hidden for client in self.connected))

    # --- what windows say

    def _handle(self, client: Client, record: Any) -> None:
        if isinstance(record, Do):
            self._do(client, record.command)
        elif client not in self.connected:  # nobody hears an answer
            return
        elif isinstance(record, TakeOver):
            client.tell(self._grant(client))
            self._tell_watchers()
        elif isinstance(record, HostQuestion):
            self._questions.answer(client, record, controls=client is self._holder)
            if isinstance(record.question, SetHidden):
                self._set_pace()

    def _do(self, client: Client, command: Command) -> None:
        request = command.request
        if client is not self._holder:
            other = "another window" if self._holder is None else self._holder.name or "another window"
            why_not = f"control of {self.machine} is with {other} now; take over to change something there"
        elif request >> 32 != client.generation or request & 0xFFFFFFFF == 0:
            why_not = "it was sent before this window had control"
        else:
            self.make_way()
            try:
                self._session.send_as(command)
                self.known.asked(request)
                return
            except BadInput as error:
                why_not = str(error)
        now = self._clock()
        title, words = "That was not done", sentence(why_not)
        for event in (
            Answer(request=request, title=title, words=words, failed=True, time_unix_s=now),
            JobEnded(request=request, ok=False, time_unix_s=now),
        ):
            client.tell(Happened(event=event))

    def _tell_watchers(self, *, away: bool = False) -> None:
        """Tell all other windows who has control."""
        for client in self.connected:
            if client is not self._holder and self._holder is not None:
                client.tell(Control(granted=False, holder=self._holder.name, away=away))

    # --- what windows are told

    def _tell(self, record: Record) -> None:
        self._told[type(record)] = record
        self._send(record)

    def _send(self, record: Record, *, reading: bool = False) -> None:
        if self.connected:
            data = frame(record)
            for client in self.connected:
                client.wire.put(data, reading=reading)

    def _tell_event(self, event: Event) -> None:
        reading = isinstance(event, DeviceSample | AllocatorSample)
        for piece in pieces(event):
            self._send(Happened(event=piece), reading=reading)

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

    def _snapshot(self) -> list[Record]:
        return [
            SnapshotBegin(), self._questions.engine_now(), *self.known.records(),
            *self._actions_after(0), self._recording_now(), self._history_now(),
            SnapshotEnd(running=tuple(self.known.running)),
        ]  # fmt: skip
