"""The tab Topology: how the devices are joined. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.topology.page import TopologyPanel


def _connect(context: WindowContext, page: TopologyPanel) -> None:
    page.empty.chosen.connect(context.controller.add_two_virtual)


TAB = TabSpec(
    "topology",
    lazy_page("devexplorer.gui.topology.page:TopologyPanel", _connect),
    "monitor",
    Change.DETAILS | Change.DEVICES | Change.ENGINE,
    tooltip="How the devices are connected: NVLink, PCIe, NUMA",
    order=120,
)
