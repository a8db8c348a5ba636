"""The tab Fleet. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.gui.actions import MACHINE, TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.fleet.page import FleetPage


def _connect(context: WindowContext, page: FleetPage) -> None:
    from devexplorer.gui.fleet.room import room_of

    page.set_room(room_of(context))


TAB: TabSpec[FleetPage] = TabSpec(
    "fleet",
    lazy_page("devexplorer.gui.fleet.page:FleetPage", _connect),
    "remote",
    live=True,
    menu=MACHINE,
    section=2,
    tooltip="Every card of every machine, many machines, a cluster: readings, alerts, find the slow card",
    order=140,
)
