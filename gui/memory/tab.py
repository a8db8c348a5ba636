"""The tab Memory: where the memory of a device went. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session.state import Change
from devexplorer.gui.actions.context import WindowContext
from devexplorer.gui.actions.tab import TabSpec

if TYPE_CHECKING:
    from devexplorer.gui.memory.page import MemoryPanel


def _make(context: WindowContext) -> MemoryPanel:
    from devexplorer.gui.memory.page import MemoryPanel
    from devexplorer.gui.memory.snapshot_files import open_snapshot, save_snapshot

    page, controller = MemoryPanel(context.state, context.theme), context.controller
    page.release_requested.connect(controller.release_cache)
    page.restart_requested.connect(context.restart_requested)
    page.record_requested.connect(controller.record_allocator)
    page.browse_requested.connect(controller.open_snapshot)
    page.save_requested.connect(partial(save_snapshot, context))
    page.open_requested.connect(partial(open_snapshot, context))
    if context.device is not None:
        page.show_device(context.device)
    context.device_selected.connect(page.show_device)
    return page


TAB = TabSpec("memory", _make, Change.DETAILS | Change.DEVICES | Change.ENGINE, live=True)
