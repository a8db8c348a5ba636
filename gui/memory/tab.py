"""The tab Memory: where the memory of a device went; and the action that opens a snapshot. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from devexplorer.core.session import Change
from devexplorer.gui.actions import FILE, ActionSpec, TabSpec, WindowContext
from devexplorer.gui.memory.snapshot_files import SnapshotViewer, open_snapshot

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


def actions(context: WindowContext) -> list[ActionSpec]:
    """The one action; a snapshot that was read opens by itself."""
    SnapshotViewer(context)
    return [
        ActionSpec("snapshot", "Open an allocator snapshot…", "Browse a snapshot in PyTorch's format",
                   partial(open_snapshot, context), context.controller.why_no_engine, menu=FILE, section=2),
    ]  # fmt: skip
