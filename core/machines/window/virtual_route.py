"""The way to the virtual GPUs beside this machine's cards: a host of this user and machine, from which the cards are
hidden. Used by the thread of a link. torch cannot have both in one process (`core.virtual.backend`).
"""

from __future__ import annotations

import os
import socket
from collections.abc import Sequence
from contextlib import suppress

from devexplorer.core.base import without_cards
from devexplorer.core.machines.host.socket_folder import SIMULATED, HostError
from devexplorer.core.machines.host.starting import reach, serve_command
from devexplorer.core.machines.ssh.records import Failure, Report
from devexplorer.core.machines.window.link import CannotReach


class VirtualRoute:
    """`open` as often as it takes; nothing is asked on the way."""

    host = ""
    failure: Failure | None = None

    def reports(self) -> Sequence[Report]:
        """None."""
        return ()

    def answer(self, number: int, text: str | None) -> None:
        """Nothing is asked."""

    def cancel(self) -> None:
        """An `open` that waits ends by the limit of a host's start."""

    def open(self, *, unasked: bool) -> SocketChannel:
        """A channel to the host, which is started where there is none. Raises `CannotReach`."""
        try:
            return SocketChannel(reach({**without_cards(os.environ), SIMULATED: "1"}, serve_command))
        except HostError as error:
            raise CannotReach(str(error), final=True) from error


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
        with suppress(OSError):  # the other side was quicker
            self._socket.shutdown(socket.SHUT_RDWR)
        self._socket.close()
