"""The tab Doctor: which line puts a tensor on the wrong device. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, follow_selection, lazy_page

if TYPE_CHECKING:
    from devexplorer.core.records import ApplyPatch
    from devexplorer.gui.doctor.page import DoctorPanel


def _connect(context: WindowContext, page: DoctorPanel) -> None:
    page.target_chosen.connect(context.target_requested)
    page.patch_requested.connect(partial(_apply, context))


def _apply(context: WindowContext, command: ApplyPatch) -> None:
    from devexplorer.gui.doctor.finding import PatchDialog  # when first opened

    if (reason := context.controller.why_no_engine()) is not None:
        context.hint(reason)
        return
    context.ask(PatchDialog(command, context.window))


TAB: TabSpec[DoctorPanel] = TabSpec(
    "doctor",
    lazy_page("devexplorer.gui.doctor.page:DoctorPanel", follow_selection, _connect),
    "explore",
    Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE,
    tooltip="Which line puts a tensor on the wrong device, and a patch for it",
    order=30,
    also_in=("learn",),
)
