"""The page Log. Main thread only."""

from __future__ import annotations

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, lazy_page

TAB = TabSpec(
    "log",
    lazy_page("devexplorer.gui.log.page:LogPanel"),
    redraw=Change.LOG,
    action="Log",
    tooltip="Messages of the window and the engine, warnings and errors",
    order=180,
)
