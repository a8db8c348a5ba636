"""The process of a host: it begins, serves, and ends by itself some time after the last window, when nothing is under
way; its place, and the copy of unsaved work for the case that it ends. Main thread, but for `host-accept`, which takes
connections; threads look for copies that are left.

A process of its own session, without terminal and standard input: a login that ends, or a connection that breaks, does
not concern it. SIGTERM ends it well, SIGHUP is ignored.
"""

from __future__ import annotations

import os
import signal
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from types import FrameType

import platformdirs

from devexplorer.core.base import Clock, DevExplorerError, moment_text
from devexplorer.core.engine.process import EngineLike
from devexplorer.core.environments.code_cache import keep_in_use
from devexplorer.core.files.autosave import Autosave, FoundCopy, discard
from devexplorer.core.files.records import OpenWorkspace
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.host.finding import HostError, HostPlace, find, locked, make, peer
from devexplorer.core.machines.host.known import Known
from devexplorer.core.machines.host.server import Server
from devexplorer.core.machines.records import Goodbye
from devexplorer.core.records import Answer, Event, Offer
from devexplorer.core.session.background import Background, install_hooks
from devexplorer.core.session.session import Session

BACKLOG = 16
RETRY_S = 0.2


class HostSocket:
    """The place of a host while it lives: its lock and its socket. The system may remove any of them: the
    runtime folder goes with the last login, and temporary folders are swept; `mend` makes them again, in the next
    folder if need be.

    `claim` once, `mend` about once a second, `close` at the end. `take` gets each connection, on the thread."""

    def __init__(self, take: Callable[[socket.socket], None], environ: Mapping[str, str] = os.environ) -> None:
        self._take, self._environ = take, environ
        self.place: HostPlace | None = None
        """None: nobody can connect just now."""
        self._lock = -1
        self._socket: socket.socket | None = None
        self._inode: tuple[int, int] | None = None
        self._over = threading.Event()

    def claim(self, wait_s: float = 0.0) -> HostPlace:
        """Begin to listen; a host that ends just now, with its engine, is waited for. Raises `HostError`."""
        place = make(self._environ)
        if (connection := find(self._environ)) is not None:
            connection.close()
            raise HostError("a host of this Python environment runs already")
        try:
            while (lock := locked(place.lock)) is None:
                if wait_s <= 0:
                    raise HostError("a host of this Python environment starts just now, or ends")
                wait_s -= RETRY_S
                time.sleep(RETRY_S)
            self._lock = lock
            with suppress(FileNotFoundError):
                os.unlink(place.socket)  # of a host that was killed
            self._socket = listening = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
            listening.bind(place.socket)
            os.chmod(place.socket, 0o600)
            listening.listen(BACKLOG)
            about = os.stat(place.socket)
        except (OSError, HostError) as error:
            self.close()
            if isinstance(error, HostError):
                raise
            raise HostError(
                f"{place.folder} cannot hold the socket of the host ({(error.strerror or str(error)).lower()})"
            ) from error
        self.place, self._inode = place, (about.st_dev, about.st_ino)
        self._over = over = threading.Event()
        threading.Thread(target=self._accept, args=(listening, over), name="host-accept", daemon=True).start()
        return place

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
            with suppress(OSError):
                os.unlink(self.place.socket)
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


FINISH_S = 4.0
"""For the last copy, when the host ends."""


