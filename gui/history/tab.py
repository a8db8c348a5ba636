"""The tab History: every run that was kept. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions import TabSpec, WindowContext
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK

if TYPE_CHECKING:
    from devexplorer.gui.history.page import HistoryPanel


def _make(context: WindowContext) -> HistoryPanel:
    from devexplorer.gui.history.page import HistoryPanel

    page = HistoryPanel(context.state, context.theme)
    page.benchmark_requested.connect(partial(BENCHMARK.show, context))
    page.set_source(context.history)
    page.show_problem(context.history_problem)
    context.history_opened.connect(page.set_source)
    context.history_changed.connect(page.refresh)
    context.history_problem_changed.connect(page.show_problem)
    return page


TAB = TabSpec("history", _make, Change.DEVICES)
