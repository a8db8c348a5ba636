"""The tab Doctor: which line puts a tensor on the wrong device. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.doctor.page import DoctorPanel


def _make(context: WindowContext) -> DoctorPanel:
    from devexplorer.gui.doctor.page import DoctorPanel

    page = DoctorPanel(context.state, context.theme)
    page.set_selection(context.targets)
    page.command_requested.connect(context.controller.send)
    page.target_chosen.connect(context.target_requested)
    context.targets_selected.connect(page.set_selection)
    return page


TAB = TabSpec("doctor", _make, Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE)
