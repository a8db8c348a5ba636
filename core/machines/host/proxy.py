"""Standard input and output to the socket of the host, which is started where there is none: what ssh runs. The
standard library alone, so that it is there at once.

The main thread waits; two threads pump, one each way, in blocking calls: where one side takes nothing, nothing is read
from the other.
"""

from __future__ import annotations

import os
import socket
import sys
import threading
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress

from devexplorer.core.machines.host.socket_folder import HostError
from devexplorer.core.machines.host.starting import reach, serve_command

CHUNK = 1 << 16
FAILED = 2


def proxy(
    marker: str,
    *,
    environ: Mapping[str, str] = os.environ,
    command: Callable[[], Sequence[str]] = serve_command,
    read: int = 0,
    write: int = 1,
) -> int:
    """Join the two descriptors to the host until either side ends; returns the exit code.

    The marker comes first, between line ends: whatever was printed before it was none of the host's."""
    try:
        connection = reach(environ, command)
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
