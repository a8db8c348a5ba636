"""Runs a parsed command, in another Python where one was asked for (`--python PATH`) or chosen in the window, and turns
errors into one line and exit code 2. Commands import torch when they run, not before. Main thread."""

from __future__ import annotations

import argparse
import errno
import io
import os
import sys
import threading
from collections.abc import Callable
from pkgutil import resolve_name

import devexplorer
from devexplorer.core.base import (
    FIRST_PYTHON,
    USERS_PATH,
    BadInput,
    DevExplorerError,
    ProgressMonitor,
    printable,
    without_cards,
)
from devexplorer.core.base.time_limit import any_abandoned
from devexplorer.core.cli.arguments import away, cli_commands, elsewhere, parse
from devexplorer.core.cli.startup import INTERRUPTED, refuse, say


def run_elsewhere(arguments: argparse.Namespace) -> None:
    """Replace this process by the same command in the Python that `--python` names, or else in the one that was chosen
    in the window for this folder; returns where that is this one.

    Raises `BadInput` for a Python that cannot be used, `Unavailable` for want of a package or of space.
    """
    if "__start__" in vars(devexplorer):  # it is there already
        return
    path = _chosen() if arguments.python is None else arguments.python
    if path is None:
        return
    from devexplorer.core.feature import named, pythons  # only for this

    if arguments.python is None and not named("pythons"):
        return
    python = pythons().named(path)
    if python is None:
        return
    if arguments.python is None:
        say_chosen(python, "this folder")
    prefix, environ = pythons().start(python, ProgressMonitor(_tell))
    if "PYTHONPATH" in os.environ:
        environ[USERS_PATH] = os.environ["PYTHONPATH"]
    environ[FIRST_PYTHON] = sys.executable
    command = [*prefix, "devexplorer.core.cli", *arguments.argv]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(python, command, environ)
    except OSError as error:
        raise BadInput(f"{python} cannot be started: {error.strerror or error}") from error


def _chosen() -> str | None:
    from devexplorer.core.base.chosen_python import chosen, current_folder, for_folder, is_there

    python = for_folder(chosen().pythons, current_folder())
    if python is not None and not is_there(python):
        say(f"the Python that was chosen for this folder, {printable(python)}, is no longer there")
        return None
    return python


def say_chosen(python: str, place: str) -> None:
    """That it was the window's user who has named it."""
    say(f"using {printable(python)}, chosen in the window for {place}; --python names another")


def _tell(done: float, text: str, part: str = "", /) -> None:
    print(f"devexplorer: {text}", file=sys.stderr)


WINDOW_COMMANDS = (None, "open", "tour")
NO_THREAD = "the system lets this process start no further thread; end other programs, or raise 'ulimit -u'"
FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO)
"""What a disk says that takes no more of what is printed into a file."""


def main(argv: list[str]) -> int:
    """Run a command line that needs no window."""
    try:
        arguments = parse(argv)
        if arguments.command in WINDOW_COMMANDS and not arguments.version:
            raise BadInput(
                "the window and the tour start with 'devexplorer', which needs PySide6; name a command here, see --help"
            )
    except DevExplorerError as error:
        return refuse(str(error))
    return run(arguments)


def run(arguments: argparse.Namespace) -> int:
    """Run one command; returns the exit code: 0, 1 for findings, 2 for what could not be run, 130 for Ctrl-C."""
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without × gets a question mark, not a traceback
    hidden = ""
    try:
        name = arguments.command
        if arguments.version:
            name = "version"
        elif (option := away(arguments)) is not None and "__start__" not in vars(devexplorer):
            if name not in elsewhere():
                raise BadInput(f"--{option.name} means nothing to {name}; it is for {', '.join(elsewhere())}")
            name = option.away
        elif cli_commands()[name].elsewhere:
            run_elsewhere(arguments)
            if cli_commands()[name].one_kind and arguments.virtual:
                hidden = _hide_cards()
        code = _command(name)(arguments)
        if hidden and not arguments.json:  # a document says of each device what it is
            say(hidden)
        if sys.stdout is not None:
            sys.stdout.flush()
        return ended(code)
    except DevExplorerError as error:
        return refuse("; ".join(filter(None, (str(error), hidden))))
    except BrokenPipeError:  # the reader (`| head`) has seen enough
        _write_no_more()
        return 0
    except OSError as error:
        if error.errno not in FULL or error.filename is not None:
            raise
        _write_no_more()
        refuse(
            f"the output could not be written ({(error.strerror or str(error)).lower()}); what was printed until then"
            " is all there is"
        )
        return 1
    except RuntimeError:
        if can_start_threads():
            raise
        return refuse(NO_THREAD)
    except KeyboardInterrupt:
        if any(thread.name == "jobs" or thread.name.startswith("bench-") for thread in threading.enumerate()):
            os._exit(
                INTERRUPTED
            )  # a product that takes minutes still runs: torch would abort an interpreter that ends under it
        return INTERRUPTED


def can_start_threads() -> bool:
    """Whether the system lets this process have another one."""
    try:
        threading.Thread(target=int, daemon=True).start()
    except RuntimeError:
        return False
    return True


def ended(code: int) -> int:
    """The exit code. While a driver call hangs the process ends here: the driver's own end could wait for that call."""
    if any_abandoned():
        for stream in (sys.stdout, sys.stderr):
            if stream is not None:
                stream.flush()
        os._exit(code)
    return code


def _write_no_more() -> None:
    """Python flushes once more at the end: into nothing."""
    os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())


def _version(_: argparse.Namespace) -> int:
    print(f"devexplorer {devexplorer.__version__}")
    return 0


def _hide_cards() -> str:
    """Let this process and its children have no CUDA cards, before torch is imported; returns what is to be said about
    that. Without cards nothing changes."""
    # records, psutil, pynvml: for this alone
    from devexplorer.core.devices.cuda_visible_devices import VARIABLE
    from devexplorer.core.devices.nvml.library import Nvml

    nvml = Nvml()
    names = [card.name for card in nvml.cards()] if os.environ.get(VARIABLE) != "" and nvml.start() else []
    nvml.close()
    if not names:
        return ""
    os.environ.update(without_cards(os.environ))
    return (
        f"with --virtual this command uses the CPU and the virtual GPUs, not {', '.join(names)}: PyTorch cannot train"
        " on both in one process"
    )


def _command(name: str) -> Callable[[argparse.Namespace], int]:
    """The function of a command, or of what carries it out elsewhere, imported for it."""
    if name == "version":
        return _version
    run = cli_commands()[name].run if name in cli_commands() else name
    command: Callable[[argparse.Namespace], int] = resolve_name(f"devexplorer.core.{run}")
    return command
