"""`devexplorer attach PID`: looks into a script that runs already and was not prepared for it. CPython 3.14 and later
have `sys.remote_exec`, which lets a process of the same user run a file at its next safe point, between two
instructions of its main thread. The interpreter of that process sends it, so the command works from any Python. Main
thread, no torch.

The file is run with the rights of the script. It lies in the folder of our sockets, which is this user's alone, and
removes itself before it does anything else; the one that answers is removed when it was read.
"""

from __future__ import annotations

import argparse
import os
import re
import subprocess
import time
from contextlib import suppress
from pathlib import Path

import msgspec
import psutil

import devexplorer
from devexplorer import core, resources
from devexplorer.core.base import BadInput
from devexplorer.core.base.files import replacing
from devexplorer.core.cli.startup import Raising, say
from devexplorer.core.machines.greeting import Greeting
from devexplorer.core.machines.host.finding import HostError, make
from devexplorer.core.observe.launch import SITE, open_window
from devexplorer.core.observe.running import running, short_name

WAIT_S = 0.02
PATIENCE_S = 3.0
"""Then it is said that the script has not come to a safe point yet."""
ANSWER_S = 60.0
"""From there on: imports, on a busy machine."""
LISTENS_S = 10.0
AGAIN_S = 0.25
SEND_S = 30.0

PTRACE_SCOPE = Path("/proc/sys/kernel/yama/ptrace_scope")

SEND = """
import json, sys
told = {"version": "%d.%d.%d" % sys.version_info[:3], "implementation": sys.implementation.name}
if hasattr(sys, "remote_exec"):
    told["sends"] = True
    try:
        sys.remote_exec(int(sys.argv[1]), sys.argv[2])
    except Exception as error:
        told["problem"] = str(error)
        while error is not None:
            told["forbidden"] = told.get("forbidden", False) or isinstance(error, PermissionError)
            error = error.__cause__ or error.__context__
print(json.dumps(told))
"""
"""Runs in the interpreter of the script, in a process of its own. It has to be understood by every Python 3."""

SCRIPT = """import os
os.unlink({path!r})
with open({code!r}, encoding="utf-8") as file:
    space = {{"__name__": "devexplorer_attached"}}
    exec(compile(file.read(), {code!r}, "exec"), space)
space["attach"]({packages!r}, {answer!r})
"""
"""What the script runs."""

CALLED_OFF = """import os
os.unlink({path!r})
"""
"""What it runs after Ctrl-C here: Python would complain of a missing file in the output of the script."""


class _Sent(msgspec.Struct):
    """What `SEND` says."""

    version: str
    implementation: str
    sends: bool = False
    """This Python can send at all."""
    problem: str = ""
    forbidden: bool = False


class _Attached(msgspec.Struct):
    """What the script answers."""

    problem: str = ""
    again: bool = False


class _Files:
    """The two files of one process. Use as a context, after which neither is there, except after Ctrl-C: what was sent
    cannot be taken back, so the script finds one that only removes itself."""

    def __init__(self, folder: str, pid: int) -> None:
        self.path = Path(folder, f"attach-{pid}.py")
        self.answer = self.path.with_suffix(".json")
        self.is_sent = False

    def __enter__(self) -> _Files:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        if kind is KeyboardInterrupt and self.is_sent and os.path.exists(self.path):
            self.write(CALLED_OFF)
        else:
            self.path.unlink(missing_ok=True)
        self.answer.unlink(missing_ok=True)

    def write(self, template: str) -> None:
        """What the script shall run, for this user only."""
        self.is_sent = False
        text = template.format(
            path=str(self.path), code=str(SITE / "attached.py"), packages=_packages(), answer=str(self.answer)
        )
        with replacing(self.path) as file:
            file.touch(mode=0o600)
            file.write_text(text, encoding="utf-8")


def _packages() -> dict[str, tuple[str, list[str]]]:
    """Where those are that a script can need; a checkout has them beside each other."""
    return {one.__name__: (str(one.__file__), list(one.__path__)) for one in (devexplorer, core, resources)}


def attach(arguments: argparse.Namespace) -> int:
    """Attach to the process, and say how to look. Raises `BadInput` with what is in the way."""
    pid = int(arguments.pid) if arguments.pid.isascii() and arguments.pid.isdecimal() else 0
    if not pid:
        raise BadInput(f"attach takes the number of a process, not {arguments.pid!r}")
    script = _observed(pid)
    was_observed = script is not None
    if script is None:
        with Raising():
            _attach(pid, _python(pid))
        script = _listening(pid)
    if script is None:
        raise BadInput(f"process {pid} is observed, but not found here: its XDG_RUNTIME_DIR or TMPDIR is another")
    name = f"{short_name(script)} (process {pid})"
    print(f"{name} was observed already." if was_observed else f"Attached to {name}.")
    if arguments.window:
        open_window(pid, dict(os.environ))
    else:
        print(f"To look: Machine ▾ › Running here in the window, or devexplorer --script {pid}")
    return 0


def _listening(pid: int) -> Greeting | None:
    """The script of that process: on a busy machine it greets late."""
    end = time.monotonic() + LISTENS_S
    while (found := _observed(pid)) is None and time.monotonic() < end:
        time.sleep(WAIT_S)
    return found


def _observed(pid: int) -> Greeting | None:
    return next((one for one in running() if one.pid == pid), None)


