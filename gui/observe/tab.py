"""The tab Script: the steps of the script that is shown. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.observe.page import ScriptPage


def _make(context: WindowContext) -> ScriptPage:
    from devexplorer.gui.observe.page import ScriptPage
    from devexplorer.gui.observe.scripts import scripts_of

    page = ScriptPage(context)
    page.plot.empty.chosen.connect(scripts_of(context).choose)
    return page


TAB = TabSpec(
    "script",
    _make,
    "explore",
    Change.LABORATORY | Change.ENGINE,
    live=True,
    tooltip="Steps of a running script: how fast, and where their time goes",
    order=155,
    also_in=("monitor",),
)
