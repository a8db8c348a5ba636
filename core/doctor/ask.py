"""Asks the doctor, which works in its own process. Any thread that may wait; no torch until it is that process."""

from __future__ import annotations

import time
from collections.abc import Iterator

from msgspec.structs import replace

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, Report
from devexplorer.core.isolation.worker import ModelWorker
from devexplorer.core.records import Diagnosis, DoctorRequest

LIMIT_SECONDS = 120.0
WORKER = ModelWorker("devexplorer.core.doctor.ask", DoctorRequest, Diagnosis, "no diagnosis")


def diagnosed(
    request: DoctorRequest, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS
) -> Diagnosis:
    """Examine a model. Raises `BadInput` with the one thing that is wrong, `Cancelled`, `Unavailable`."""
    timed = replace(request, until=time.monotonic() + seconds)
    return WORKER.ask(timed, progress, seconds=seconds, virtual=request.wants_virtual)


def _examine(request: DoctorRequest, progress: Report) -> Iterator[Diagnosis]:
    progress(0.0, "importing torch")
    from devexplorer.core.doctor.examine import examined  # imports torch, which only the worker needs

    return examined(request, progress)


if __name__ == "__main__":
    WORKER.serve(_examine)
