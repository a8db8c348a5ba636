"""Runs something in its own process, so that nothing it does can cost this one: the side that waits, the side that
works, and one declaration for both of work on a model. Any thread that may wait; no torch.

The request is one line of JSON on standard input, which stays open for as long as the caller waits. The answer goes to
descriptor FD in lines of JSON: how far it is, and in the end a result or an error. Whatever the code that is run here
prints goes to the descriptors that the process was given. The main thread works; a second one, `lifeline`, ends the
whole group when no caller waits any longer, or when the time is over, and then says which line was being run. No torch
here: what is heavy is imported when the work begins.

The process leads a session of its own and is killed with everything that it started, whether it ended, was cancelled or
took too long. What it prints goes where this process prints its errors: in the engine that becomes lines of the log.
"""

from __future__ import annotations

import io
import os
import select
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from types import FrameType
from typing import Generic, NoReturn, Protocol, TypeVar

import msgspec
from msgspec.structs import replace

from devexplorer.core.base import (
    NO_PROGRESS,
    BadInput,
    DevExplorerError,
    ProgressMonitor,
    Report,
    Unavailable,
    module_command,
    typed_line,
    without_cards,
)
from devexplorer.core.isolation.model_source import parse
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


R = TypeVar("R", bound=msgspec.Struct)

SPARE_SECONDS = 3.0
"""For a process that is so stuck that it cannot even say that its time is over."""
ASK_SECONDS = 0.1
"""Between two looks whether it was cancelled."""
AUTOLOAD = "TORCH_DEVICE_BACKEND_AUTOLOAD"
"""Variable that keeps torch, when it is 0, from loading backends of other packages as it is imported
(torch/__init__.py)."""
RESULT_LIMIT = 64 << 20
"""A larger result is none of ours."""


def run_in_subprocess(
    module: str,
    request: msgspec.Struct,
    result: type[R],
    *,
    title: str,
    seconds: float,
    progress: ProgressMonitor = NO_PROGRESS,
    lacking: str = "no result",
    virtual: bool = False,
    longer: str = "",
) -> R:
    """Let `module`, whose `__main__` calls `child.serve`, carry out a request within so many seconds, its start
    included.

    A process that ends while it works on a better result has given the one before. Raises `BadInput` with what it says
    is wrong, or how it ended (`'net:make' was not ready after 60 s and was ended (at net.py, line 4)`, `… ended
    its process by signal SIGSEGV and gave no model`): `title` begins such a sentence, `lacking` ends it, or
    `longer` where its time was over. Raises `Cancelled`, and `Unavailable` where this system has no process groups.
    `virtual`: it is all about virtual GPUs, for which torch has the one place that another backend would take as
    torch is imported, and which cannot be in one process with CUDA cards.
    """
    if os.name != "posix":
        raise Unavailable(f"{title} needs its own process group, which this system does not support")
    envelope = Envelope(title, seconds, time.monotonic() + seconds, msgspec.Raw(msgspec.json.encode(request)), longer)
    process, readable = _start(module, envelope, without_cards({**os.environ, AUTOLOAD: "0"}) if virtual else None)
    last: ChildReply | None = None
    try:
        for reply in _replies(process, readable, envelope, progress):
            if bytes(reply.result):
                last = reply
            elif reply.error is not None:
                last = last or reply
            else:
                progress.report(min(max(reply.done, 0.0), 1.0), reply.text, reply.part)
                continue
            if not reply.more:
                break
    except BadInput:  # its time is over
        if last is None:
            raise
    finally:
        os.close(readable)
        code = reap(process)
    if last is None:
        raise BadInput(f"{title} ended its process {exit_text(code)} and gave {lacking}")
    if last.error is not None:
        raise BadInput(*last.error, virtual_helps=last.virtual_helps)
    try:
        return msgspec.json.decode(last.result, type=result)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        raise BadInput(
            f"{title} gave something else than its result: code that it ran wrote where the result goes"
        ) from None


def _start(module: str, envelope: Envelope, environ: dict[str, str] | None) -> tuple[subprocess.Popen[bytes], int]:
    """The process with its request, and where it answers."""
    readable, writable = os.pipe()
    try:
        process = subprocess.Popen(
            module_command(module, str(writable)),
            stdin=subprocess.PIPE,
            stdout=2,  # standard output may be a document
            stderr=2,
            pass_fds=[writable],
            start_new_session=True,
            env=environ,
        )
    except OSError as error:
        os.close(readable)
        raise Unavailable(f"no process could be started for {envelope.title}: {error}") from error
    finally:
        os.close(writable)
    assert process.stdin is not None
    try:
        process.stdin.write(msgspec.json.encode(envelope) + b"\n")
        process.stdin.flush()
    except BrokenPipeError:
        pass  # it ended at once; its exit code is told later
    except BaseException:
        os.close(readable)
        reap(process)
        raise
    return process, readable


