"""What DevExplorer has on each node of a cluster: an actor that reserves nothing, with the node's host in it. Its calls
come on threads of Ray's."""

from __future__ import annotations

import itertools
import os
import platform
import socket
import threading
from collections.abc import Iterator
from contextlib import suppress

import devexplorer
from devexplorer.core.base import without_cards
from devexplorer.core.machines.host.server import Server
from devexplorer.core.session.session import Session

CHUNK = 1 << 16
CALLS = 16
"""That are carried out at once: a stream for each connection, and what is said."""


class Agent:
    """One for each node."""

    def __init__(self, virtual_spec: str | None) -> None:
        self._host = NodeHost(virtual_spec)
        self._sockets: dict[int, socket.socket] = {}
        self._numbers = itertools.count(1)

    def hello(self) -> tuple[str, str]:
        """Host name, and our version there."""
        return platform.node(), devexplorer.__version__

    def open(self) -> int:
        """A connection to the host; returns its number."""
        number = next(self._numbers)
        self._sockets[number] = self._host.connect()
        return number

    def read(self, number: int) -> Iterator[bytes]:
        """What the host says on a connection, until it ends."""
        with suppress(OSError):
            while data := self._sockets[number].recv(CHUNK):
                yield data

    def write(self, number: int, data: bytes) -> None:
        """Say something to the host; a connection that has ended is told by `read`."""
        with suppress(OSError, KeyError):
            self._sockets[number].sendall(data)

    def hang_up(self, number: int) -> None:
        """End a connection."""
        connection = self._sockets.pop(number, None)
        if connection is not None:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)
            connection.close()

    def close(self) -> bool:
        """End everything on this node."""
        for number in list(self._sockets):
            self.hang_up(number)
        return self._host.close()


# The session of one node of a cluster with a host in front of it, in this process: on the thread `node-host`, which
# ends with its actor. The engine is a process of its own, which ends when this one does.

CLOSE_S = 5.0


class NodeHost:
    """`connect` as often as it takes, `close` at the end."""

    def __init__(self, virtual_spec: str | None = None) -> None:
        """Raises `BadInput` for a wrong specification."""
        if virtual_spec is not None:  # an engine cannot have both
            os.environ.update(without_cards(os.environ))
        self._session = Session(virtual_spec=virtual_spec)
        self._server = Server(self._session)
        self._ends = threading.Event()
        self._thread = threading.Thread(target=self._run, name="node-host", daemon=True)
        self._thread.start()

    def connect(self) -> socket.socket:
        """A new connection to the host: the next thing either side says is its `Hello`. Any thread."""
        near, far = socket.socketpair()
        self._server.take(far)
        return near

    def close(self) -> bool:
        """End session, engine and host; False when something still runs after `CLOSE_S`."""
        self._ends.set()
        self._thread.join(CLOSE_S + 1.0)
        return not self._thread.is_alive()

    def _run(self) -> None:
        self._session.start()
        while not self._ends.is_set():
            self._server.tick()
            self._server.wait()
        self._server.end("The cluster was left.")
        self._session.close(CLOSE_S)
