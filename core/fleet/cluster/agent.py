"""What DevExplorer has on each node of a cluster: an actor that reserves nothing, with the node's host in it. Its calls
come on threads of Ray's."""

from __future__ import annotations

import hashlib
import itertools
import platform
import socket
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

import devexplorer
from devexplorer.core.fleet.cluster.node_host import NodeHost

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

    def read_file(self, path: str) -> np.ndarray[Any, np.dtype[np.uint8]]:
        """A file of this node, for the object store."""
        return np.fromfile(path, dtype=np.uint8)

    def write_file(self, path: str, data: np.ndarray[Any, np.dtype[np.uint8]]) -> str:
        """Write what another node has read; returns its SHA-256."""
        data.tofile(Path(path))
        return self.digest(path)

    def digest(self, path: str) -> str:
        """The SHA-256 of a file of this node."""
        with open(path, "rb") as file:
            return hashlib.file_digest(file, "sha256").hexdigest()

    def close(self) -> bool:
        """End everything on this node."""
        for number in list(self._sockets):
            self.hang_up(number)
        return self._host.close()
