"""Where a window looks into a running script: a Unix socket of this user's alone. The thread `observe-accept` waits
there; what those who look are told is in `looker`, which is imported with the first of them."""

from __future__ import annotations

import os
import socket
import threading
from contextlib import suppress
from typing import TYPE_CHECKING

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.machines.greeting import Greeting, socket_of
from devexplorer.core.machines.host.finding import make, peer
from devexplorer.core.observe.records import RunReport, ScriptEnded

if TYPE_CHECKING:
    from devexplorer.core.observe.looker import Looker
    from devexplorer.core.observe.observer import Observation

MOST_LOOKERS = 4
"""Each takes a little of the script's time."""


class Endpoint:
    """`open` it, `close` it. Whatever fails here, the script does not notice."""

    def __init__(self, greeting: Greeting, observation: Observation) -> None:
        self._greeting, self._observation = greeting, observation
        self._socket: socket.socket | None = None
        self._path = ""
        self._lookers: list[Looker] = []

    def open(self) -> None:
        """Listen. Raises `HostError` or `OSError` where no folder can have the socket."""
        self._path = socket_of(make().folder, os.getpid())
        with suppress(FileNotFoundError):
            os.unlink(self._path)
        self._socket = listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        listening.bind(self._path)
        os.chmod(self._path, 0o600)
        listening.listen()
        os.register_at_fork(after_in_child=self._let_go)
        threading.Thread(target=self._accept, args=(listening,), name="observe-accept", daemon=True).start()

    def stop(self) -> None:
        """Listen no more, and look no more; who looked waits for the end."""
        if self._socket is not None:
            with suppress(OSError):
                os.unlink(self._path)
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
            self._let_go()
        for looker in self._lookers:
            looker.stop()

    def close(self, report: RunReport | None = None) -> None:
        """Tell those who looked how it ended, and let them go."""
        self.stop()
        for looker in self._lookers:
            if report is not None and not looker.over:
                short = msgspec.structs.replace(report, parameters=())
                looker.say_last(ScriptEnded(report=msgspec.json.encode(short)))
            looker.end()

    def _let_go(self) -> None:
        """A child that was forked has the descriptor as well, and no thread that answers."""
        if self._socket is not None:
            self._socket.close()
            self._socket = None

    def _accept(self, listening: socket.socket) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed
                return
            if peer(connection)[1] != os.getuid():
                connection.close()
                continue
            try:
                self._greet(connection)
            except (OSError, LinkError):
                connection.close()

    def _greet(self, connection: socket.socket) -> None:
        """Say who is here; whoever answers wants to look. A few at a time: of more, the later ones."""
        from devexplorer.core.engine.link import frame  # here and below: only where somebody looks

        connection.settimeout(1.0)
        connection.sendall(frame(self._greeting))
        if not connection.recv(1):
            connection.close()
            return
        connection.settimeout(None)
        from devexplorer.core.observe.looker import Looker

        self._lookers = [looker for looker in self._lookers if not looker.over]
        while len(self._lookers) >= MOST_LOOKERS:
            self._lookers.pop(0).end()
        looker = Looker(connection, self._observation)
        self._lookers.append(looker)
        looker.start()
