"""Reserves the process's standard streams for the link and turns the output of user code into log events. One reader
thread.

Works on file descriptors, so that output of C code and of child processes is caught too.
"""

from __future__ import annotations

import contextlib
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from devexplorer.core.base import Clock
from devexplorer.core.records import Log

LONGEST_LINE = 8192
LINES_A_SECOND = 300
PIPE_BYTES = 1 << 20


def take_link(events: int | None) -> tuple[BinaryIO, BinaryIO]:
    """Move descriptor 0, and 1 where events have no descriptor of their own, away for the link; afterwards reading
    standard input finds its end, and printing goes to descriptor 2. Child processes inherit neither (PEP 446)."""
    link_in, link_out = os.dup(0), os.dup(1) if events is None else events
    os.set_inheritable(link_out, False)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(link_in, "rb"), os.fdopen(link_out, "wb", buffering=0)


class _Limit:
    """Limits the lines per second and counts the rest, so that a loop that prints cannot keep the window busy."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._since = clock()
        self._passed = self._left_out = 0

    def pass_on(self, line: str) -> list[str]:
        """What to show for this line: nothing, the line, or first how many were left out before it."""
        now = self._clock()
        if now - self._since >= 1.0:
            left_out, self._since, self._passed, self._left_out = self._left_out, now, 1, 0
            return [f"({left_out} lines left out)", line] if left_out else [line]
        self._passed += 1
        if self._passed > LINES_A_SECOND:
            self._left_out += 1
            return []
        return [line]


def capture_output(send: Callable[[Log], None], clock: Clock = time.time) -> threading.Thread:
    """Send every line that this process prints from now on as a log event of level `output`."""
    readable, writable = os.pipe()
    for stream in (sys.stdout, sys.stderr):
        stream.flush()
    os.dup2(writable, 1)
    os.dup2(writable, 2)
    os.close(writable)
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(line_buffering=True)

    if (
        sys.platform == "linux"
    ):  # C code that prints while it holds the interpreter lock would wait for the reader, which needs that lock
        import fcntl

        with contextlib.suppress(OSError):
            fcntl.fcntl(readable, fcntl.F_SETPIPE_SZ, PIPE_BYTES)

    def read() -> None:
        limit = _Limit(clock)
        with os.fdopen(readable, "rb") as lines:
            while line := lines.readline(LONGEST_LINE):
                for text in limit.pass_on(line.decode("utf-8", "replace").rstrip("\r\n")):
                    send(Log(level="output", text=text, time_unix_s=clock()))

    thread = threading.Thread(target=read, name="output", daemon=True)
    thread.start()
    return thread
