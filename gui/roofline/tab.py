"""The tab Roofline: runs below the ceilings of a device. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.history.tab import TAB as HISTORY

if TYPE_CHECKING:
    from devexplorer.gui.roofline.page import RooflinePanel


def _make(context: WindowContext) -> RooflinePanel:
    from devexplorer.gui.roofline.page import RooflinePanel

    page = RooflinePanel(context.state, context.theme)
    page.benchmark_requested.connect(partial(BENCHMARK.show, context))
    page.run_chosen.connect(partial(_show_run, context))
    page.set_source(context.history)
    context.history_opened.connect(page.set_source)
    context.history_changed.connect(page.reload)
    return page


def _show_run(context: WindowContext, number: int) -> None:
    HISTORY.show(context).show_run(number)


TAB = TabSpec("roofline", _make, Change.POINTS | Change.DEVICES | Change.RUNS)
