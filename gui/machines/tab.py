"""The tab Machines, and the layout Remote for the pages of machines. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import MACHINE, TabSpec, WindowContext, lazy_page
from devexplorer.gui.actions.layout import DOWN, Layout, PanelSplit
from devexplorer.gui.machines.room import room_of

if TYPE_CHECKING:
    from devexplorer.gui.machines.page import MachinesPage


def _connect(context: WindowContext, page: MachinesPage) -> None:
    page.set_room(room_of(context))


TAB: TabSpec[MachinesPage] = TabSpec(
    "machines",
    lazy_page("devexplorer.gui.machines.page:MachinesPage", _connect),
    "remote",
    Change.DEVICES,
    live=True,
    menu=MACHINE,
    section=2,
    tooltip="Every machine of this window: state, devices, load, memory, temperature",
    order=130,
)
LAYOUT = Layout(
    "remote",
    "machine",
    "Other machines, and all cards of many",
    PanelSplit("rows", DOWN, ("pages",), (0,), (260,), 0),
    order=5,
)
