"""The tab Roofline: runs below the ceilings of a device. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext, lazy_page
from devexplorer.gui.benchmark.tab import TAB as BENCHMARK
from devexplorer.gui.history.room import history_of
from devexplorer.gui.history.tab import TAB as HISTORY

if TYPE_CHECKING:
    from devexplorer.gui.roofline.page import RooflinePanel


def _connect(context: WindowContext, page: RooflinePanel) -> None:
    page.benchmark_requested.connect(partial(BENCHMARK.show, context))
    page.run_chosen.connect(partial(_show_run, context))
    room = history_of(context)
    page.set_source(room.source)
    room.opened.connect(page.set_source)
    room.changed.connect(page.reload)


def _show_run(context: WindowContext, number: int) -> None:
    HISTORY.show(context).show_run(number)


TAB = TabSpec(
    "roofline",
    lazy_page("devexplorer.gui.roofline.page:RooflinePanel", _connect),
    "measure",
    Change.POINTS | Change.DEVICES | Change.RUNS,
    tooltip="What was measured against the limits of compute and memory bandwidth",
    order=70,
)
