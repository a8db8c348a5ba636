"""Runs something in its own process: the side that works, `python -P -m MODULE FD`, where the `__main__` of MODULE
calls `serve`.

The request is one line of JSON on standard input, which stays open for as long as the caller waits. The answer goes to
descriptor FD in lines of JSON: how far it is, and in the end a result or an error. Whatever the code that is run here
prints goes to the descriptors that the process was given. The main thread works; a second one, `lifeline`, ends the
whole group when no caller waits any longer, or when the time is over, and then says which line was being run. No torch
here: what is heavy is imported when the work begins.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from types import FrameType
from typing import NoReturn, TypeVar

import msgspec

from devexplorer.core.base import DevExplorerError, Report, typed_line
from devexplorer.core.isolation.source_location import kind_of, place_of

Q = TypeVar("Q", bound=msgspec.Struct)

PROGRESS_SECONDS = 0.1
"""Between two lines about the same thing; a display needs no more."""


class Envelope(msgspec.Struct, frozen=True):
    """The line on standard input."""

    title: str
    """What a sentence about this work begins with: `'net:make'`."""
    seconds: float
    """Time limit, the start of the process included."""
    until: float
    """The moment on `time.monotonic` when the time is over."""
    request: msgspec.Raw
    longer: str = ""
    """How to give it longer: ends the sentence that its time is over."""


class ChildReply(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A line of the answer: a result, an error, or progress when it is neither."""

    done: float = 0.0
    text: str = ""
    part: str = ""
    """Of the model: the path of the module that is at work."""
    result: msgspec.Raw = msgspec.Raw()
    """Empty: none."""
    more: bool = False
    """Of a result: a better one may follow. It counts where the process ends before."""
    error: tuple[str, ...] | None = None
    """Everything that is wrong."""
    virtual_helps: bool = False
    """Of an error: it would work with virtual GPUs."""


def serve(
    request_type: type[Q],
    carry_out: Callable[[Q, Report], msgspec.Struct | Iterator[msgspec.Struct]],
    home: Callable[[Q], str],
) -> NoReturn:
    """Carry out the one request of this process and end it, without waiting for threads or exit handlers of the code's
    own.

    `carry_out` returns the result, or yields one and then better ones. What it raises travels back as one line. `home`
    says which folder the user's code is in: a line of it is named when the time is over.
    """
    out = _Out(int(sys.argv[1]))
    envelope, lifeline = _envelope()
    request = msgspec.json.decode(envelope.request, type=request_type)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what it prints is seen at once, also when it never returns
    watched = (lifeline, out, envelope, home(request), threading.main_thread().ident or 0)
    threading.Thread(target=_watch, args=watched, name="lifeline", daemon=True).start()
    try:
        results = carry_out(request, out.progress)
        if isinstance(results, Iterator):
            better: msgspec.Struct | None = None
            for better in results:
                out.say(_of(better, more=True))
            assert better is not None
            results = better
        reply = _of(results)
    except DevExplorerError as error:
        reply = ChildReply(
            error=getattr(error, "findings", (str(error),)), virtual_helps=getattr(error, "virtual_helps", False)
        )
    except BaseException as error:  # of ours, or raised out of a handler that the code installed
        reply = ChildReply(error=(f"{envelope.title} failed: {typed_line(error)}",))
    out.say(reply)
    os._exit(0)


def _of(result: msgspec.Struct, *, more: bool = False) -> ChildReply:
    return ChildReply(result=msgspec.Raw(msgspec.json.encode(result)), more=more)


class _Out:
    """Where the answer goes; two threads may say something, one line at a time."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._process = os.getpid()
        self._speaking = threading.Lock()
        self._last = ("", -1.0)

    @property
    def step(self) -> str:
        """What is being done."""
        return self._last[0]

    def progress(self, done: float, text: str, part: str = "", /) -> None:
        """Say how far it is, not too often."""
        now = time.monotonic()
        about, at = self._last
        if text != about or now - at >= PROGRESS_SECONDS:
            self._last = text, now
            self.say(ChildReply(done=done, text=text, part=part))

    def say(self, reply: ChildReply) -> None:
        """Say one line, after everything that was printed until now; never in a child that the code forked."""
        if os.getpid() != self._process:
            return
        for stream in (sys.stdout, sys.stderr):
            try:
                stream.flush()
            except (OSError, ValueError, AttributeError):
                pass  # the code closed or replaced it
        data = memoryview(msgspec.json.encode(reply) + b"\n")
        held = self._speaking.acquire(timeout=1.0)  # a thread that holds it longer is stuck
        try:
            while data:
                data = data[os.write(self._descriptor, data) :]
        except OSError:  # the parent is gone, or the code closed the descriptor
            os._exit(1)
        finally:
            if held:
                self._speaking.release()


def _envelope() -> tuple[Envelope, int]:
    """The request, and the descriptor that ends when no caller waits any more; the code's own standard input is
    empty."""
    line = bytearray()
    while not line.endswith(b"\n"):
        piece = os.read(0, 1)
        if not piece:
            os._exit(1)
        line += piece
    lifeline = os.dup(0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.close(nothing)
    return msgspec.json.decode(bytes(line), type=Envelope), lifeline


def _watch(lifeline: int, out: _Out, envelope: Envelope, home: str, main_thread: int) -> None:
    try:
        ended, _, _ = select.select([lifeline], [], [], max(envelope.until - time.monotonic(), 0.0))
        if not ended:
            where = _where(sys._current_frames().get(main_thread), home, out.step)
            over = f"{envelope.title} was not ready after {envelope.seconds:g} s and was ended{where}{envelope.longer}"
            out.say(ChildReply(error=(over,)))
    finally:
        os.killpg(os.getpgrp(), signal.SIGKILL)


def _where(frame: FrameType | None, home: str, step: str) -> str:
    """` (at net.py, line 4)`: the innermost line of the user's folder, else of their code elsewhere.

    Where none of theirs is being run it is the step, ` (while: importing torch)`: a line of a library would say
    nothing. Empty for neither.
    """
    innermost, below = frame, os.path.join(os.path.abspath(home), "")
    while frame is not None:
        file = os.path.abspath(frame.f_code.co_filename)
        if file.startswith(below) and kind_of(frame.f_code.co_filename) == "user":
            return f" (at {os.path.basename(file)}, line {frame.f_lineno})"
        frame = frame.f_back
    place = place_of(innermost)
    if place is not None and not place.library:
        return f" (at {os.path.basename(place.file)}, line {place.line})"
    return f" (while: {step})" if step else ""
