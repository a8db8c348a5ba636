"""Other machines: hosts, which windows elsewhere connect to, the ways there, and what a window has of them. Data; any
thread."""

from __future__ import annotations

from devexplorer.core.feature import Feature

FEATURE = Feature(
    needs=("environments", "files"),
    tab="gui.machines.tab:TAB",
    actions="gui.machines.actions:actions",
    layout="gui.machines.tab:LAYOUT",
    window="gui.machines.other_machines:begin",
)
