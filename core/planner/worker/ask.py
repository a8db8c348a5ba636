"""Asks the planner, which works in its own process. Any thread that may wait; no torch until it is that process."""

from __future__ import annotations

import gc
from collections.abc import Iterator

from msgspec.structs import replace

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, Report
from devexplorer.core.isolation.worker import ModelWorker
from devexplorer.core.planner.records import FitReport, FitSpec

LIMIT_SECONDS = 120.0
WORKER = ModelWorker(
    "devexplorer.core.planner.worker.ask",
    FitSpec,
    FitReport,
    "no answer",
    "; devexplorer fit --timeout 600 gives it longer",
)


def planned(spec: FitSpec, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS) -> FitReport:
    """Plan a step of a model, or generating text with it. Raises `BadInput` where there is no model, it cannot run or
    takes longer, `Cancelled`, `Unavailable`. Where the time was over after some cards, the answer has those."""
    return replace(WORKER.ask(spec, progress, seconds=seconds, virtual=True), spec=spec)


def plan_in_this_process(spec: FitSpec, progress: Report) -> Iterator[FitReport]:
    """Import torch and plan, with an answer each time that more cards are done; replaces the virtual GPUs of this
    process."""
    progress(0.0, "starting")
    from devexplorer.core.planner.run import warm  # imports torch, which only the worker needs

    if spec.serving is None:
        from devexplorer.core.planner.plan import plans
    else:
        from devexplorer.core.planner.serving.calculator import serving_plans as plans

    warm()
    gc.collect()
    gc.freeze()  # imported modules live on: each run collects before it begins
    return plans(spec, progress)


if __name__ == "__main__":
    WORKER.serve(plan_in_this_process)
