"""Runs something in its own process, so that nothing it does can cost this one: the side that waits. Any thread;
no torch.

The process leads a session of its own and is killed with everything that it started, whether it ended, was cancelled or
took too long. What it prints goes where this process prints its errors: in the engine that becomes lines of the log.
The other side is `core.isolation.child`.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Iterator
from typing import TypeVar

import msgspec

from devexplorer.core.base import NO_PROGRESS, BadInput, ProgressMonitor, Unavailable, module_command, without_cards
from devexplorer.core.isolation.child import ChildReply, Envelope

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
