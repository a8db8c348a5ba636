"""The tab Split: which part of a model goes where. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.split.page import SplitPanel


def _make(context: WindowContext) -> SplitPanel:
    from devexplorer.gui.split.page import SplitPanel

    page = SplitPanel(context.state, context.theme)
    page.set_selection(context.targets)
    page.command_requested.connect(context.controller.send)
    context.targets_selected.connect(page.set_selection)
    return page


TAB = TabSpec("split", _make, Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE)
