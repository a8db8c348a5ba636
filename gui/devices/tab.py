"""The tabs Device and Processes: all that a device reports, and who uses it. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.devices.details import DetailsPanel
    from devexplorer.gui.devices.processes import ProcessesPanel


def _make_details(context: WindowContext) -> DetailsPanel:
    from devexplorer.gui.devices.details import DetailsPanel

    page = DetailsPanel(context.state, context.theme)
    page.set_device(context.device)
    page.device_chosen.connect(context.device_requested)
    context.device_selected.connect(page.set_device)
    return page


def _make_processes(context: WindowContext) -> ProcessesPanel:
    from devexplorer.gui.devices.processes import ProcessesPanel

    return ProcessesPanel(context.state, context.theme)


DETAILS = TabSpec("device", _make_details, Change.DETAILS | Change.DEVICES | Change.ENGINE, live=True)
PROCESSES = TabSpec("processes", _make_processes, live=True)
