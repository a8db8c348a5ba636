"""A process in which code is tried that nobody ran before: `python -m devexplorer.core.workspace.models.trial_process FD`.

The request is one line of JSON on standard input, which stays open for as long as somebody waits; the result is one JSON document on
descriptor FD. Whatever the code prints goes to the descriptors that the process was given. The main thread runs the code, a second one
ends the whole group when nobody waits any more, or when the time is over, and then says which line was being run.
"""

from __future__ import annotations

import io
import os
import select
import signal
import sys
import threading
import traceback
from typing import Any

import msgspec

from devexplorer.core.errors import BadInput
from devexplorer.core.workspace.models import loading
from devexplorer.core.workspace.models.source import parse


class TrialRequest(msgspec.Struct, frozen=True):
    """What to try."""

    source: str
    folder: str
    seconds: float
    """Time limit, the start of the process included."""


class TrialResult(msgspec.Struct, frozen=True, kw_only=True):
    """What came out of it."""

    error: str | None = None
    """Why there is no model; None: there is one."""
    type: str = ""
    sizes: tuple[tuple[str, int, int], ...] = ()
    """Its tensors: dtype, number of elements, how many of this kind."""
    files: tuple[tuple[str, str, int, int], ...] = ()
    """The files of the user that were imported: path, folder, time of change in ns, size."""


def main() -> None:
    """Try what is asked and end the process, without waiting for threads or exit handlers of the code's own."""
    out = int(sys.argv[1])
    request, lifeline = _request()
    process = os.getpid()
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(line_buffering=True)  # what it prints is seen at once, also when it never returns
    threading.Thread(target=_watch, args=(lifeline, out, request, threading.main_thread().ident), name="lifeline", daemon=True).start()
    try:
        result = _tried(request)
    except BadInput as error:
        result = TrialResult(error=str(error))
    except BaseException as error:  # of ours, or raised out of a handler that the code installed
        result = TrialResult(error=f"the trial of {request.source} failed: {loading.one_line(error)}")
    if os.getpid() == process:  # never in a child that the code forked
        _say(out, result)
    os._exit(0)


def _request() -> tuple[TrialRequest, int]:
    """The request, and the descriptor that ends when nobody waits any more; the code's own standard input is empty."""
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
    return msgspec.json.decode(bytes(line), type=TrialRequest), lifeline


def _tried(request: TrialRequest) -> TrialResult:
    source = parse(request.source)
    factory = loading.factory_of(source, request.folder)
    model = _made(source, factory, request.folder)
    kinds: dict[tuple[str, int], int] = {}
    for tensor in (*model.parameters(), *model.buffers()):
        if _is_lazy(tensor):
            continue
        kind = str(tensor.dtype).removeprefix("torch."), tensor.numel()
        kinds[kind] = kinds.get(kind, 0) + 1
    files = tuple((file, *stamp) for file, stamp in loading.stamps(loading.home_of(source, request.folder)).items())
    sizes = tuple((dtype, elements, count) for (dtype, elements), count in kinds.items())
    return TrialResult(type=type(model).__name__, sizes=sizes, files=files)


def _is_lazy(tensor: Any) -> bool:
    """Whether a parameter has no shape yet."""
    from torch.nn.parameter import is_lazy

    return bool(is_lazy(tensor))


def _made(source: Any, factory: Any, folder: str) -> Any:
    """The model without values where its code lets it be made so, which needs no memory however large it is; else with values."""
    torch = sys.modules.get("torch")
    if torch is not None:
        try:
            with torch.device("meta"):
                return loading.make(source, factory, folder)
        except BadInput:  # perhaps because there are no values; a mistake of the code's own shows again
            sys.stdout.flush()
    return loading.make(source, factory, folder)


def _watch(lifeline: int, out: int, request: TrialRequest, main_thread: int | None) -> None:
    ended, _, _ = select.select([lifeline], [], [], request.seconds)
    if not ended:
        home = loading.home_of(parse(request.source), request.folder)
        frames = traceback.extract_stack(sys._current_frames().get(main_thread or 0))
        own = [frame for frame in frames if frame.filename.startswith(home)]
        where = f" (it was at {os.path.basename(own[-1].filename)}, line {own[-1].lineno})" if own else ""
        _say(out, TrialResult(error=f"'{request.source}' was not ready after {request.seconds:g} s and was ended{where}"))
    os.killpg(os.getpgrp(), signal.SIGKILL)


def _say(out: int, result: TrialResult) -> None:
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError, AttributeError):
            pass  # the code closed or replaced it
    data = memoryview(msgspec.json.encode(result))
    while data:
        data = data[os.write(out, data) :]


if __name__ == "__main__":
    main()
