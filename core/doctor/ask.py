"""Asks the doctor, who works in a process of its own. Any thread that may wait; no torch."""

from __future__ import annotations

import os

from msgspec.structs import replace

from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.isolation.parent import run_apart
from devexplorer.core.models.source import parse
from devexplorer.core.records.doctor import Diagnosis, DoctorRequest

LIMIT_SECONDS = 120.0


def diagnosed(
    request: DoctorRequest, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS
) -> Diagnosis:
    """What the doctor says about a model. Raises `BadInput` with the one thing that is wrong, `Cancelled`,
    `Unavailable`."""
    if ":" in request.source:
        parse(request.source)  # what is no source costs no process
    asked = replace(request, folder=os.path.abspath(request.folder or os.curdir))
    title = f"'{request.source}'"
    return run_apart(
        "devexplorer.core.doctor.process",
        asked,
        Diagnosis,
        title=title,
        seconds=seconds,
        progress=progress,
        lacking="no diagnosis",
        virtual=asked.wants_virtual,
    )
