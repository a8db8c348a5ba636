"""Finds the host of this user's environment, and starts it where there is none. Any thread; the standard library alone.

A lock lets one of several proxies start it while the others wait: the host of all of them is the same.
"""

from __future__ import annotations

import os
import socket
import subprocess
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

from devexplorer.core.machines.host.socket_folder import HostError, HostPlace, connect, locked, make, places

START_S = 30.0
"""Until a host listens: Python and its modules can come from a slow network disk."""
LOOK_S = 0.02
LAST_BYTES = 4096

Clock = Callable[[], float]


def reach(
    environ: Mapping[str, str],
    command: Callable[[], Sequence[str]],
    *,
    clock: Clock = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> socket.socket:
    """A connection to the host, started with `command` if need be. Raises `HostError`."""
    if (connection := find(environ)) is not None:
        return connection
    place = make(environ)
    until = clock() + START_S
    with _alone(f"{place.lock}-start", until, clock, sleep):
        if (connection := find(environ)) is not None:  # another proxy was quicker
            return connection
        return _start(environ, place, command(), until, clock, sleep)


def find(environ: Mapping[str, str]) -> socket.socket | None:
    """A connection to the host that runs; None: there is none."""
    return next((found for place in places(environ) if (found := connect(place)) is not None), None)


def _start(
    environ: Mapping[str, str],
    place: HostPlace,
    command: Sequence[str],
    until: float,
    clock: Clock,
    sleep: Callable[[float], None],
) -> socket.socket:
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
        if ended or clock() >= until:
            why = "it ended at once" if ended else f"it did not listen within {START_S:.0f} s"
            said = last_line(place.log, begun)
            _let_go(process)
            raise HostError(f"the host could not be started: {said or why} (log: {place.log})")
        sleep(LOOK_S)


def _let_go(process: subprocess.Popen[bytes]) -> None:
    """It goes on without this process, which does not wait for it: no warning about that."""
    process.returncode = process.returncode or 0


@contextmanager
def _alone(path: str, until: float, clock: Clock, sleep: Callable[[float], None]) -> Iterator[None]:
    """Hold a lock; the system lets go of it when this process ends, however it ends."""
    try:
        while (file := locked(path)) is None:
            if clock() >= until:
                raise HostError(f"another process has been starting the host for {START_S:.0f} s")
            sleep(LOOK_S)
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
