"""Actions about allocator snapshots. Main thread only."""

from __future__ import annotations

from functools import partial

from devexplorer.gui.actions import FILE, ActionSpec, WindowContext
from devexplorer.gui.memory.snapshot_files import SnapshotViewer, open_snapshot


def actions(context: WindowContext) -> list[ActionSpec]:
    """The one action; a snapshot that was read opens by itself."""
    SnapshotViewer(context)
    return [
        ActionSpec("snapshot", "Open an allocator snapshot…", "Browse a snapshot in PyTorch's format",
                   partial(open_snapshot, context), context.controller.why_no_engine, menu=FILE, section=2),
    ]  # fmt: skip
