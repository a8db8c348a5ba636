"""The session of one node of a cluster with a host in front of it, in this process: on the thread `node-host`, which
ends with its actor. The engine is a process of its own, which ends when this one does."""

from __future__ import annotations

import os
import socket
import threading

from devexplorer.core.base import without_cards
from devexplorer.core.machines.host.server import Server
from devexplorer.core.session.session import Session

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
