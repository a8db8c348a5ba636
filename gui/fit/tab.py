"""The tab Fit: which cards a model fits on, and how fast it is there. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, follow_selection, lazy_page
from devexplorer.gui.fit.calibrations import calibrations_of

if TYPE_CHECKING:
    from devexplorer.gui.fit.page import FitPanel


def _connect(context: WindowContext, page: FitPanel) -> None:
    follow_selection(context, page)
    page.views.published.in_background = context.in_background
    calibrations = calibrations_of(context)
    page.set_calibrations(calibrations.saved)
    calibrations.changed.connect(page.set_calibrations)


TAB = TabSpec(
    "fit",
    lazy_page("devexplorer.gui.fit.page:FitPanel", _connect),
    "explore",
    Change.LABORATORY | Change.JOBS | Change.OBJECTS | Change.DEVICES | Change.ENGINE,
    tooltip="Which cards a model fits, the largest batch, and the time of a step",
    order=40,
)