class HostUnsavedCopy:
    """The next host says where the copy is, with a button that opens it; the engine writes it.

    `beat` with every look at the session, `finish` before the end."""

    def __init__(
        self,
        session: Session,
        known: Known,
        *,
        folder: Path | None = None,
        finds: bool = True,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`folder`: where the copies are; None: the user's state folder. `finds`: what was left there is offered."""
        self._session, self._known, self._clock, self._monotonic = session, known, clock, monotonic
        self._background = Background(session.put)

        def remove(path: Path) -> None:
            self._background.ask("autosave", partial(discard, path), lambda _: None)

        folder = folder or Path(platformdirs.user_state_dir("devexplorer", appauthor=False)) / "autosave-host"
        self._autosave = Autosave(
            lambda: known.state, session.send_aside, session.put, remove, lambda: "", folder, monotonic
        )
        self._found: FoundCopy | None = None
        self._offered = False
        if finds:  # the host of before has ended: this one has its lock
            self._background.ask("autosave", self._autosave.look, self._take)

    def beat(self) -> None:
        """Copy what should be copied, offer what was found."""
        self._background.deliver()
        self._autosave.beat()
        state, found = self._known.state, self._found
        if found is None or state.engine is None:
            return
        file = state.part(FilesState).workspace_file
        if not self._offered:
            self._offered = True
            self._offer(found)
        elif file is not None and isinstance(file.again, OpenWorkspace) and file.again.path == str(found.path):
            self._autosave.restored = found.path  # it is of no use any more once this host ends well

    def is_lacking(self) -> bool:
        """Whether there is unsaved work, and no copy of it: it is too large, say, or the disk is full."""
        state, files = self._known.state, self._known.state.part(FilesState)
        return state.engine is not None and files.unsaved_work and self._autosave.copied != files.contents

    def make_way(self) -> None:
        """A window wants something of the engine."""
        self._autosave.make_way()

    def finish(self, go_on: Callable[[], None]) -> None:
        """The host ends: make the last copy, letting the session `go_on` meanwhile."""
        until = self._monotonic() + FINISH_S
        while self._autosave.copy() and self._monotonic() < until:
            go_on()
        state = self._known.state
        self._autosave.end(keep=state.engine is None or state.part(FilesState).unsaved_work)
        self._background.join(1.0)

    def _take(self, found: FoundCopy | None) -> None:
        self._found = found

    def _offer(self, found: FoundCopy) -> None:
        answer = Answer(
            title="A host that ended here left unsaved work",
            words=f"It was copied on {moment_text(found.saved_unix_s)} to {found.path}.",
            offers=(Offer("Open the copy", OpenWorkspace(path=str(found.path), copy=True)),),
            time_unix_s=self._clock(),
        )
        self._session.put(answer)


IDLE_S, UNSAVED_IDLE_S = 600.0, 86_400.0
"""How long a host waits for a window; the longer one with unsaved work of which there is no copy."""
LOOK_S = 1.0
"""Between two looks at socket, log and windows."""
LONGEST_LOOK_S = 60.0
"""Longer looks were those of a machine that slept: a window has time to find its host again."""
MOST_LOG_BYTES = 1 << 20
CLOSE_S = 2.5
ENDING_S = 12.0
"""A host that ends lets go of the devices within this time."""


class Daemon:
    """`look` once a second; `over` says whether it is time to end."""

    def __init__(
        self,
        server: Server,
        listener: HostSocket,
        *,
        would_lose: Callable[[], bool] = lambda: False,
        idle_s: float = IDLE_S,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`would_lose`: whether there is work of which nothing is left when the host ends. `idle_s`: how long it waits
        for a window."""
        self._server, self._listener = server, listener
        self._would_lose, self._idle_s, self._limit_s = would_lose, 0.0, idle_s
        self._monotonic = monotonic
        self._looked_s = monotonic()
        self.over = ""
        """Why it ends; empty: it goes on."""

    def look(self) -> None:
        """If it is time: mend what was removed, keep the log small, count the idle time."""
        now = self._monotonic()
        passed = now - self._looked_s
        if passed < LOOK_S:
            return
        self._looked_s = now
        self._listener.mend()
        if self._listener.place is not None:
            bound_log(self._listener.place.log)
        needed = bool(self._server.connected or self._server.busy)
        self._idle_s = 0.0 if needed else self._idle_s + min(passed, LONGEST_LOOK_S)
        limit_s = UNSAVED_IDLE_S if self._would_lose() else self._limit_s
        if self._idle_s >= limit_s:
            self.over = f"no one was connected for {limit_s / 60:g} minutes, and nothing was under way"


def serve(
    virtual_spec: str | None = None,
    environ: Mapping[str, str] = os.environ,
    make_engine: Callable[..., EngineLike] | None = None,
    *,
    over: Callable[[], Goodbye | None] = lambda: None,
    idle_s: float = IDLE_S,
) -> int:
    """Run a host until it ends; returns the exit code. `make_engine`: see `Session`. `over`: what windows are told when
    there is nothing left to show; None: there is. `idle_s`: how long it waits for a window."""
    ended: list[str] = []

    def end(number: int, _frame: FrameType | None) -> None:
        ended.append(f"it was ended by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        session = Session(virtual_spec=virtual_spec, make_engine=make_engine)
        server = Server(session)
        listener = HostSocket(server.take, environ)
        place = listener.claim(ENDING_S)
    except (DevExplorerError, HostError) as error:
        print(error, file=sys.stderr, flush=True)
        return 2
    unsaved = HostUnsavedCopy(session, server.known, finds=make_engine is None)
    server.make_way = unsaved.make_way
    daemon = Daemon(server, listener, would_lose=unsaved.is_lacking, idle_s=idle_s)
    keep_in_use()

    def fault(event: Event) -> None:
        print(getattr(event, "text", event), file=sys.stderr, flush=True)
        session.put(event)

    restore = install_hooks(fault, process="the host")

    def go_on() -> None:
        server.tick()
        server.wait()

    try:
        session.start()
        print(f"the host listens on {place.socket}", file=sys.stderr, flush=True)
        while not ended and not daemon.over and not over():
            go_on()
            unsaved.beat()
            daemon.look()
        goodbye = over()
        reason = ended[0] if ended else daemon.over
        if goodbye is None:
            goodbye = Goodbye(reason=f"The host on {server.machine} ended: {reason}.")
        print(f"the host ends: {reason or goodbye.reason}", file=sys.stderr, flush=True)
        listener.stop_listening()
        unsaved.finish(go_on)
        server.end(goodbye.reason, for_good=goodbye.for_good)
    finally:
        listener.stop_listening()
        session.close(CLOSE_S)
        listener.close()  # the next host of this environment may begin: the devices are free
        restore()
    return 0


def bound_log(path: str, most_bytes: int = MOST_LOG_BYTES) -> bool:
    """Where the log has grown beyond this, keep its newest half; whether it had. Everybody who writes appends, so what
    follows comes behind."""
    with suppress(OSError), open(path, "r+b") as file:
        size = file.seek(0, os.SEEK_END)
        if size > most_bytes:
            file.seek(size - most_bytes // 2)
            kept = file.read(most_bytes // 2).partition(b"\n")[2]
            file.seek(0)
            file.truncate()
            file.write(kept)
            return True
    return False
