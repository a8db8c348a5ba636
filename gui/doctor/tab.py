"""The tab Doctor and the actions that check a model and show what was found. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.records import ApplyPatch, Check
from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, TabSpec, WindowContext, follow_selection, lazy_page
from devexplorer.gui.widgets.panel import is_only_shown

if TYPE_CHECKING:
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


def actions(context: WindowContext) -> list[ActionSpec]:
    """The one action."""

    def why_no_check() -> str | None:
        if is_only_shown(context.state):
            reason = None if context.selection.model() is not None else "Select one model, or something in it."
        else:
            reason = context.selection.why_no_model()
        if reason is not None:
            return reason
        return "The doctor is at work." if context.state.running(Check) is not None else None

    return [
        ActionSpec("check", "Check", "Which line of the selected model would put a tensor on the wrong device",
                   lambda: TAB.show(context).form.check(), why_no_check, "C", "check",
                   asks=Change.OBJECTS | Change.JOBS | Change.ENGINE),
    ]  # fmt: skip
