"""The process in which the planner works, through `core.isolation.child`. Its main thread."""

from __future__ import annotations

import gc
import os

from devexplorer.core.isolation.child import Progress, serve
from devexplorer.core.models import loading
from devexplorer.core.models.source import parse
from devexplorer.core.records.planner import FitReport, FitSpec


def planned_here(spec: FitSpec, progress: Progress) -> FitReport:
    """Import torch and answer."""
    progress(0.0, "starting")
    from devexplorer.core.planner.plan import plan
    from devexplorer.core.planner.run import warm

    warm()
    gc.collect()
    gc.freeze()  # what is imported stays: every run collects before it begins
    return plan(spec, progress)


def home(spec: FitSpec) -> str:
    """Where the user's code is."""
    return (
        loading.home_of(parse(spec.source), spec.folder)
        if ":" in spec.source
        else os.path.abspath(spec.folder or os.curdir)
    )


if __name__ == "__main__":
    serve(FitSpec, planned_here, home)
