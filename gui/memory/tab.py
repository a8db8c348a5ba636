"""The tab Memory: where the memory of a device went. Main thread only."""

from __future__ import annotations

from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import TabSpec, WindowContext

if TYPE_CHECKING:
    from devexplorer.gui.memory.page import MemoryPanel


def _make(context: WindowContext) -> MemoryPanel:
    from devexplorer.gui.memory.page import MemoryPanel

    page = MemoryPanel(context)
    if context.device is not None:
        page.show_device(context.device)
    context.device_selected.connect(page.show_device)
    return page


TAB = TabSpec(
    "memory",
    _make,
    "monitor",
    Change.DETAILS | Change.DEVICES | Change.ENGINE,
    live=True,
    tooltip="What uses the memory of a device: allocator, cache, segments, snapshots",
    order=100,
)
