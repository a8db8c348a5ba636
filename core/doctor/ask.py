"""Asks the doctor, which works in its own process. Any thread that may wait; no torch until it is that process."""

from __future__ import annotations

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, Report
from devexplorer.core.isolation.model_worker import ModelWorker
from devexplorer.core.records import Diagnosis, DoctorRequest

LIMIT_SECONDS = 120.0
WORKER = ModelWorker("devexplorer.core.doctor.ask", DoctorRequest, Diagnosis, "no diagnosis")


def diagnosed(
    request: DoctorRequest, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS
) -> Diagnosis:
    """Examine a model. Raises `BadInput` with the one thing that is wrong, `Cancelled`, `Unavailable`."""
    return WORKER.ask(request, progress, seconds=seconds, virtual=request.wants_virtual)


def _examine(request: DoctorRequest, progress: Report) -> Diagnosis:
    progress(0.0, "importing torch")
    from devexplorer.core.doctor.examine import examine  # imports torch, which only the worker needs

    return examine(request, progress)


if __name__ == "__main__":
    WORKER.serve(_examine)
