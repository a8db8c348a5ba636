"""The hosts of this user: which run, and how one is ended. Any thread; no torch, no Qt.

Whoever answers on a socket is a host that runs: the system says which process that is. A description whose socket
nobody answers was left by a host that was killed, and is removed.
"""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress

import msgspec

from devexplorer.core.base import Clock
from devexplorer.core.machines.host.socket_folder import Place, connect, folders, locked, peer, trusted

END_S = 15.0
"""A host that was asked to end has done so by then, or hangs."""
LOOK_S = 0.05


class Description(msgspec.Struct, frozen=True, kw_only=True):
    """What a host says about itself in the file beside its socket."""

    pid: int
    since_unix_s: float
    python: str
    """What its engine runs in."""
    protocol: int
    devexplorer: str = ""
    clients: int = 0
    """Windows that are connected."""
    busy: tuple[str, ...] = ()
    """What keeps it from ending when nobody is connected."""


class Running(msgspec.Struct, frozen=True, kw_only=True):
    """One host that runs."""

    pid: int
    socket: str
    log: str
    description: Description | None
    """None: it cannot be read."""


def running(environ: Mapping[str, str] = os.environ) -> list[Running]:
    """The hosts of this user, the oldest first."""
    found = {}
    for place in _all_places(environ):
        pid = _pid(place)
        if pid is None:
            _sweep(place)
            continue
        about = _description(place)
        pid = pid or (0 if about is None else about.pid)
        found[pid] = Running(pid=pid, socket=place.socket, log=place.log, description=about)
    return sorted(found.values(), key=lambda host: 0.0 if host.description is None else host.description.since_unix_s)


def stop(host: Running, *, clock: Clock = time.monotonic, sleep: Callable[[float], None] = time.sleep) -> bool:
    """Ask a host to end; whether it did in time."""
    folder, name = os.path.split(host.socket)
    place = Place(folder, name.removesuffix(".sock"))
    if _pid(place) not in (host.pid, 0):  # it ended meanwhile: the number may be another process's
        return True
    with suppress(ProcessLookupError):
        os.kill(host.pid, signal.SIGTERM)
    until = clock() + END_S
    while _is_locked(place) or _pid(place) is not None:
        if clock() >= until:
            return False
        sleep(LOOK_S)
    return True


def _all_places(environ: Mapping[str, str]) -> Iterator[Place]:
    for folder in folders(environ):
        if trusted(folder):
            names = sorted(name.removesuffix(".sock") for name in os.listdir(folder) if name.endswith(".sock"))
            yield from (Place(folder, name) for name in names)


def _pid(place: Place) -> int | None:
    """Process of the host that answers there, 0 where the system does not tell; None: nobody does."""
    connection = connect(place)
    if connection is None:
        return None
    with connection:
        return peer(connection)[0] or 0


def _description(place: Place) -> Description | None:
    try:
        with open(place.description, "rb") as file:
            return msgspec.json.decode(file.read(1 << 16), type=Description)
    except (OSError, msgspec.MsgspecError):
        return None


def _is_locked(place: Place) -> bool:
    if os.path.exists(place.lock):
        with suppress(OSError):
            file = locked(place.lock)
            if file is None:
                return True
            os.close(file)
    return False


def _sweep(place: Place) -> None:
    """Remove what a host left that did not end well; the log stays."""
    if not _is_locked(place):
        for path in (place.socket, place.description):
            with suppress(OSError):
                os.unlink(path)
