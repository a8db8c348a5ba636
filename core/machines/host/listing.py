"""The hosts of this user: which run, and how one is ended. Any thread; no torch, no Qt.

Whoever answers on a socket is a host that runs: the system says which process that is, and its greeting what it does.
"""

from __future__ import annotations

import os
import signal
import socket
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress

import msgspec

from devexplorer.core.base import LinkError
from devexplorer.core.machines.greeting import SCRIPT_SOCKET
from devexplorer.core.machines.host.finding import HostPlace, connect, folders, locked, peer, trusted
from devexplorer.core.machines.host.wire import SocketStream, read_hello, send_hello
from devexplorer.core.machines.records import Hello

END_S = 15.0
"""A host that was asked to end has done so by then, or hangs."""
LOOK_S = 0.05
ANSWER_S = 2.0
"""For a greeting; a host that hangs gives none."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """One host that runs."""

    pid: int
    socket: str
    log: str
    hello: Hello | None
    """None: it does not answer."""


def running(environ: Mapping[str, str] = os.environ) -> list[Running]:
    """The hosts of this user, the oldest first."""
    found = {}
    for place in _all_places(environ):
        connection = connect(place)
        if connection is None:
            _sweep(place)
            continue
        with connection:
            pid, hello = peer(connection)[0], _greeting(connection)
        pid = pid or (0 if hello is None else hello.pid)
        found[pid] = Running(pid=pid, socket=place.socket, log=place.log, hello=hello)
    return sorted(found.values(), key=lambda host: 0.0 if host.hello is None else host.hello.since_unix_s)


def stop(host: Running) -> bool:
    """Ask a host to end; whether it did in time."""
    folder, name = os.path.split(host.socket)
    place = HostPlace(folder, name.removesuffix(".sock"))
    if _pid(place) not in (host.pid, 0):  # it ended meanwhile: the number may be another process's
        return True
    with suppress(ProcessLookupError):
        os.kill(host.pid, signal.SIGTERM)
    until = time.monotonic() + END_S
    while _is_locked(place) or _pid(place) is not None:
        if time.monotonic() >= until:
            return False
        time.sleep(LOOK_S)
    return True


def _all_places(environ: Mapping[str, str]) -> Iterator[HostPlace]:
    for folder in folders(environ):
        if trusted(folder):
            for name in sorted(os.listdir(folder)):
                if name.endswith(".sock") and not SCRIPT_SOCKET.fullmatch(name):
                    yield HostPlace(folder, name.removesuffix(".sock"))


def _pid(place: HostPlace) -> int | None:
    """Process of the host that answers there, 0 where the system does not tell; None: nobody does."""
    connection = connect(place)
    if connection is None:
        return None
    with connection:
        return peer(connection)[0] or 0


def _greeting(connection: socket.socket) -> Hello | None:
    """What it says to somebody who is no window."""
    stream = SocketStream(connection)
    try:
        connection.settimeout(ANSWER_S)
        send_hello(stream, Hello())
        return read_hello(stream)
    except (LinkError, OSError):
        return None


def _is_locked(place: HostPlace) -> bool:
    if os.path.exists(place.lock):
        with suppress(OSError):
            file = locked(place.lock)
            if file is None:
                return True
            os.close(file)
    return False


def _sweep(place: HostPlace) -> None:
    """Remove what a host left that did not end well; the log stays."""
    if not _is_locked(place):
        with suppress(OSError):
            os.unlink(place.socket)
