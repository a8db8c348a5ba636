"""Asks the planner, which works in a process of its own. Any thread; no torch."""

from __future__ import annotations

import os

from msgspec.structs import replace

from devexplorer.core.base.progress import NO_PROGRESS, ProgressMonitor
from devexplorer.core.isolation.parent import run_apart
from devexplorer.core.records.planner import FitReport, FitSpec

LIMIT_SECONDS = 120.0
PROCESS = "devexplorer.core.planner.process"


def planned(spec: FitSpec, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS) -> FitReport:
    """What the planner says. Raises `BadInput` where there is no model, it cannot run or takes longer, `Cancelled`,
    `Unavailable`."""
    request = replace(spec, folder=os.path.abspath(spec.folder or os.curdir))
    title = f"'{spec.source.partition('?')[0]}'"
    report = run_apart(
        PROCESS, request, FitReport, title=title, seconds=seconds, progress=progress, lacking="no answer", virtual=True
    )
    return replace(report, spec=spec)
