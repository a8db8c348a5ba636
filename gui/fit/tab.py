"""The tab Fit: which cards a model fits on, and how fast it is there. Main thread only."""

from __future__ import annotations

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, follow_selection, lazy_page

TAB = TabSpec(
    "fit",
    lazy_page("devexplorer.gui.fit.page:FitPanel", follow_selection),
    "explore",
    Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE,
    tooltip="Which cards a model fits, the largest batch, and the time of a step",
)
