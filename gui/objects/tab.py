"""The tab Values: histogram and statistics of the selected tensor. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.objects.values import ValuesPanel


def _make(context: WindowContext) -> ValuesPanel:
    from devexplorer.gui.objects.actions import edit_element, initialise
    from devexplorer.gui.objects.values import ValuesPanel

    page = ValuesPanel(context.state, context.theme)
    page.set_selection(context.targets)
    page.command_requested.connect(context.controller.send)
    page.initialise_requested.connect(partial(initialise, context))
    page.edit_requested.connect(partial(edit_element, context))
    context.targets_selected.connect(page.set_selection)
    return page


TAB = TabSpec("values", _make, Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE)
