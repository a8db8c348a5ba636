"""Where the hosts of this user are (a folder of their own, with socket, lock and log of each), how one is found or
started, and the proxy that ssh runs: standard input and output to its socket. The standard library alone, so that it is
there at once; any thread.

A host is looked for in every folder that can be: the system removes the runtime folder at the last logout, and the host
goes on listening in the next one.

A lock lets one of several proxies start it while the others wait: the host of all of them is the same.

The main thread waits; two threads pump, one each way, in blocking calls: where one side takes nothing, nothing is read
from the other.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import platform
import socket
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
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


VARIANT = "DEVEXPLORER_HOST_VARIANT"
"""Variable of a host beside the usual one: of the virtual GPUs beside this machine's cards, which are hidden from it,
or of a script that runs."""


def own_name(environ: Mapping[str, str] = os.environ) -> str:
    """The name of the host of this Python environment, this machine (a folder can be on a network) and this history;
    another one for each variant."""
    python = "{}.{}".format(*sys.version_info)
    parts = [platform.node(), os.path.realpath(sys.prefix), python, environ.get("XDG_DATA_HOME", "")]
    if VARIANT in environ:
        parts.append(environ[VARIANT])
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:12]


def places(environ: Mapping[str, str] = os.environ) -> list[HostPlace]:
    """Where the host of this environment could be."""
    return [HostPlace(folder, own_name(environ)) for folder in folders(environ)]


def problem(folder: str) -> str | None:
    """Why a folder cannot be trusted, in one clause; None: it is this user's alone."""
    try:
        about = os.lstat(folder)
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
    return problem(folder) is None


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


START_S = 30.0
"""Until a host listens: Python and its modules can come from a slow network disk."""
LOOK_S = 0.02
LAST_BYTES = 4096


def reach(environ: Mapping[str, str], command: Callable[[], Sequence[str]]) -> socket.socket:
    """A connection to the host, started with `command` if need be. Raises `HostError`."""
    if (connection := find(environ)) is not None:
        return connection
    place = make(environ)
    until = time.monotonic() + START_S
    with _alone(f"{place.lock}-start", until):
        if (connection := find(environ)) is not None:  # another proxy was quicker
            return connection
        return _start(environ, place, command(), until)


def find(environ: Mapping[str, str]) -> socket.socket | None:
    """A connection to the host that runs; None: there is none."""
    return next((found for place in places(environ) if (found := connect(place)) is not None), None)


def _start(environ: Mapping[str, str], place: HostPlace, command: Sequence[str], until: float) -> socket.socket:
    home = os.path.expanduser("~")
    try:
        log = os.open(place.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        begun = os.fstat(log).st_size
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=dict(environ),
                cwd=home if os.path.isdir(home) else "/",
                start_new_session=True,  # it outlives this process, its terminal and its login
            )
        finally:
            os.close(log)
    except OSError as error:
        raise HostError(f"the host could not be started ({(error.strerror or str(error)).lower()})") from error
    while True:
        ended = process.poll() is not None
        if (connection := find(environ)) is not None:
            _let_go(process)
            return connection
        if ended or time.monotonic() >= until:
            why = "it ended at once" if ended else f"it did not listen within {START_S:.0f} s"
            said = last_line(place.log, begun)
            _let_go(process)
            raise HostError(f"the host could not be started: {said or why} (log: {place.log})")
        time.sleep(LOOK_S)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """It goes on without this process, which does not wait for it: no warning about that."""
    process.returncode = process.returncode or 0


@contextmanager
def _alone(path: str, until: float) -> Iterator[None]:
    """Hold a lock; the system lets go of it when this process ends, however it ends."""
    try:
        while (file := locked(path)) is None:
            if time.monotonic() >= until:
                raise HostError(f"another process has been starting the host for {START_S:.0f} s")
            time.sleep(LOOK_S)
    except OSError as error:
        raise HostError(f"{path} cannot be written ({(error.strerror or str(error)).lower()})") from error
    try:
        yield
    finally:
        os.close(file)


def last_line(path: str, begun: int = 0) -> str:
    """The last line that was written into a log since it had that length; empty: none."""
    try:
        with open(path, "rb") as file:
            size = file.seek(0, os.SEEK_END)
            file.seek(max(begun, size - LAST_BYTES))
            text = file.read(LAST_BYTES).decode("utf-8", errors="replace")
    except OSError:
        return ""
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return "".join(letter for letter in lines[-1][:400] if letter.isprintable()) if lines else ""


def serve_command(arguments: Sequence[str] = ()) -> list[str]:
    """What starts a host in this Python."""
    from devexplorer.core.base.module_command import module_command  # for the first connection alone

    return module_command("devexplorer.core.machines.host", "serve", *arguments)


CHUNK = 1 << 16
FAILED = 2


def proxy(marker: str, open_host: Callable[[], socket.socket], *, read: int = 0, write: int = 1) -> int:
    """Join the two descriptors to the host until either side ends; returns the exit code. `open_host`: see `reach`.

    The marker comes first, between line ends: whatever was printed before it was none of the host's."""
    try:
        connection = open_host()
    except HostError as error:
        print(f"devexplorer: {' '.join(str(error).split())}", file=sys.stderr, flush=True)
        return FAILED
    with connection:
        pump(connection, read, write, f"\n{marker}\n".encode())
    return 0


def pump(connection: socket.socket, read: int, write: int, first: bytes = b"") -> None:
    """Carry bytes both ways until either side ends; what had been read by then is delivered."""
    over = threading.Event()

    def outwards() -> None:
        try:
            while data := connection.recv(CHUNK):
                _write(write, data)
        except OSError:  # nobody reads any more
            pass
        finally:
            over.set()

    def inwards() -> None:
        try:
            while data := os.read(read, CHUNK):
                connection.sendall(data)
        except OSError:  # the host has ended
            pass
        finally:
            over.set()

    for descriptor in (read, write):
        os.set_blocking(descriptor, True)
    try:
        _write(write, first)
    except OSError:  # nobody reads
        return
    for work in (outwards, inwards):
        threading.Thread(target=work, name=work.__name__, daemon=True).start()
    over.wait()
    with suppress(OSError):  # the other end may be gone
        connection.shutdown(socket.SHUT_RDWR)


def _write(descriptor: int, data: bytes) -> None:
    rest = memoryview(data)
    while rest:
        rest = rest[os.write(descriptor, rest) :]
