"""The tab Fleet. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.gui.actions import MACHINE, TabSpec, WindowContext, lazy_page
from devexplorer.gui.fleet import actions

if TYPE_CHECKING:
    from devexplorer.gui.fleet.page import FleetPage


def _connect(context: WindowContext, page: FleetPage) -> None:
    from devexplorer.gui.fleet.room import room_of

    page.simulation_requested.connect(partial(actions.simulate, context))
    page.hosts_requested.connect(partial(actions.choose_hosts, context))
    page.cluster_requested.connect(partial(actions.attach, context))
    page.check_requested.connect(partial(actions.check, context))
    page.export_requested.connect(partial(actions.export, context))
    page.set_room(room_of(context))


TAB: TabSpec[FleetPage] = TabSpec(
    "fleet",
    lazy_page("devexplorer.gui.fleet.page:FleetPage", _connect),
    "remote",
    menu=MACHINE,
    section=2,
    tooltip="Every card of every machine, many machines, a cluster: readings, alerts, find the slow card",
)
