"""Saves and opens allocator snapshots, and shows the latest in its own window. Main thread only."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from msgspec.structs import replace
from PySide6.QtCore import QObject

from devexplorer.core.memory.records import OpenSnapshot, SaveSnapshot
from devexplorer.core.memory.state import MemoryState
from devexplorer.core.records import SentFrom
from devexplorer.core.session import Change
from devexplorer.gui.actions import WindowContext

if TYPE_CHECKING:
    from devexplorer.core.memory.records import AllocatorSnapshot
    from devexplorer.gui.memory.snapshot import SnapshotDialog

SNAPSHOTS = "Allocator snapshots"


def save_snapshot(context: WindowContext, device: str) -> None:
    """Ask where to save the snapshot of a device's allocator."""
    command = SaveSnapshot(device=device, path="")
    name = f"snapshot-{device.replace(':', '-')}.pickle"
    far = context.far
    context.save_file(
        f"Save the allocator snapshot of {device}", name, {"pickle": SNAPSHOTS},
        lambda path: context.controller.send(replace(command, path=str(path))),
        here=None if far is None else lambda path: far.save(path, command),
    )  # fmt: skip


def open_snapshot(context: WindowContext) -> None:
    """Ask which snapshot to read."""
    context.choose_files(
        "Open an allocator snapshot",
        f"{SNAPSHOTS} (*.pickle *.pkl);;All files (*)",
        lambda paths: open_file(context, paths[0], None),
    )


def open_file(context: WindowContext, path: Path, sent_from: SentFrom | None) -> None:
    """Read this one; `sent_from`: the file of another machine that it is a copy of."""
    context.controller.send(OpenSnapshot(path=str(path), sent_from=sent_from))


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
        snapshot = self._context.state.part(MemoryState).snapshot
        if not changes & Change.LABORATORY or snapshot is None or snapshot is self._shown:
            return
        self._shown = snapshot
        if self._dialog is None:
            from devexplorer.gui.memory.snapshot import SnapshotDialog  # when the first one was read

            self._dialog = SnapshotDialog(self._context.state, self._context.window)
        self._dialog.refresh()
        self._dialog.show()
        self._dialog.raise_()
