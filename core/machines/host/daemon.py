"""The process of a host: it begins, serves, and ends by itself some time after the last window, when nothing is under
way. Main thread.

A process of its own session, without terminal and standard input: a login that ends, or a connection that breaks, does
not concern it. SIGTERM ends it well, SIGHUP is ignored.
"""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from types import FrameType

from devexplorer.core.base import Clock, DevExplorerError
from devexplorer.core.environments.in_use import keep_in_use
from devexplorer.core.machines.host.copies import Copies
from devexplorer.core.machines.host.listener import Listener
from devexplorer.core.machines.host.listing import Description
from devexplorer.core.machines.host.questions import Questions
from devexplorer.core.machines.host.server import Server
from devexplorer.core.machines.host.socket_folder import HostError
from devexplorer.core.machines.host.unsaved_copy import UnsavedCopy
from devexplorer.core.machines.records import PROTOCOL
from devexplorer.core.records import Event
from devexplorer.core.session.crash import install_hooks
from devexplorer.core.session.session import Session

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
        listener: Listener,
        *,
        would_lose: Callable[[], bool] = lambda: False,
        clock: Clock = time.time,
        monotonic: Clock = time.monotonic,
    ) -> None:
        """`would_lose`: whether there is work of which nothing is left when the host ends."""
        self._server, self._listener = server, listener
        self._would_lose, self._idle_s = would_lose, 0.0
        self._monotonic = monotonic
        self._looked_s = monotonic()
        self._since_unix_s = clock()
        self._described: Description | None = None
        self.over = ""
        """Why it ends; empty: it goes on."""

    def look(self) -> None:
        """If it is time: mend what was removed, keep the log small, say what runs, count the idle time."""
        now = self._monotonic()
        passed = now - self._looked_s
        if passed < LOOK_S:
            return
        self._looked_s = now
        self._listener.mend()
        if self._listener.place is not None:
            bound_log(self._listener.place.log)
        self.describe()
        needed = bool(self._server.connected or self._server.busy)
        self._idle_s = 0.0 if needed else self._idle_s + min(passed, LONGEST_LOOK_S)
        limit_s = UNSAVED_IDLE_S if self._would_lose() else IDLE_S
        if self._idle_s >= limit_s:
            self.over = f"no one was connected for {limit_s / 60:.0f} minutes, and nothing was under way"

    def describe(self) -> None:
        """Write what runs here, if that has changed."""
        about = Description(
            pid=os.getpid(),
            since_unix_s=self._since_unix_s,
            python=self._server.engine_python,
            protocol=PROTOCOL,
            devexplorer=self._server.version,
            clients=len(self._server.connected),
            busy=self._server.busy,
        )
        if about != self._described:
            self._described = about
            self._listener.describe(about)


def serve(virtual_spec: str | None = None, environ: Mapping[str, str] = os.environ) -> int:
    """Run a host until it ends; returns the exit code."""
    ended: list[str] = []

    def end(number: int, _frame: FrameType | None) -> None:
        ended.append(f"it was ended by {signal.Signals(number).name}")

    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        session = Session(virtual_spec=virtual_spec)
    except DevExplorerError as error:
        return _refuse(str(error))
    copies = Copies(session)
    server = Server(session, Questions(session, copies))
    listener = Listener(server.take, environ)
    unsaved = UnsavedCopy(session, server.known)
    server.make_way = unsaved.make_way
    daemon = Daemon(server, listener, would_lose=unsaved.is_lacking)
    daemon.describe()
    try:
        place = listener.claim(ENDING_S)
    except HostError as error:
        return _refuse(str(error))
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
        while not ended and not daemon.over:
            go_on()
            unsaved.beat()
            daemon.look()
        reason = ended[0] if ended else daemon.over
        print(f"the host ends: {reason}", file=sys.stderr, flush=True)
        listener.stop_listening()
        unsaved.finish(go_on)
        server.end(f"The host on {server.machine} ended: {reason}.")
    finally:
        listener.stop_listening()
        session.close(CLOSE_S)
        copies.close()
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


def _refuse(words: str) -> int:
    print(words, file=sys.stderr, flush=True)
    return 2
