"""The observed scripts of this user that run on this machine: how they are found, and the engine that a host has of
one. Any thread; no torch, no Qt."""

from __future__ import annotations

import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any

import msgspec

from devexplorer.core.base import Clock, LinkError, module_command
from devexplorer.core.engine.link import EVENT_LIMIT, Joiner, decode_event, frame, read_payload
from devexplorer.core.machines.host.finding import CONNECT_S, VARIANT, HostError, folders, peer, reach, trusted
from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.machines.ssh.records import ConnectionFailure, Report
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.records import Command, EngineLost, EventSink, Log
from devexplorer.core.records.base import Record

PROTOCOL = 1
GREETING_LIMIT = 1 << 16
ANSWER_S = 1.0
_SOCKET = re.compile(r"script-(\d+)\.sock")


class Greeting(Record):
    """The first record that a script sends to whoever connects."""

    pid: int
    name: str
    """Its file, or `-m MODULE`."""
    folder: str
    """Where it was started."""
    since_unix_s: float
    torch: str
    rank: int | None = None
    ranks: int | None = None
    job: str = ""
    """The same for all ranks of one job; empty: it is none of a job."""
    devices: tuple[str, ...] = ()
    """Virtual GPUs in place of CUDA."""
    protocol: int = PROTOCOL
    devexplorer: str = ""


def socket_of(folder: str, pid: int) -> str:
    """Where the script of that process listens."""
    return os.path.join(folder, f"script-{pid}.sock")


def name_of(model: Any) -> str:
    """What an object is called that has no name: its class, as Python writes names of objects.

    >>> class GPTModel: pass
    >>> name_of(GPTModel())
    'gptmodel'
    """
    return type(model).__name__.lower()


def running() -> list[Greeting]:
    """Those that answer, the oldest first. Sockets of those that have ended are removed."""
    found = {}
    for pid, path in _sockets():
        connection = _connect(path)
        if connection is None:
            continue
        with connection, suppress(LinkError, OSError, msgspec.MsgspecError):
            found[pid] = _greeted(connection)
    return sorted(found.values(), key=lambda script: script.since_unix_s)


def _sockets() -> Iterator[tuple[int, str]]:
    for folder in folders():
        if trusted(folder):
            for name in os.listdir(folder):
                if match := _SOCKET.fullmatch(name):
                    yield int(match[1]), os.path.join(folder, name)


def _connect(path: str) -> socket.socket | None:
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_S)
        connection.connect(path)
        if peer(connection)[1] == os.getuid():
            return connection
    except ConnectionRefusedError:  # it was killed
        with suppress(OSError):
            os.unlink(path)
    except OSError:
        pass
    connection.close()
    return None


def _greeted(connection: socket.socket) -> Greeting:
    connection.settimeout(ANSWER_S)
    payload = read_payload(SocketStream(connection), GREETING_LIMIT)
    if payload is None:
        raise LinkError("the script ended")
    return msgspec.msgpack.decode(payload, type=Greeting)


class AttachedEngine:
    """The process of a running script, as an `EngineLike` of the session that looks at it. One thread, `attached`."""

    def __init__(
        self,
        pid: int,
        put: EventSink,
        virtual_spec: str | None = None,
        visible_devices: str | None = None,
        *,
        clock: Clock = time.time,
    ) -> None:
        self._pid, self._put, self._clock = pid, put, clock
        self._stream: SocketStream | None = None
        self._closing = threading.Event()
        self._thread = threading.Thread(target=self._run, name="attached", daemon=True)

    def start(self) -> None:
        """Connect; returns at once."""
        self._thread.start()

    def send(self, command: Command) -> None:
        """Ask for it; scripts refuse."""
        if self._stream is not None:
            with suppress(OSError):
                self._stream.socket.sendall(frame(command))

    def kill(self) -> None:
        """Look no more: the script goes on."""
        self.close()

    def close(self) -> None:
        """The same."""
        self._closing.set()
        if self._stream is not None:
            self._stream.hang_up()

    def join(self, deadline_s: float) -> bool:
        """Whether the thread has ended by then."""
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def beat(self) -> None:
        """A script is given no other priority."""

    def _run(self) -> None:
        reason = f"The script (process {self._pid}) has ended."
        try:
            connection = next(filter(None, map(_connect, (path for pid, path in _sockets() if pid == self._pid))), None)
            if connection is not None:
                self._read(connection)
        except (LinkError, OSError, msgspec.MsgspecError) as error:
            reason = f"The link to the script broke: {error}."
        if not self._closing.is_set():
            now = self._clock()
            self._put(EngineLost(reason=reason, will_restart=False, time_unix_s=now, cannot_start=True))

    def _read(self, connection: socket.socket) -> None:
        greeting = _greeted(connection)
        if greeting.protocol != PROTOCOL:
            raise LinkError(f"it runs under DevExplorer {greeting.devexplorer}, which speaks another protocol")
        connection.settimeout(None)
        self._stream = stream = SocketStream(connection)
        connection.sendall(b"\0")
        joiner = Joiner()
        while (payload := read_payload(stream, EVENT_LIMIT)) is not None:
            try:
                event = joiner.take(decode_event(payload))
            except LinkError as error:
                self._put(Log(level="error", text=str(error), time_unix_s=self._clock()))
                continue
            if event is not None and not isinstance(event, EngineLost):
                self._put(event)
        stream.close()


class ScriptRoute:
    """The way to the host of a script that runs here; the host is started where there is none. `open` as often as it
    takes; nothing is asked on the way."""

    host = ""
    failure: ConnectionFailure | None = None

    def __init__(self, pid: int) -> None:
        self.pid = pid

    def reports(self) -> Sequence[Report]:
        """None."""
        return ()

    def answer(self, number: int, text: str | None) -> None:
        """Nothing is asked."""

    def cancel(self) -> None:
        """An `open` that waits ends by the limit of a host's start."""

    def open(self, *, unasked: bool) -> SocketStream:
        """A channel to the host. Raises `CannotReach`."""
        command = partial(module_command, "devexplorer.core.observe.host", str(self.pid))
        try:
            return SocketStream(reach({**os.environ, VARIANT: f"script {self.pid}"}, command))
        except HostError as error:
            raise CannotReach(str(error), final=True) from error