def _python(pid: int) -> str:
    """The interpreter that the process runs. Raises `BadInput` where there is none that could be used."""
    try:
        if os.stat(f"/proc/{pid}").st_uid != os.geteuid():
            raise BadInput(f"process {pid} belongs to another user; attach as that one")
        program = os.readlink(f"/proc/{pid}/exe")
    except PermissionError:
        raise BadInput(_forbidden(pid)) from None
    except OSError:
        if not os.path.exists("/proc/self"):
            raise BadInput("attach works on Linux only") from None
        raise BadInput(f"there is no process {pid}") from None
    if program.endswith(" (deleted)"):
        raise BadInput(
            f"{program.removesuffix(' (deleted)')}, which process {pid} runs, was replaced since it has begun"
        )
    if not _is_python(program):
        below = _pythons_below(pid)
        hint = f"; below it Python is process {', '.join(map(str, below))}" if below else ""
        raise BadInput(f"process {pid} is no Python, it runs {program}{hint}")
    return program


def _is_python(program: str) -> bool:
    return re.fullmatch(r"python[\d.]*t?", os.path.basename(program)) is not None


def _pythons_below(pid: int) -> list[int]:
    """Of a shell, or of `uv run`."""
    found = []
    with suppress(psutil.Error):
        for child in psutil.Process(pid).children(recursive=True):
            with suppress(OSError):
                if _is_python(os.readlink(f"/proc/{child.pid}/exe")):
                    found.append(child.pid)
    return found


def _attach(pid: int, python: str) -> None:
    """Send the file until the script can take it."""
    try:
        folder = make().folder
    except HostError as error:
        raise BadInput(str(error)) from error
    _tidy(folder)
    with _Files(folder, pid) as files:
        told = _Attached(again=True)
        while told.again:
            files.write(SCRIPT)
            if not _sees(pid, files.path):
                raise BadInput(f"process {pid} has other folders, as in a container; attach from within")
            _send(python, pid, files.path)
            files.is_sent = True
            told = _answer(files, pid)
            if told.again:
                time.sleep(AGAIN_S)
    if told.problem:
        raise BadInput(f"process {pid} is not observed: {told.problem}")


def _tidy(folder: str) -> None:
    """Remove what was left for processes that ended before they came to it."""
    for left in Path(folder).glob("attach-*"):
        number = left.name.removeprefix("attach-").partition(".")[0]
        if number.isdecimal() and not _is_alive(int(number)):
            left.unlink(missing_ok=True)


def _sees(pid: int, path: Path) -> bool:
    """Whether the process finds the same file under this name."""
    try:
        return os.path.samefile(f"/proc/{pid}/root{path}", path)
    except OSError:
        return not _is_alive(pid)  # which is said soon


def _is_alive(pid: int) -> bool:
    try:
        return psutil.Process(pid).status() not in (psutil.STATUS_ZOMBIE, psutil.STATUS_DEAD)
    except psutil.Error:
        return False


def _send(python: str, pid: int, path: Path) -> None:
    # isolated: neither the user's variables nor packages of that environment are needed for this
    command = [python, "-I", "-S", "-c", SEND, str(pid), str(path)]
    try:
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, timeout=SEND_S, check=False)
        told = msgspec.json.decode(done.stdout, type=_Sent)
    except (OSError, subprocess.TimeoutExpired, msgspec.MsgspecError) as error:
        raise BadInput(f"{python}, which process {pid} runs, cannot be asked: {error}") from error
    if not told.sends:
        name = "Python" if told.implementation == "cpython" else told.implementation
        raise BadInput(
            f"attach needs CPython 3.14: process {pid} is {name} {told.version}; start the script by 'devexplorer run',"
            " or let it call devexplorer.attach()"
        )
    if told.problem and not _is_alive(pid):
        raise BadInput(f"process {pid} has ended")
    if told.forbidden:
        raise BadInput(_forbidden(pid))
    if "not enabled in the remote process" in told.problem:
        raise BadInput(
            f"process {pid} was started with remote debugging disabled (PYTHON_DISABLE_REMOTE_DEBUG or"
            " -X disable-remote-debug)"
        )
    if told.problem:
        raise BadInput(f"process {pid} cannot be attached to: {told.problem}")


def _forbidden(pid: int) -> str:
    """Why the system lets no process look into that one."""
    with suppress(OSError):
        scope = PTRACE_SCOPE.read_text(encoding="ascii").strip()
        if scope != "0":
            return (
                f"this system lets no process look into another (kernel.yama.ptrace_scope is {scope});"
                " 'sudo sysctl kernel.yama.ptrace_scope=0' allows it until the next start"
            )
    return f"the system does not let this process look into process {pid}; in a container CAP_SYS_PTRACE allows it"


def _answer(files: _Files, pid: int) -> _Attached:
    """What the script answers, once it does."""
    begun = time.monotonic()
    taken, said = None, False
    while not os.path.exists(files.answer):
        now = time.monotonic()
        if not _is_alive(pid):
            raise BadInput(f"process {pid} has ended")
        if taken is None and not os.path.exists(files.path):
            taken = now
        if taken is not None and now - taken > ANSWER_S:
            raise BadInput(f"process {pid} has begun to attach, but not answered for {ANSWER_S:.0f} s")
        if taken is None and not said and now - begun > PATIENCE_S:
            say(f"waiting for process {pid}: its main thread is in a call that has to return first; Ctrl-C gives up")
            said = True
        time.sleep(WAIT_S)
    told = msgspec.json.decode(files.answer.read_bytes(), type=_Attached)
    files.answer.unlink()
    return told
