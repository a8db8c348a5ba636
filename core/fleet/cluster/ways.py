"""How the process that is attached to a cluster is started: here, or on a node behind ssh. On the thread that reads
what it says; `close` comes from any other."""

from __future__ import annotations

import os
import secrets
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from typing import IO, NamedTuple, Protocol

from devexplorer.core.base import Cancelled, Unavailable, module_command
from devexplorer.core.fleet.hosts.host_members import silently
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.failures import ConnectionFailed
from devexplorer.core.machines.ssh.putting import choose, prepare

MODULE = "devexplorer.core.fleet.cluster"
QUIET = {"RAY_DEDUP_LOGS": "0", "RAY_USAGE_STATS_ENABLED": "0"}


class Streams(NamedTuple):
    """Of the process."""

    output: IO[bytes]
    """What it says."""
    into: IO[bytes]
    """What it is told; it leaves the cluster when that ends."""


class ClusterWay(Protocol):
    """`open` once, `close` at the end."""

    def open(self, arguments: Sequence[str]) -> Streams:
        """Start it; waits. Raises `Unavailable` in one line."""
        ...

    def close(self) -> None:
        """End what is left of it."""
        ...


class Here:
    """A process of this machine."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None

    def open(self, arguments: Sequence[str]) -> Streams:
        """Start it."""
        try:
            process = self._process = subprocess.Popen(
                module_command(MODULE, *arguments), stdin=subprocess.PIPE, stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL, env=os.environ | QUIET,
                start_new_session=True,  # Ctrl-C is for who started it
            )  # fmt: skip
        except OSError as error:
            raise Unavailable(f"no process could be started for the cluster: {error.strerror}") from None
        assert process.stdin is not None
        assert process.stdout is not None
        return Streams(process.stdout, process.stdin)

    def close(self) -> None:
        """Kill it where it still runs; Ray removes what it had."""
        process = self._process
        if process is not None:
            process.kill()
            process.wait()
            for stream in (process.stdin, process.stdout):
                if stream is not None:
                    with suppress(OSError):
                        stream.close()


class OverSsh:
    """A process of a node behind the user's own ssh: a driver needs a node of the cluster beside it."""

    def __init__(self, host: str, python: str = "") -> None:
        """`python`: the interpreter there; empty: the one that is most likely meant. A login that asks something is
        given up, because the connection of the window has asked already."""
        self._host, self._python = host, python
        self._connection: Connection | None = None

    def open(self, arguments: Sequence[str]) -> Streams:
        """Log in, make the Python there ready, start it."""
        connection = self._connection = silently(self._host, lambda report: None)
        marker = secrets.token_hex(16)
        try:
            connection.open()
            command = prepare(connection, self._python or choose(connection))
            return Streams(*connection.launch([*command, MODULE, *arguments, "--marker", marker], marker, QUIET))
        except ConnectionFailed as error:
            connection.close()
            raise Unavailable(str(error)) from None
        except Cancelled:
            raise Unavailable("it was given up") from None

    def close(self) -> None:
        """End the connection; what runs there sees that its orders have ended, and leaves the cluster."""
        if self._connection is not None:
            self._connection.close()
