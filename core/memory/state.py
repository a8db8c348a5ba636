"""The allocator snapshot that the window shows. Main thread."""

from __future__ import annotations

from devexplorer.core.base import handles
from devexplorer.core.feature import FeatureState
from devexplorer.core.memory.records import AllocatorSnapshot, SnapshotOpened
from devexplorer.core.records import ObjectSnapshot
from devexplorer.core.session.poll import Change


class MemoryState(FeatureState):
    """The one that was opened last."""

    def __init__(self, objects: dict[str, ObjectSnapshot]) -> None:
        super().__init__(objects)
        self.snapshot: AllocatorSnapshot | None = None

    @handles(SnapshotOpened)
    def _opened(self, event: SnapshotOpened) -> Change:
        self.snapshot = event.snapshot
        return Change.LABORATORY
