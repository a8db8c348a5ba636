"""The tab Experiments: questions and short measurements. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import LAB, TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.experiments.page import ExperimentsPanel


def _make(context: WindowContext) -> ExperimentsPanel:
    from devexplorer.gui.experiments.page import ExperimentsPanel

    page = ExperimentsPanel(context.state, context.theme)
    page.set_selection(context.targets)
    page.command_requested.connect(context.controller.send)
    context.targets_selected.connect(page.set_selection)
    return page


TAB = TabSpec(
    "experiments", _make,
    Change.LABORATORY | Change.OBJECTS | Change.ANSWER | Change.DEVICES | Change.ENGINE | Change.JOBS,
    action="Experiments", tooltip="Replicate a model, time without synchronising, find where the GPU overtakes",
    menu=LAB,
)  # fmt: skip
