"""The tab Values: histogram and statistics of the selected tensor. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, follow_selection, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.parameters.page import ValuesPanel


def _connect(context: WindowContext, page: ValuesPanel) -> None:
    from devexplorer.gui.parameters.actions import edit_element, initialise

    page.initialise_requested.connect(partial(initialise, context))
    page.edit_requested.connect(partial(edit_element, context))


TAB = TabSpec(
    "values",
    lazy_page("devexplorer.gui.parameters.page:ValuesPanel", follow_selection, _connect),
    "explore",
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE,
    tooltip="The values of a tensor: numbers, statistics, histogram",
    order=10,
    also_in=("learn",),
)
