"""The tab Doctor: which line puts a tensor on the wrong device. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, follow_selection, lazy_page

if TYPE_CHECKING:
    from devexplorer.gui.doctor.page import DoctorPanel


def _connect(context: WindowContext, page: DoctorPanel) -> None:
    page.target_chosen.connect(context.target_requested)


TAB: TabSpec[DoctorPanel] = TabSpec(
    "doctor",
    lazy_page("devexplorer.gui.doctor.page:DoctorPanel", follow_selection, _connect),
    "explore",
    Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE,
)
