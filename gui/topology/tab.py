"""The tab Topology: how the devices are joined. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.topology.page import TopologyPanel


def _make(context: WindowContext) -> TopologyPanel:
    from devexplorer.gui.topology.page import TopologyPanel

    page = TopologyPanel(context.state, context.theme)
    page.empty.chosen.connect(context.controller.add_two_virtual)
    return page


TAB = TabSpec("topology", _make, Change.DETAILS | Change.DEVICES | Change.ENGINE)
