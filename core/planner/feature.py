"""Fit: which cards a model fits, the largest batch, the time of a step, language models while they serve. Data; any
thread."""

from __future__ import annotations

from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.planner.records import FitPlanned, PlanFit

FEATURE = Feature(
    needs=("files", "split", "bandwidth", "allreduce", "charts"),
    commands=(
        CommandSpec(
            PlanFit,
            lambda c: f"checking the fit of {c.target or c.spec.source}",
            "The fit was not checked",
            "planner.commands.plan_fit:plan_fit",
            verb="planning",
            looks=True,
        ),
    ),
    results=(FitPlanned,),
    state="core.planner.state:FitState",
    benchmark="core.planner.calibrate.kind:CalibrateKind",
    tab="gui.fit.tab:TAB",
    window="gui.fit.tab:calibrations_of",
)
