"""The observed scripts of this user that run on this machine: how they are found, and the engine that a host has of
one. Any thread; no torch, no Qt."""

from __future__ import annotations

import os
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import msgspec
import psutil

from devexplorer.core.base import BadInput, Clock, LinkError, module_command
from devexplorer.core.engine.link import EVENT_LIMIT, Joiner, decode_event, frame, read_payload
from devexplorer.core.machines.greeting import PROTOCOL, SCRIPT_SOCKET, Greeting
from devexplorer.core.machines.host.finding import CONNECT_S, VARIANT, HostError, folders, peer, reach, trusted
from devexplorer.core.machines.host.wire import SocketStream
from devexplorer.core.machines.records import Goodbye
from devexplorer.core.machines.window.link import LocalRoute
from devexplorer.core.observe.records import BY_SIGNAL, ScriptHeld
from devexplorer.core.observe.settings import AWAITED
from devexplorer.core.records import Command, EngineLost, EventSink, Log

if TYPE_CHECKING:
    from devexplorer.core.machines.window.routes import SshRoute

GREETING_LIMIT = 1 << 16
ANSWER_S = 1.0
LATE_ANSWERS = 10
"""So often a script that listens is asked again."""
WAIT_S = 0.1
LOOK_S = 1.0
ENDING_S = 0.3
"""A process that ends closes one of its sockets after the other."""


def script_of(pid: int) -> Greeting | None:
    """The script of that process, or the first rank of the job that it started; None: none listens."""
    found = [script for script in running() if script.pid == pid or (script.job and _was_started_by(script, pid))]
    return min(found, key=lambda script: script.rank or 0, default=None)


def _was_started_by(script: Greeting, pid: int) -> bool:
    with suppress(psutil.Error):  # it has ended meanwhile
        return any(parent.pid == pid for parent in psutil.Process(script.pid).parents())
    return False


def checked_script(pid: str, sleep: Callable[[float], None] = time.sleep) -> Greeting:
    """The script of the process with this number, once it listens where it is awaited. Raises `BadInput`."""
    number = int(pid) if pid.isascii() and pid.isdecimal() else 0
    if not number:
        raise BadInput(f"--script takes the number of a process, not {pid!r}")
    late = LATE_ANSWERS
    while (script := script_of(number)) is None:
        connection = _listening(number) if late else None
        if connection is not None:  # it listens, and on a busy machine its answer takes longer
            connection.close()
            late -= 1
        elif os.environ.get(AWAITED) != pid or not psutil.pid_exists(number):
            raise BadInput(
                f"process {number} is no script of yours that is observed; 'devexplorer attach {number}' begins that"
            )
        sleep(WAIT_S)
    return script


def name_of(model: Any) -> str:
    """What an object is called that has no name: its class, as Python writes names of objects.

    >>> class GPTModel: pass
    >>> name_of(GPTModel())
    'gptmodel'
    """
    return type(model).__name__.lower()


def short_name(script: Greeting) -> str:
    """As lists and titles have it: `train.py`, of a rank `train.py, rank 2`.

    >>> short_name(Greeting(pid=1, name="jobs/train.py", folder="/", since_unix_s=0.0, torch="2", rank=2))
    'train.py, rank 2'
    """
    name = script.name if script.name.startswith("-m ") else os.path.basename(script.name)
    return name if script.rank is None else f"{name}, rank {script.rank}"


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
                if match := SCRIPT_SOCKET.fullmatch(name):
                    yield int(match[1]), os.path.join(folder, name)


def _listening(pid: int) -> socket.socket | None:
    """A connection to the script of that process; None: there is none that listens."""
    return next(filter(None, (_connect(path) for script, path in _sockets() if script == pid)), None)


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
        self.goodbye: Goodbye | None = None
        """Why nothing more comes; None: more does. It is no `EngineLost`: what was seen last stays."""
        self._name = f"The script (process {pid})"
        self._stream: SocketStream | None = None
        self._closing = threading.Event()
        self._stopped, self._look_due_s = False, 0.0
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
        """See, once a second, whether the process is stopped: it does not say so itself."""
        now = time.monotonic()
        if self._stream is None or self.goodbye is not None or now < self._look_due_s:
            return
        self._look_due_s = now + LOOK_S
        stopped = False
        with suppress(psutil.Error):  # it has ended meanwhile
            stopped = psutil.Process(self._pid).status() in (psutil.STATUS_STOPPED, psutil.STATUS_TRACING_STOP)
        if stopped != self._stopped:
            self._stopped = stopped
            self._put(ScriptHeld(how=BY_SIGNAL if stopped else ""))

    def _run(self) -> None:
        problem, leaves_socket = "", False
        try:
            connection = _listening(self._pid)
            if connection is not None:
                with connection:
                    self._read(connection)
                # a script that ends removes it before it hangs up
                leaves_socket = any(pid == self._pid for pid, _ in _sockets())
        except TimeoutError:
            problem = "does not answer; it may be stopped in a debugger"
        except (LinkError, OSError, msgspec.MsgspecError) as error:
            problem = f"cannot be read: {error}"
        if self._closing.is_set():
            return
        self._put(ScriptHeld(how=""))
        time.sleep(ENDING_S)
        if not problem and all(script.pid != self._pid for script in running()):
            how = "ended abruptly: it was killed, or crashed" if leaves_socket else "has ended"
            self.goodbye = Goodbye(reason=f"{self._name} {how}.", for_good=True)
        else:
            self.goodbye = Goodbye(reason=f"{self._name} {problem or 'goes on; another DevExplorer shows it now'}.")

    def _read(self, connection: socket.socket) -> None:
        greeting = _greeted(connection)
        self._name = short_name(greeting)
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


HOST = "devexplorer.core.observe.host"


def _words(pid: int, *, ranks: bool) -> tuple[str, ...]:
    """The arguments of its host. `ranks`: of the one of all ranks of its job."""
    return (str(pid), "ranks") if ranks else (str(pid),)


def reach_script(pid: str, *ranks: str) -> socket.socket:
    """A connection to the host with these arguments, of a script that runs here; the host is started where there is
    none. Raises `HostError`."""
    script = _listening(int(pid))
    if script is None:
        raise HostError(f"process {pid} has ended")
    script.close()
    variant = " ".join(("script", pid, *ranks))
    return reach({**os.environ, VARIANT: variant}, partial(module_command, HOST, pid, *ranks))


def route_there(pid: int, host: str, python: str, *, ranks: bool = False) -> SshRoute:
    """As `ScriptRoute`, to a script that runs on a machine of ssh's, in this Python there. It has an ssh of its own,
    and breaks like that of any machine."""
    from devexplorer.core.machines.window.routes import SshRoute  # with the first of them

    return SshRoute(host, python, program=(HOST, "proxy", *_words(pid, ranks=ranks)))


class ScriptRoute(LocalRoute):
    """The way to the host of a script that runs here."""

    def __init__(self, pid: int, *, ranks: bool = False) -> None:
        """`ranks`: to the host of all ranks of its job."""
        self.pid = pid
        self._words = _words(pid, ranks=ranks)
        super().__init__(partial(reach_script, *self._words))
