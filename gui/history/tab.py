"""The tab History, and its action. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import ActionSpec, TabSpec, WindowContext, lazy_page
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.history.room import history_of

if TYPE_CHECKING:
    from devexplorer.gui.history.page import HistoryPanel


def _connect(context: WindowContext, page: HistoryPanel) -> None:
    page.benchmark_requested.connect(partial(BENCHMARK.show, context))
    page.context = context
    room = history_of(context)
    page.set_source(room.source)
    page.show_problem(room.problem)
    room.opened.connect(page.set_source)
    room.changed.connect(page.refresh)
    room.problem_changed.connect(page.show_problem)


TAB: TabSpec[HistoryPanel] = TabSpec(
    "history",
    lazy_page("devexplorer.gui.history.page:HistoryPanel", _connect),
    "measure",
    Change.DEVICES,
    tooltip="Every run that was kept: filter, compare runs, export, import",
    order=60,
)


def actions(context: WindowContext) -> list[ActionSpec]:
    """The actions, in the order of the palette."""
    return [
        ActionSpec("report", "Report…", "The chosen benchmark runs, or all, as an HTML page with plots for others",
                   lambda: TAB.show(context).report()),
    ]  # fmt: skip
