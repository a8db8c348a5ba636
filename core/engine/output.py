"""Takes the process's standard streams for the link and turns what user code prints into log events. One reader thread.

Works on file descriptors, so that output of C code and of child processes is caught too.
"""

from __future__ import annotations

import os
import sys
import threading
import time
from collections.abc import Callable
from typing import BinaryIO

from devexplorer.core.records.messages import Log

LONGEST_LINE = 8192


def take_link() -> tuple[BinaryIO, BinaryIO]:
    """Move descriptors 0 and 1 away for the link; afterwards reading standard input finds its end, and printing goes to descriptor 2."""
    link_in, link_out = os.dup(0), os.dup(1)  # not inherited by child processes (PEP 446)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    os.dup2(2, 1)
    return os.fdopen(link_in, "rb"), os.fdopen(link_out, "wb", buffering=0)


def capture_output(send: Callable[[Log], None], clock: Callable[[], float] = time.time) -> threading.Thread:
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

    def read() -> None:
        with os.fdopen(readable, "rb") as lines:
            while line := lines.readline(LONGEST_LINE):
                text = line.decode("utf-8", "replace").rstrip("\r\n")
                send(Log(level="output", text=text, time_unix_s=clock()))

    thread = threading.Thread(target=read, name="output", daemon=True)
    thread.start()
    return thread
