"""A connected socket as the channel to a host of this machine, in place of ssh. Used by the thread of a link."""

from __future__ import annotations

import socket


class SocketChannel:
    """See `core.machines.link.Channel`."""

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
