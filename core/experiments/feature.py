"""Experiments: questions to a tensor or model, replicas, timing with and without synchronising, the CPU against a
device. Data; any thread."""

from __future__ import annotations

from devexplorer.core.experiments.records import Ask, Crossover, CrossoverMeasured, Replicate, TimeWork, WorkTimed
from devexplorer.core.feature import CommandSpec, Feature

FEATURE = Feature(
    needs=("charts",),
    commands=(
        CommandSpec(Ask, "asking {c.target}", "There is no answer", "experiments.ask:ask", question=True),
        CommandSpec(
            Replicate,
            "replicating {c.target}",
            "Nothing was replicated",
            "experiments.replicate:replicate",
            undoable=True,
            replayed=True,
        ),
        CommandSpec(TimeWork, "timing work on {c.device}", "Nothing was timed", "experiments.timing:time_work"),
        CommandSpec(
            Crossover, "comparing {c.device} with the CPU", "Nothing was measured", "experiments.timing:crossover"
        ),
    ),
    results=(WorkTimed, CrossoverMeasured),
    state="core.experiments.state:ExperimentState",
    tab="gui.experiments.tab:TAB",
    actions="gui.experiments.tab:actions",
    offers="core.experiments.state:offers",
)
