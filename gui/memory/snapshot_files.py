"""Saves and opens allocator snapshots, and shows the latest in its own window. Main thread only."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING

from PySide6.QtCore import QObject

from devexplorer.core.records import SaveSnapshot
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.records import AllocatorSnapshot
    from devexplorer.gui.memory.snapshot import SnapshotDialog

SNAPSHOTS = "Allocator snapshots"


def save_snapshot(context: WindowContext, device: str) -> None:
    """Ask where to save the snapshot of a device's allocator."""
    save = partial(context.controller.save_snapshot, device)
    command = SaveSnapshot(device=device, path="")
    name = f"snapshot-{device.replace(':', '-')}.pickle"
    context.save_file(
        f"Save the allocator snapshot of {device}", name, {"pickle": SNAPSHOTS}, lambda path: save(str(path)),
        here=lambda path: context.file_copies.save(path, command),
    )  # fmt: skip


def open_snapshot(context: WindowContext) -> None:
    """Ask which snapshot to read."""
    context.choose_files(
        "Open an allocator snapshot",
        f"{SNAPSHOTS} (*.pickle *.pkl);;All files (*)",
        lambda paths: context.controller.open_snapshot(path=str(paths[0])),
    )


class SnapshotViewer(QObject):
    """Shows each snapshot once, in one window that stays beside the main one. Owned by the context."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__(context)
        self._context = context
        self._dialog: SnapshotDialog | None = None
        self._shown: AllocatorSnapshot | None = None
        """A redraw of everything (a recording opened or closed, an engine lost) does not open it again."""
        context.state_changed.connect(self._refresh)

    def _refresh(self, changes: Change) -> None:
        snapshot = self._context.state.snapshot
        if not changes & Change.SNAPSHOT or snapshot is None or snapshot is self._shown:
            return
        self._shown = snapshot
        if self._dialog is None:
            from devexplorer.gui.memory.snapshot import SnapshotDialog  # when the first one was read

            self._dialog = SnapshotDialog(self._context.state, self._context.window)
        self._dialog.refresh()
        self._dialog.show()
        self._dialog.raise_()
