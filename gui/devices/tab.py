"""The tabs Device and Processes: all that a device reports, and who uses it. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.devices.details import DetailsPanel


def _connect(context: WindowContext, page: DetailsPanel) -> None:
    page.set_device(context.device)
    context.device_selected.connect(page.set_device)


DETAILS = TabSpec(
    "device",
    lazy_page("devexplorer.gui.devices.details:DetailsPanel", _connect),
    "monitor",
    Change.DETAILS | Change.DEVICES | Change.ENGINE,
    live=True,
    order=90,
    also_in=("learn",),
    tooltip="All that the driver says of a device: temperature, power, clocks, PCIe, memory errors",
)
PROCESSES = TabSpec(
    "processes",
    lazy_page("devexplorer.gui.devices.processes:ProcessesPanel"),
    "monitor",
    live=True,
    order=110,
    tooltip="Which processes use which device, and how much of its memory",
)
