"""Tries code that nobody ran before in a process of its own, so that nothing it does can cost the engine. Jobs thread.

The process leads a session of its own and is killed with everything that it started, whether it ended, was cancelled or took too long.
What it prints goes where this process prints: in the engine that becomes lines of the log.
"""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from dataclasses import dataclass, field

import msgspec

from devexplorer.core.errors import BadInput, DevExplorerError, Unavailable
from devexplorer.core.workspace.models import loading
from devexplorer.core.workspace.models.source import Source
from devexplorer.core.workspace.models.trial_process import TrialRequest, TrialResult
from devexplorer.core.workspace.moves import NOBODY, Watch

LIMIT_SECONDS = 60.0
SPARE_SECONDS = 3.0
"""For a process that is so stuck that it cannot even say that its time is over."""
ASK_SECONDS = 0.1
"""Between two looks whether it was cancelled."""
RESULT_LIMIT = 64 << 20
"""A larger result is none of ours."""


class TrialCancelled(DevExplorerError):
    """The user did not want to wait."""


@dataclass(slots=True)
class Trials:
    """What was tried and worked, for as long as its files stay as they are."""

    limit_seconds: float = LIMIT_SECONDS
    _known: dict[tuple[str, str], TrialResult] = field(default_factory=dict)

    def demand(self, source: Source, folder: str, watch: Watch = NOBODY) -> TrialResult:
        """Try a source, or remember that it worked. Raises `BadInput` with what went wrong, `TrialCancelled`."""
        key = source.text, os.path.abspath(folder or os.curdir)
        known = self._known.get(key)
        if known is not None and loading.unchanged({file: (home, time_ns, size) for file, home, time_ns, size in known.files}):
            return known
        self._known.pop(key, None)
        watch.progress(0.0, f"trying {source.text} in a process of its own")
        result = tried(source, folder, watch, self.limit_seconds)
        if result.error is not None:
            raise BadInput(result.error)
        if result.files:
            self._known[key] = result
        return result


def tried(source: Source, folder: str, watch: Watch = NOBODY, seconds: float = LIMIT_SECONDS) -> TrialResult:
    """Try a source in a new process; raises `TrialCancelled`."""
    if os.name != "posix":
        raise Unavailable("models of one's own are tried in a process group of their own, which this system does not have")
    readable, writable = os.pipe()
    try:
        request = msgspec.json.encode(TrialRequest(source.text, os.path.abspath(folder or os.curdir), seconds)) + b"\n"
        process = subprocess.Popen(
            [sys.executable, "-P", "-m", "devexplorer.core.workspace.models.trial_process", str(writable)],
            stdin=subprocess.PIPE,
            stdout=2,  # standard output may be somebody's document
            stderr=2,
            pass_fds=[writable],
            start_new_session=True,
        )
    except OSError as error:
        os.close(readable)
        os.close(writable)
        raise Unavailable(f"no trial process could be started: {error}") from error
    os.close(writable)
    try:
        assert process.stdin is not None
        try:
            process.stdin.write(request)
            process.stdin.flush()
        except BrokenPipeError:
            pass  # it ended at once; its exit code is told below
        data = _received(process, readable, watch, seconds + SPARE_SECONDS)
    finally:
        os.close(readable)
        code = _ended(process)
    if data is None:
        return TrialResult(error=f"'{source.text}' was not ready after {seconds:g} s and was ended")
    try:
        return msgspec.json.decode(data, type=TrialResult)
    except msgspec.DecodeError:
        return TrialResult(error=f"'{source.text}' ended its process {_how(code)} and gave no model; a factory returns its model")


def _received(process: subprocess.Popen[bytes], readable: int, watch: Watch, seconds: float) -> bytes | None:
    """What the process says until it ends; None when its time is over. A child of it may hold the descriptor open for longer."""
    data = bytearray()
    end = time.monotonic() + seconds
    while True:
        over = _is_over(process)
        ready, _, _ = select.select([readable], [], [], 0 if over else ASK_SECONDS)
        piece = os.read(readable, 1 << 16) if ready else b""
        data += piece
        if watch.cancelled():
            raise TrialCancelled("cancelled; no model was opened")
        if (over and not piece) or len(data) > RESULT_LIMIT:
            return bytes(data)
        if ready and not piece:  # the end of the document; the process ends next
            time.sleep(ASK_SECONDS / 10)
        if time.monotonic() > end:
            return None


def _is_over(process: subprocess.Popen[bytes]) -> bool:
    """Whether the process has ended; it is not reaped, so that its group's number stays its own."""
    return os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _ended(process: subprocess.Popen[bytes]) -> int:
    """Kill the whole group, then reap the process."""
    ended = _is_over(process)
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


def _how(code: int) -> str:
    if code >= 0:
        return f"itself with exit code {code} (sys.exit or os._exit)"
    try:
        return f"by signal {signal.Signals(-code).name}"
    except ValueError:
        return f"by signal {-code}"
