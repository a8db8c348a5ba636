"""The engine as a process of its own: `python -m devexplorer.core.engine [--virtual SPEC] [--visible LIST]
[--events FD]`, commands on standard input, events on that descriptor, or else on standard output. The main thread is
the link's reader; a writer thread sends. End of input ends the process and its whole group.
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import os
import signal
import sys
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from os import _exit as leave  # while a user's model is imported, `os._exit` raises (core.models.guard)
from typing import BinaryIO, NoReturn

from devexplorer.core.base import Clock, LinkError
from devexplorer.core.engine.link import CANNOT_START, COMMAND_LIMIT, CUDA_BROKEN, decode_command, read_payload
from devexplorer.core.engine.writer import EventWriter
from devexplorer.core.feature import named
from devexplorer.core.records import Event, Log

NICE = 2
"""Two thirds of the window's weight."""


def _stand_back() -> None:
    """Let the window run first where processes are scheduled individually: Linux without autogroup, or another system.

    A larger value would starve the engine when other programs run. With autogroup, `engine.priority` does the work.
    """
    if hasattr(os, "nice"):
        os.nice(NICE)


def main() -> NoReturn:
    """Run until the input ends."""
    parser = argparse.ArgumentParser(prog="python -m devexplorer.core.engine")
    parser.add_argument("--virtual")
    parser.add_argument("--visible", help="CUDA_VISIBLE_DEVICES of this process; without it as inherited")
    parser.add_argument("--events", type=int, help="descriptor, for a Python whose own start may print something")
    arguments = parser.parse_args()
    commands, events = take_link(arguments.events)
    if arguments.visible is not None:
        os.environ["CUDA_VISIBLE_DEVICES"] = arguments.visible  # before torch: CUDA reads it once
    writer = EventWriter(events)
    capture_output(writer.send)
    _stand_back()
    for begin in named("engine"):
        begin()
    try:
        from devexplorer.core.engine.engine import Engine  # imports torch: about a second, with the link already open

        engine = Engine(
            writer.send,
            virtual_spec=possible(arguments.virtual, writer.send),
            visible_devices=arguments.visible,
            on_poisoned=partial(_end_poisoned, writer),
        )
    except Exception as error:  # no torch, a broken one, a wrong specification: the window shows why
        writer.send(Log(level="error", text=f"the engine cannot start: {error}", time_unix_s=time.time()))
        writer.flush(1.0)
        _end_group(CANNOT_START)
    engine.start()
    try:
        while (payload := read_payload(commands, COMMAND_LIMIT)) is not None:
            try:
                engine.submit(decode_command(payload))
            except LinkError as error:  # refused alone; the frames after it are whole
                writer.send(Log(level="error", text=str(error), time_unix_s=time.time()))
    except LinkError:  # the stream is cut: the window is gone
        pass
    engine.close(0.3)
    _end_group(0)


def possible(virtual_spec: str | None, send: Callable[[Event], object]) -> str | None:
    """The virtual GPUs that are wanted; none where this torch cannot have any, or has CUDA cards, which is said: the
    engine starts without them. Raises `BadInput` for a wrong specification."""
    from devexplorer.core.devices.profiles import parse_virtual
    from devexplorer.core.virtual.backend import beside_cards, unsupported

    if virtual_spec is None or not parse_virtual(virtual_spec):
        return virtual_spec
    if (why := unsupported()) is not None:
        send(Log(level="warning", text=f"the engine has no virtual GPUs: {why}", time_unix_s=time.time()))
        return None
    if (why := beside_cards()) is not None:
        send(Log(level="info", text=f"virtual GPUs need an engine of their own: {why}", time_unix_s=time.time()))
        return None
    return virtual_spec


def _end_poisoned(writer: EventWriter) -> NoReturn:
    """End a process that CUDA can no longer be used in; the window starts another one."""
    writer.flush(1.0)
    _end_group(CUDA_BROKEN)


def _end_group(code: int) -> NoReturn:
    """End this process and what user code started; never waits for threads that compute. Any thread."""
    if os.name == "posix" and os.getpgrp() == os.getpid():
        # C's own `signal`: Python's raises on any thread but the main one. SIG_IGN is 1 on Linux and macOS.
        ctypes.CDLL(None).signal(ctypes.c_int(signal.SIGTERM), ctypes.c_void_p(1))
        os.killpg(os.getpgrp(), signal.SIGTERM)
    with suppress(OSError, ValueError):  # whoever read it is gone, or user code closed it
        sys.stderr.flush()
    leave(code)


# Reserves the process's standard streams for the link and turns the output of user code into log events. One reader
# thread.
#
# Works on file descriptors, so that output of C code and of child processes is caught too.

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


if __name__ == "__main__":
    main()
