"""The tab Split: which part of a model goes where. Main thread only."""

from __future__ import annotations

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, follow_selection, lazy_page

TAB = TabSpec(
    "split",
    lazy_page("devexplorer.gui.split.page:SplitPanel", follow_selection),
    "explore",
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE,
    tooltip="Divide a model over several devices, with the time and memory of each",
    order=20,
    also_in=("learn",),
)
