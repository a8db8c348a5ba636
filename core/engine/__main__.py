"""The engine as a process of its own: `python -m devexplorer.core.engine [--virtual SPEC] [--visible LIST]
[--events FD]`, commands on standard input, events on that descriptor, or else on standard output. The main thread is
the link's reader; a writer thread sends. End of input ends the process and its whole group.
"""

from __future__ import annotations

import argparse
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

from devexplorer.core.base import LinkError, module_prefix
from devexplorer.core.engine.link import (
    CANNOT_START,
    COMMAND_LIMIT,
    CUDA_BROKEN,
    decode_command,
    frame,
    pieces,
    read_payload,
)
from devexplorer.core.engine.output import capture_output, take_link
from devexplorer.core.records import Event, Log
from devexplorer.core.telemetry.mailbox import Mailbox

NICE = 2
"""Two thirds of the window's weight."""


class _Writer:
    """Sends events from a separate thread, so that a slow window never delays a measurement."""

    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream
        self._mailbox = Mailbox()
        self._ready = threading.Event()
        self._thread = threading.Thread(target=self._run, name="link-out", daemon=True)
        self._thread.start()

    def send(self, event: Event) -> None:
        """Send an event soon. Any thread."""
        self._mailbox.put(event)
        self._ready.set()

    def flush(self, deadline_s: float) -> None:
        """Wait until everything is sent, at most so long."""
        end = time.monotonic() + deadline_s
        while self._ready.is_set() and time.monotonic() < end:
            time.sleep(0.005)

    def _run(self) -> None:
        while True:
            self._ready.wait()
            events = self._mailbox.drain()
            if not events:
                self._ready.clear()
                events = self._mailbox.drain()  # put between the drain and the clear
            data = memoryview(b"".join([_frame(piece) for event in events for piece in pieces(event)]))
            while data:
                try:
                    data = data[self._stream.write(data) :]
                except OSError:  # the window is gone; the reader sees it too and ends the process
                    return


def _frame(event: Event) -> bytes:
    """An event that cannot be encoded is a bug: it is logged, and the link stays open."""
    try:
        return frame(event)
    except (TypeError, ValueError, OverflowError) as error:
        return frame(
            Log(level="error", text=f"{type(event).__name__} could not be sent: {error}", time_unix_s=time.time())
        )


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
    writer = _Writer(events)
    capture_output(writer.send)
    _stand_back()
    if "-m" not in module_prefix():
        from devexplorer.core.environments.in_use import keep_in_use  # tarfile, hashlib: only in another Python

        keep_in_use()
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


def _end_poisoned(writer: _Writer) -> NoReturn:
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


if __name__ == "__main__":
    main()
