"""The process in which the doctor works: `python -m devexplorer.core.doctor.process FD`, started by `core.doctor.ask`.
Its main thread."""

from __future__ import annotations

from devexplorer.core.isolation.child import Progress, serve
from devexplorer.core.models import loading
from devexplorer.core.models.source import parse
from devexplorer.core.records.doctor import Diagnosis, DoctorRequest


def _home(request: DoctorRequest) -> str:
    """The folder of the code that is examined; empty for what is not the user's."""
    if ":" not in request.source:
        return ""
    return loading.home_of(parse(request.source), request.folder)


def _examine(request: DoctorRequest, progress: Progress) -> Diagnosis:
    progress(0.0, "importing torch")
    from devexplorer.core.doctor.examine import examine

    return examine(request, progress)


if __name__ == "__main__":
    serve(DoctorRequest, _examine, _home)
