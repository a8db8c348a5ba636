"""Asks the planner, which works in its own process. Any thread that may wait; no torch until it is that process."""

from __future__ import annotations

import gc

from msgspec.structs import replace

from devexplorer.core.base import NO_PROGRESS, ProgressMonitor, Report
from devexplorer.core.isolation.model_worker import ModelWorker
from devexplorer.core.records import FitReport, FitSpec

LIMIT_SECONDS = 120.0
WORKER = ModelWorker("devexplorer.core.planner.worker.ask", FitSpec, FitReport, "no answer")


def planned(spec: FitSpec, progress: ProgressMonitor = NO_PROGRESS, seconds: float = LIMIT_SECONDS) -> FitReport:
    """Plan a step of a model, or generating text with it. Raises `BadInput` where there is no model, it cannot run or
    takes longer, `Cancelled`, `Unavailable`."""
    return replace(WORKER.ask(spec, progress, seconds=seconds, virtual=True), spec=spec)


def plan_in_this_process(spec: FitSpec, progress: Report) -> FitReport:
    """Import torch and plan; replaces the virtual GPUs of this process."""
    progress(0.0, "starting")
    from devexplorer.core.planner.run import warm  # imports torch, which only the worker needs

    if spec.serving is None:
        from devexplorer.core.planner.plan import plan
    else:
        from devexplorer.core.planner.serving.plan import plan_serving as plan

    warm()
    gc.collect()
    gc.freeze()  # imported modules live on: each run collects before it begins
    return plan(spec, progress)


if __name__ == "__main__":
    WORKER.serve(plan_in_this_process)