def _replies(
    process: subprocess.Popen[bytes], readable: int, envelope: Envelope, progress: ProgressMonitor
) -> Iterator[ChildReply]:
    """What the process says until it ends; raises `BadInput` when its time is over, and `Cancelled`.

    A child of it may hold the descriptor open for longer than it lives itself, so its end is what counts.
    """
    title, seconds = envelope.title, envelope.seconds
    data = bytearray()
    end = time.monotonic() + seconds + SPARE_SECONDS
    waiting = select.poll()  # `select` knows no descriptor from 1024 on, and the engine may have many files open
    waiting.register(readable, select.POLLIN)
    while True:
        over = has_ended(process)
        ready = waiting.poll(0 if over else 1000 * ASK_SECONDS)
        piece = os.read(readable, 1 << 16) if ready else b""
        progress.stop_if_cancelled("nothing has changed")
        data += piece
        if b"\n" in piece:
            *lines, rest = data.split(b"\n")
            data = bytearray(rest)
            yield from filter(None, map(_reply, lines))
        if len(data) > RESULT_LIMIT:
            raise BadInput(f"{title} gave a result of more than {RESULT_LIMIT >> 20} MiB, which is not a valid result")
        if over and not piece:
            return
        if ready and not piece:  # the descriptor is closed; the process ends next
            time.sleep(ASK_SECONDS / 10)
        if time.monotonic() > end:
            raise BadInput(f"{title} was not ready after {seconds:g} s and was ended{envelope.longer}")


def _reply(line: bytes | bytearray) -> ChildReply | None:
    """One line; None for what is none of ours."""
    try:
        return msgspec.json.decode(line, type=ChildReply)
    except (msgspec.MsgspecError, UnicodeDecodeError):
        return None


def has_ended(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended; it is not reaped, so that its group's number stays its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def reap(process: subprocess.Popen[bytes]) -> int:
    """Kill the whole group, then reap the process."""
    ended = has_ended(process)
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except (ProcessLookupError, PermissionError):
        pass
    code = process.wait()
    assert process.stdin is not None
    try:
        process.stdin.close()
    except OSError:
        pass
    return code if ended else -signal.SIGKILL


def exit_text(code: int) -> str:
    """How a process ended: follows "ended its process"."""
    if code >= 0:
        return f"itself with exit code {code} (sys.exit or os._exit)"
    if code == -signal.SIGKILL:
        return "by signal SIGKILL (as the system does when memory runs out)"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"


class ModelRequest(Protocol):
    """A request names a model and the folder that its code is imported from."""

    @property
    def source(self) -> str:
        """A sample model's name, or a source as `core.isolation.model_source` reads it."""
        ...

    @property
    def folder(self) -> str:
        """Empty: the current folder."""
        ...


QuestionT = TypeVar("QuestionT", bound=ModelRequest)


@dataclass(frozen=True)
class ModelWorker(Generic[QuestionT, R]):
    """One kind of work. The `__main__` of `module` calls `serve`; everyone else calls `ask`."""

    module: str
    """What `python -P -m` runs."""
    request: type[QuestionT]
    result: type[R]
    lacking: str = "no result"
    """Ends the sentence about a process that ended early."""
    longer: str = ""
    """Ends the sentence about one whose time was over: how to give it longer."""

    def ask(
        self, request: QuestionT, progress: ProgressMonitor = NO_PROGRESS, *, seconds: float, virtual: bool = False
    ) -> R:
        """Wait for the result. Raises what `run_in_subprocess` raises; a malformed source needs no process."""
        if ":" in request.source:
            parse(request.source)
        folder = os.path.abspath(request.folder or os.curdir)
        return run_in_subprocess(
            self.module,
            replace(request, folder=folder),  # type: ignore[type-var, arg-type]
            self.result,
            title=f"'{request.source}'",
            seconds=seconds,
            progress=progress,
            lacking=self.lacking,
            virtual=virtual,
            longer=self.longer,
        )

    def serve(self, work: Callable[[QuestionT, Report], R | Iterator[R]]) -> NoReturn:
        """Do the work of this process and end it."""
        serve(self.request, work, _home)  # type: ignore[type-var]


def _home(request: ModelRequest) -> str:
    """The folder of the model's code; empty for a sample model, whose code is not the user's."""
    return parse(request.source).home(request.folder) if ":" in request.source else ""
