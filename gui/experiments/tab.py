"""The tab Experiments: questions and short measurements. Main thread only."""

from __future__ import annotations

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, follow_selection, lazy_page

TAB = TabSpec(
    "experiments", lazy_page("devexplorer.gui.experiments.page:ExperimentsPanel", follow_selection), "measure",
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE | Change.JOBS,
    action="Experiments", tooltip="Replicate a model, time without synchronising, find where the GPU overtakes",
    order=80, also_in=("learn",),
)  # fmt: skip
