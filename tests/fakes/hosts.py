"""A host in this process for tests: its session has a played engine and no sampler, its windows are plain ends of the
link, and nothing happens but what the test drives."""

from __future__ import annotations

import os
import secrets
import select
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.engine.link import frame
from devexplorer.core.feature import decoder
from devexplorer.core.machines.host.server import Server
from devexplorer.core.machines.host.wire import SocketStream, Wire, read_hello, send_hello
from devexplorer.core.machines.records import Control, Happened, Hello, HostQuestion, Question, Reply, ToWindow
from devexplorer.core.records import Command, EngineLost, EngineReady, Event
from devexplorer.core.session.session import Session

if TYPE_CHECKING:
    from devexplorer.core.history.store_thread import StoreThread

PATIENCE_S = 20.0
READY = EngineReady(
    pid=1, python_version="3", torch_version="2", cuda_version=None, cuda_available=False, cuda_device_count=0,
    cuda_visible_devices=None, threads=2, virtual_unavailable=None, recipes={},
)  # fmt: skip
_DECODER = decoder(ToWindow)


def decode(payload: bytes) -> Any:
    try:
        return _DECODER.decode(payload)
    except msgspec.MsgspecError as error:
        raise LinkError(str(error)) from error


class SilentEngine:
    """Records commands; the test says what happens."""

    def __init__(self, put: Callable[[Event], None]) -> None:
        self.put, self.sent = put, list[Command]()

    def start(self) -> None:
        pass

    def send(self, command: Command) -> None:
        self.sent.append(command)

    def kill(self) -> None:
        self.put(EngineLost(reason="It was killed.", will_restart=False, time_unix_s=0))

    def close(self) -> None:
        pass

    def join(self, deadline_s: float) -> bool:
        return True

    def beat(self) -> None:
        pass


class HostHere:
    """A server, its session, and a clock that the test turns."""

    def __init__(self, folder: Path) -> None:
        self.engines: list[SilentEngine] = []
        self.options: list[dict[str, object]] = []
        """What each of them was asked to run in."""
        self.now = 1000.0
        self.session = Session(make_engine=self._engine, nvml=Nvml(), clock=lambda: self.now)
        self.session.data_folder = folder
        self.server = Server(self.session, folder / "copies", clock=lambda: self.now, monotonic=lambda: self.now)

    @property
    def history(self) -> StoreThread:
        """Of its runs."""
        history: StoreThread = self.session.listener("history")
        return history

    def _engine(self, put: Callable[[Event], None], *_: object, **options: object) -> SilentEngine:
        self.options.append(options)
        self.engines.append(SilentEngine(put))
        return self.engines[-1]

    @property
    def engine(self) -> SilentEngine:
        return self.engines[-1]

    def say(self, *events: Event) -> None:
        """The engine says this, and everybody is told."""
        for event in events:
            self.engine.put(event)
        self.server.tick()

    def until(self, condition: Callable[[], object]) -> None:
        """Let the host work until this is so."""
        end = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < end, "it did not happen"
            self.server.tick()
            self.server._bell.wait(0.002)
            self.server._bell.clear()
        self.server.tick()

    def close(self) -> None:
        assert self.server.end("The test is over.")
        assert self.session.close()


class CutStream(SocketStream):
    """Breaks after so many bytes in either direction."""

    def __init__(self, connection: socket.socket) -> None:
        super().__init__(connection)
        self.reads: int | None = None
        self.writes: int | None = None

    def read(self, size: int, /) -> bytes:
        if self.reads is None:
            return super().read(size)
        data = super().read(min(size, self.reads)) if self.reads else b""
        self.reads -= len(data)
        if not data:
            self.hang_up()
        return data

    def write(self, data: bytes | memoryview, /) -> int:
        if self.writes is None:
            return super().write(data)
        if not self.writes:
            self.hang_up()
            raise BrokenPipeError(32, "cut")
        count = super().write(data[: self.writes])
        self.writes -= count
        return count


class WindowHere:
    """The window's end of the link: what it got, and what it says."""

    def __init__(self, host: HostHere, name: str = "me@desk", **hello: Any) -> None:
        self.host, self.name = host, name
        self.id = secrets.token_hex(16)
        self._hello = hello
        self.got: list[Any] = []
        self.wire: Wire | None = None
        self._asked = 0

    def connect(self, reads: int | None = None, writes: int | None = None) -> Hello:
        """Greet; what is got is that of this connection."""
        near, far = socket.socketpair()
        self.host.server.take(far)
        stream = self._stream = CutStream(near)
        send_hello(
            stream,
            Hello(**{"client": self.id, "machine": self.name, "devexplorer": "1", **self._hello}),
        )
        self.host.until(lambda: select.select([near], [], [], 0)[0])
        answer = read_hello(stream)
        if answer.problem:
            near.close()
            return answer
        self.got, self.over = [], threading.Event()
        stream.reads, stream.writes = reads, writes
        self.wire = Wire(stream, decode, self.got.append, lambda _: self.over.set(), stream.hang_up)
        self.wire.start()
        return answer

    def cut(self) -> None:
        """The connection breaks, and the host notices."""
        self.close()
        self.wire = None
        self.host.until(lambda: all(client.id != self.id for client in self.host.server.connected))

    def say(self, record: msgspec.Struct) -> None:
        assert self.wire is not None
        self.wire.put(frame(record))

    def ask(self, question: Question) -> Reply:
        """Ask, and wait for the answer."""
        self._asked += 1
        number = self._asked
        self.say(HostQuestion(id=number, question=question))
        self.host.until(lambda: any(reply.to == number for reply in self.of(Reply)))
        return next(reply for reply in self.of(Reply) if reply.to == number)

    def of(self, kind: type[Any]) -> list[Any]:
        """What it got of one kind: records, or events."""
        got = list(self.got)
        events = [record.event for record in got if isinstance(record, Happened)]
        return [record for record in [*got, *events] if isinstance(record, kind)]

    def wait_for(self, kind: type[Any], count: int = 1) -> Any:
        """Wait for so many of a kind; the last of them."""
        self.host.until(lambda: len(self.of(kind)) >= count)
        return self.of(kind)[-1]

    @property
    def control(self) -> Control:
        return self.of(Control)[-1]

    def close(self) -> None:
        if self.wire is not None:
            self.wire.close()
            assert self.wire.join(5)


@contextmanager
def short_folder() -> Iterator[Path]:
    """A folder whose path leaves room for the name of a socket."""
    with tempfile.TemporaryDirectory(prefix="dx", dir="/tmp") as folder:
        os.chmod(folder, 0o700)
        yield Path(folder)
