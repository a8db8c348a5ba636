"""`devexplorer run`: replaces this process by Python with the user's script, so that arguments, standard input, signals
and the exit code are Python's own. What is ours begins in `site/sitecustomize.py`, which Python imports first. Main
thread, no torch."""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import NoReturn

import msgspec
import psutil

import devexplorer
from devexplorer.core.base import FIRST_PYTHON, USERS_PATH, BadInput, module_command
from devexplorer.core.cli.display import missing_display
from devexplorer.core.cli.startup import say
from devexplorer.core.devices.cuda_visible_devices import VARIABLE as CUDA_VISIBLE_DEVICES
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.observe.settings import AWAITED, VARIABLE, RunSettings

SITE = Path(__file__).parent / "site"
JOB = "devexplorer-job-"
"""The number of the process that runs the job follows."""


def run(arguments: argparse.Namespace) -> NoReturn:
    """Become the script; raises `BadInput` where that cannot be."""
    command = _command(arguments)
    if arguments.virtual is not None:
        parse_virtual(arguments.virtual)  # a mistake is said now, and not when torch is imported
    report = arguments.report
    if report is not None:
        report = os.path.abspath(report)
        if not os.path.isdir(os.path.dirname(report)):
            raise BadInput(f"the report cannot be written: there is no folder {os.path.dirname(report)}")
    environ = dict(os.environ)
    first = environ.pop(FIRST_PYTHON, "")
    settings = RunSettings(
        pid=os.getpid(),
        script="" if _is_command(arguments) else " ".join(command[1 : 2 + (arguments.module is not None)]),
        virtual=arguments.virtual or "",
        report=report or "",
        job=_job_folder() if _is_command(arguments) else "",
        python_path=environ.pop(USERS_PATH, environ.get("PYTHONPATH")),
        visible=environ.get(CUDA_VISIBLE_DEVICES),
        start=vars(devexplorer).get("__start__", ()),
    )
    paths = [str(SITE)]
    if settings.python_path:
        paths.append(settings.python_path)
    if arguments.window:
        open_window(os.getpid(), environ, first, settings.python_path)
    environ |= {"PYTHONPATH": os.pathsep.join(paths), VARIABLE: msgspec.json.encode(settings).decode()}
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(command[0], command, environ)
    except OSError as error:
        raise BadInput(f"{command[0]} cannot be started: {error.strerror or error}") from error


def _job_folder() -> str:
    """A folder for what the ranks of a job say. Those of jobs that were killed are removed."""
    for left in Path(tempfile.gettempdir()).glob(f"{JOB}*"):
        number = left.name.removeprefix(JOB).partition("-")[0]
        with suppress(OSError):
            is_over = number.isdecimal() and not psutil.pid_exists(int(number))
            if is_over and left.lstat().st_uid == os.getuid():
                shutil.rmtree(left)
    return tempfile.mkdtemp(prefix=f"{JOB}{os.getpid()}-")


def open_window(pid: int, environ: dict[str, str], first: str = "", python_path: str | None = None) -> None:
    """A process of its own, on the script of process `pid`: where that is this one, once it is the script and listens.
    The script runs in any case.

    `first`: the Python that the command was called in, where it is not this one; the window opens there, as it does
    without a script. `python_path` is for that one.
    """
    problem = missing_display()
    if problem is None and not first and find_spec("PySide6") is None:
        problem = f"{sys.executable} has no PySide6"
    if problem is not None:
        say(f"no window: {problem[:1].lower()}{problem[1:].rstrip('.')}")
        return
    environ = environ | {AWAITED: str(pid)}
    command = module_command("devexplorer.gui.shell.main", "--script", str(pid))
    if first:
        command = [first, "-P", "-m", *command[-3:]]
        if python_path is not None:
            environ["PYTHONPATH"] = python_path
    between = os.fork()  # the window is no child of the script, which may wait for its children
    if between == 0:
        try:
            subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env=environ,
                start_new_session=True,  # Ctrl-C is for the script
            )
        finally:
            os._exit(0)
    os.waitpid(between, 0)


def _is_command(arguments: argparse.Namespace) -> bool:
    """Whether the words after `--` are a command rather than a script with its arguments."""
    words = arguments.words
    return bool(words) and (words[0] == "--" or arguments.argv[-len(words) - 1] == "--")


def _command(arguments: argparse.Namespace) -> list[str]:
    words: list[str] = arguments.words
    if _is_command(arguments):
        words = words[words[0] == "--" :]
        found = shutil.which(words[0]) if words else None
        if found is None:
            raise BadInput(f"there is no command {words[0]}" if words else "enter a command after --")
        return [found, *words[1:]]
    if arguments.module is not None:
        if not arguments.module:
            raise BadInput("-m needs the name of a module")
        return [sys.executable, "-m", *arguments.module]
    if not words:
        raise BadInput("enter a script: devexplorer run train.py, or -m MODULE")
    if words[0].startswith("-"):
        raise BadInput(f"there is no option {words[0]}; options of the script come after its name")
    if not os.path.exists(words[0]):
        hint = f"; to run a module: -m {words[0]}" if _is_module(words[0]) else ""
        raise BadInput(f"there is no file {words[0]}{hint}")
    return [sys.executable, *words]


def _is_module(name: str) -> bool:
    try:
        return name.isidentifier() and find_spec(name) is not None
    except (ImportError, ValueError):
        return False
