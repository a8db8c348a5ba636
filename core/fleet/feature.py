"""The fleet: every card of many machines, the check that finds the slow one. Data; any thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(
    needs=(
        "alerts",
        "allreduce",
        "bandwidth",
        "environments",
        "exporter",
        "files",
        "history",
        "machines",
        "model_steps",
        "watch",
    ),
    tab="gui.fleet.tab:TAB",
    actions="gui.fleet.actions:actions",
)
