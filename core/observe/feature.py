"""Scripts of the user's, run as they are and observed. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.observe.memory_report import FILE_KIND, MARK, ExplainReport
from devexplorer.core.observe.records import (
    REPORT_KIND,
    REPORT_MARK,
    ScriptEnded,
    ScriptHeld,
    ScriptPlacement,
    ScriptSteps,
    StepMemory,
    WhatHolds,
)

FEATURE = Feature(
    needs=("machines", "history", "charts", "doctor", "planner"),
    commands=(
        CommandSpec(
            ExplainReport,
            "reading why memory ran out",
            "The report could not be read",
            "observe.explain:explain_report",
            in_script=False,
            question=True,
        ),
        CommandSpec(
            WhatHolds,
            "looking for what keeps {c.target} alive",
            "What keeps it alive was not found",
            "observe.holders:what_holds",
            in_script=False,
            question=True,
            looks=True,
        ),
        CommandSpec(
            StepMemory,
            "waiting for a backward pass of the script",
            "The memory of a step is not known",
            "observe.holders:only_scripts",
            in_script=False,
            question=True,
            looks=True,
        ),
        CommandSpec(
            ScriptPlacement,
            "looking where the script's models are",
            "Where the script's models are is not known",
            "observe.holders:only_scripts",
            in_script=False,
            question=True,
            looks=True,
        ),
    ),
    events=(ScriptSteps, ScriptEnded, ScriptHeld),
    benchmark="core.observe.kind:ScriptKind",
    listener="core.observe.live:RunKeeper",
    state="core.observe.live:ScriptState",
    tab="gui.observe.tab:TAB",
    actions="gui.observe.scripts:actions",
    window="gui.observe.scripts:begin",
    marks=((MARK, FILE_KIND), (REPORT_MARK, REPORT_KIND)),
    opens=((FILE_KIND, "core.observe.explain:open_file"), (REPORT_KIND, "gui.observe.scripts:open_report")),
)
