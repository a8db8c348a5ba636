"""The place of a host while it lives: its lock, its socket, its description. The thread `host-accept` takes
connections; the rest is the main thread's.

The system may remove any of them: the runtime folder goes with the last login, and temporary folders are swept. `mend`
makes them again, in the next folder if need be.
"""

from __future__ import annotations

import fcntl
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path

import msgspec

from devexplorer.core.base import replacing
from devexplorer.core.machines.host.listing import Description
from devexplorer.core.machines.host.socket_folder import HostError, Place, make, peer
from devexplorer.core.machines.host.starting import find

BACKLOG = 16
RETRY_S = 0.2


class AnotherRuns(HostError):
    """There is a host of this environment already."""


class Listener:
    """`claim` once, `mend` about once a second, `close` at the end. `take` gets each connection, on the thread."""

    def __init__(self, take: Callable[[socket.socket], None], environ: Mapping[str, str] = os.environ) -> None:
        self._take, self._environ = take, environ
        self.place: Place | None = None
        """None: nobody can connect just now."""
        self._lock = -1
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._over = threading.Event()
        self._described: Description | None = None

    def claim(self, wait_s: float = 0.0, sleep: Callable[[float], None] = time.sleep) -> Place:
        """Begin to listen; a host that ends just now, with its engine, is waited for. Raises `AnotherRuns`, or another
        `HostError`."""
        place = make(self._environ)
        if (connection := find(self._environ)) is not None:
            connection.close()
            raise AnotherRuns("a host of this Python environment runs already")
        try:
            self._lock = os.open(place.lock, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
            while not self._take_lock():
                if wait_s <= 0:
                    raise AnotherRuns("a host of this Python environment starts just now, or ends")
                wait_s -= RETRY_S
                sleep(RETRY_S)
            with suppress(FileNotFoundError):
                os.unlink(place.socket)  # of a host that was killed
            self._write(place)
            self._socket = listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(place.socket)
            os.chmod(place.socket, 0o600)
            listening.listen(BACKLOG)
            about = os.stat(place.socket)
        except OSError as error:
            self.close()
            raise HostError(
                f"{place.folder} cannot hold the socket of the host ({(error.strerror or str(error)).lower()})"
            ) from error
        except HostError:
            self.close()
            raise
        self.place, self._inode = place, (about.st_dev, about.st_ino)
        self._over = over = threading.Event()
        threading.Thread(target=self._accept, args=(listening, over), name="host-accept", daemon=True).start()
        return place

    def _take_lock(self) -> bool:
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        except OSError:  # a file system without locks: nobody answers on the socket, and that has to do
            pass
        return True

    def describe(self, about: Description) -> None:
        """Say what runs here, now or when there is a place."""
        self._described = about
        if self.place is not None:
            self._write(self.place)

    def _write(self, place: Place) -> None:
        if self._described is not None:
            # where the disk is full, `list` says less
            with suppress(OSError), replacing(Path(place.description)) as temporary:
                temporary.write_bytes(msgspec.json.encode(self._described))

    def mend(self) -> bool:
        """Listen again where what was there has been removed; whether there was something to do."""
        if self._is_whole():
            return False
        self.close()
        with suppress(HostError):  # tried again with the next call; who is connected stays so
            self.claim()
        return True

    def stop_listening(self) -> None:
        """Nobody can connect any more, and no other host begins before `close`."""
        if self.place is not None and self._is_whole():
            for path in (self.place.socket, self.place.description):
                with suppress(OSError):
                    os.unlink(path)
        self._over.set()
        if self._socket is not None:
            with suppress(OSError):
                self._socket.shutdown(socket.SHUT_RDWR)  # wakes the thread
            self._socket.close()
        self.place, self._socket, self._inode = None, None, None

    def close(self) -> None:
        """Listen no more, and leave nothing behind."""
        self.stop_listening()
        if self._lock >= 0:
            os.close(self._lock)
            self._lock = -1

    def _is_whole(self) -> bool:
        if self.place is None:
            return False
        try:
            about = os.lstat(self.place.socket)
            return (about.st_dev, about.st_ino) == self._inode and os.path.exists(self.place.lock)
        except OSError:
            return False

    def _accept(self, listening: socket.socket, over: threading.Event) -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:  # closed by the main thread, or just now there is no descriptor left
                if over.wait(RETRY_S):
                    return
                continue
            if peer(connection)[1] == os.getuid():
                self._take(connection)
            else:
                connection.close()
