"""What `devexplorer run` tells the process of the script, in a variable of its environment. Any thread, no torch."""

from __future__ import annotations

import msgspec

VARIABLE = "DEVEXPLORER_RUN"
"""`site/sitecustomize.py` reads it, with the standard library alone."""

AWAITED = "DEVEXPLORER_AWAITED"
"""The process that a window waits for: it becomes the script."""


class RunSettings(msgspec.Struct, frozen=True):
    """How a script is run."""

    pid: int
    """Of the script that was started; others are processes that it starts."""
    script: str = ""
    """What it is called; empty: by the file that a process of the job runs."""
    virtual: str = ""
    """The virtual GPUs that CUDA means; empty: CUDA is what it is."""
    report: str = ""
    """Where the report is written."""
    job: str = ""
    """A command was started, whose ranks are observed: the folder for their reports."""
    python_path: str | None = None
    """PYTHONPATH as the user has it."""
    visible: str | None = None
    """CUDA_VISIBLE_DEVICES as the shell has it: another value is the script's."""
    start: tuple[str, ...] = ()
    """How our package is found where it is not installed: as `core/environments/bootstrap.py` takes it."""
