"""What the kernel asks about other Pythons: whether one is there, how a process runs in it, which ones there are. Any
thread."""

from __future__ import annotations

import os

from devexplorer.core.base import ProgressMonitor
from devexplorer.core.environments.environment import environ_for, find, given, is_own
from devexplorer.core.environments.finding import short


def named(path: str) -> str | None:
    """The interpreter that the user named, by its folder or itself; None: it is the one that runs this. Raises
    `BadInput`."""
    python = given(path).python
    return None if is_own(python) else python


def start(path: str, progress: ProgressMonitor) -> tuple[list[str], dict[str, str]]:
    """The command that runs one of our modules there, when the module's name and its arguments follow, and its
    variables. Raises `BadInput` for a Python that cannot be used, `Unavailable` for want of a package or of space."""
    from devexplorer.core.environments.packages import prepare  # importlib.metadata, tarfile: only for this

    python = given(path).python
    return prepare(python, progress), environ_for(python)


def described() -> list[dict[str, str]]:
    """Those of this machine, as `--python` takes them; the home folder is `~`."""
    return [
        {
            "path": short(found.python, dict(os.environ)),
            "kind": found.kind,
            "version": found.version,
            "torch": found.torch,
        }
        for found in find()
    ]
