"""A host of this machine, reached through its socket. Used by the thread of a link."""

from __future__ import annotations

import socket
from pathlib import Path

CONNECT_S = 5.0


class SocketRoute:
    """Leads to whoever listens on a Unix socket."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def open(self, *, unasked: bool) -> SocketChannel:
        """A new connection. Raises `OSError`."""
        connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        try:
            connection.settimeout(CONNECT_S)
            connection.connect(str(self._path))
            connection.settimeout(None)
        except OSError:
            connection.close()
            raise
        return SocketChannel(connection)

    def cancel(self) -> None:
        """Nothing waits long."""


class SocketChannel:
    """A connected socket."""

    def __init__(self, connection: socket.socket) -> None:
        self._socket = connection

    def read(self, size: int, /) -> bytes:
        """What there is."""
        return self._socket.recv(size)

    def write(self, data: bytes | memoryview, /) -> int:
        """As much of it as goes now."""
        return self._socket.send(data)

    def close(self) -> None:
        """Any thread: reads and writes end."""
        try:
            self._socket.shutdown(socket.SHUT_RDWR)
        except OSError:  # the other side was quicker
            pass
        self._socket.close()
