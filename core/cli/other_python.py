"""`--python PATH`, or what was chosen in the window: this command in another Python, in place of this process. Main
thread."""

from __future__ import annotations

import argparse
import os
import sys

import devexplorer
from devexplorer.core.base import BadInput, ProgressMonitor, printable
from devexplorer.core.cli.startup import say


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
