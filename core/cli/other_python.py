"""`--python PATH`: this command in another Python, in place of this process. Main thread."""

from __future__ import annotations

import argparse
import os
import sys

import devexplorer
from devexplorer.core.base import BadInput, ProgressMonitor


def run_elsewhere(arguments: argparse.Namespace) -> None:
    """Replace this process by the same command in the Python that `--python` names; returns where that is this one.

    Raises `BadInput` for a Python that cannot be used, `Unavailable` for want of a package or of space.
    """
    if arguments.python is None or "__start__" in vars(devexplorer):  # it is there already
        return
    from devexplorer.core.environments.environment import environ_for, given, is_own
    from devexplorer.core.environments.preparing import prepare  # tarfile, hashlib: only for this

    python = given(arguments.python).python
    if is_own(python):
        return
    command = [*prepare(python, ProgressMonitor(_tell)), "devexplorer.core.cli", *arguments.argv]
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        os.execve(python, command, environ_for(python))
    except OSError as error:
        raise BadInput(f"{python} cannot be started: {error.strerror or error}") from error


def _tell(done: float, text: str, part: str = "", /) -> None:
    print(f"devexplorer: {text}", file=sys.stderr)
