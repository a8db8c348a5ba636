"""Where the hosts of this user are: a folder 0700 of their own, with socket, lock and log of each. Any
thread; the standard library alone, because the proxy begins with it.

A host is looked for in every folder that can be: the system removes the runtime folder at the last logout, and the host
goes on listening in the next one.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import socket
import stat
import struct
import sys
from collections.abc import Mapping
from contextlib import suppress
from typing import NamedTuple

LONGEST_PATH = 103
"""Bytes in the path of a Unix socket: macOS has room for 104 with the zero at its end, Linux for 108."""
CONNECT_S = 5.0


class HostError(Exception):
    """No host can be reached or started; one line for a person."""


class HostPlace(NamedTuple):
    """Where one host is: its folder, and the name of its files there."""

    folder: str
    name: str

    @property
    def socket(self) -> str:
        """What it listens on."""
        return self._path(".sock")

    @property
    def lock(self) -> str:
        """Locked as long as it lives."""
        return self._path(".lock")

    @property
    def log(self) -> str:
        """What it and its engine print."""
        return self._path(".log")

    def _path(self, suffix: str) -> str:
        return os.path.join(self.folder, self.name + suffix)


def folders(environ: Mapping[str, str] = os.environ) -> list[str]:
    """Every folder that could hold hosts of this user, the best first."""
    found = []
    if os.path.isabs(runtime := environ.get("XDG_RUNTIME_DIR", "")):
        found.append(os.path.join(runtime, "devexplorer"))
    for temporary in (environ.get("TMPDIR", ""), "/tmp"):
        if os.path.isabs(temporary):
            found.append(os.path.join(temporary, f"devexplorer-{os.getuid()}"))
    if os.path.isabs(home := environ.get("HOME", "")):  # where somebody else has taken our name in /tmp
        found.append(os.path.join(home, ".devexplorer-hosts"))
    return list(dict.fromkeys(found))


SIMULATED = "DEVEXPLORER_SIMULATED"
"""Variable of the host that has virtual GPUs beside this machine's cards, which are hidden from it."""


def own_name(environ: Mapping[str, str] = os.environ) -> str:
    """The name of the host of this Python environment, this machine (a folder can be on a network) and this history;
    another one for the virtual GPUs beside its cards."""
    python = "{}.{}".format(*sys.version_info)
    parts = [platform.node(), os.path.realpath(sys.prefix), python, environ.get("XDG_DATA_HOME", "")]
    if SIMULATED in environ:
        parts.append(SIMULATED)
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:12]


def places(environ: Mapping[str, str] = os.environ) -> list[HostPlace]:
    """Where the host of this environment could be."""
    return [HostPlace(folder, own_name(environ)) for folder in folders(environ)]


def problem(folder: str) -> str | None:
    """Why a folder cannot be trusted, in one clause; None: it is this user's alone. One that is missing raises
    `FileNotFoundError`."""
    try:
        about = os.lstat(folder)
    except FileNotFoundError:
        raise
    except OSError as error:
        return f"{folder} cannot be read ({_reason(error)})"
    if stat.S_ISLNK(about.st_mode):
        return f"{folder} is a link, which someone else could redirect"
    if not stat.S_ISDIR(about.st_mode):
        return f"{folder} is no folder"
    if about.st_uid != os.getuid():
        return f"{folder} belongs to another user"
    if about.st_mode & 0o077:
        return f"{folder} is open to others (mode {stat.S_IMODE(about.st_mode):04o}; 0700 is right)"
    return None


def make(environ: Mapping[str, str] = os.environ) -> HostPlace:
    """The first place that can be used, its folder made. Raises `HostError` with what is wrong with each."""
    wrong = []
    for place in places(environ):
        if len(os.fsencode(place.socket)) > LONGEST_PATH:
            wrong.append(f"{place.folder} is too long for the path of a socket")
            continue
        try:
            with suppress(FileExistsError):
                os.mkdir(place.folder, 0o700)
            reason = problem(place.folder)
            if reason is None and not os.access(place.folder, os.W_OK):
                reason = f"{place.folder} cannot be written"
        except OSError as error:
            reason = f"{place.folder} cannot be made ({_reason(error)})"
        if reason is None:
            return place
        wrong.append(reason)
    raise HostError(f"there is no folder for the socket of the host: {'; '.join(wrong)}")


def trusted(folder: str) -> bool:
    """Whether a folder is there, and this user's alone."""
    try:
        return problem(folder) is None
    except FileNotFoundError:
        return False


def connect(place: HostPlace) -> socket.socket | None:
    """A connection to the host there; None where nobody listens who is this user."""
    if not trusted(place.folder) or len(os.fsencode(place.socket)) > LONGEST_PATH:
        return None
    connection = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        connection.settimeout(CONNECT_S)  # one that hangs takes no connections, and many may wait already
        connection.connect(place.socket)
        connection.settimeout(None)
        if peer(connection)[1] == os.getuid():
            return connection
    except OSError:  # nobody listens, or not any more
        pass
    connection.close()
    return None


def locked(path: str) -> int | None:
    """A descriptor that holds this lock, until it is closed or this process ends; None: another has it. On a file
    system without locks nobody does: a look at who answers has to do. Raises `OSError`."""
    file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(file)
        return None
    except OSError:
        pass
    return file


def peer(connection: socket.socket) -> tuple[int | None, int]:
    """Process id (None: the system does not tell) and user of who listens, or connected, at the other end. The folder
    already keeps others out; this also finds the process where a file could name one that ended long ago."""
    option = getattr(socket, "SO_PEERCRED", None)
    if option is None:
        return None, os.getuid()
    pid, user, _ = struct.unpack("3i", connection.getsockopt(socket.SOL_SOCKET, option, struct.calcsize("3i")))
    return pid, user


def _reason(error: OSError) -> str:
    return (error.strerror or str(error)).lower()
