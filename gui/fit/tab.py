"""The tab Fit: which cards a model fits on, and how fast it is there. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.fit.page import FitPanel


def _make(context: WindowContext) -> FitPanel:
    from devexplorer.gui.fit.page import FitPanel

    page = FitPanel(context.state, context.theme)
    page.set_selection(context.targets)
    page.command_requested.connect(context.controller.send)
    context.targets_selected.connect(page.set_selection)
    return page


TAB = TabSpec("fit", _make, Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE)
