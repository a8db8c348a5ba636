"""Allocator snapshots: the memory of a device block by block, PyTorch's own file of it, and the cache given back. Data;
any thread."""

from __future__ import annotations

import os

from devexplorer.core.feature import CommandSpec, Feature
from devexplorer.core.memory.records import OpenSnapshot, RecordAllocator, ReleaseCache, SaveSnapshot, SnapshotOpened


def _opening(command: OpenSnapshot) -> str:
    if command.device:
        return f"reading a snapshot of {command.device}"
    path = command.path if command.sent_from is None else command.sent_from.path
    return f"opening {os.path.basename(path or 'a snapshot')}"


FEATURE = Feature(
    commands=(  # not in_script: torch's own memory is no part of the workspace, and its Python is for CUDA alone
        CommandSpec(
            ReleaseCache,
            "releasing the cache of {c.device}",
            "No cache was released",
            "memory.commands:release_cache",
            in_script=False,
        ),
        CommandSpec(
            RecordAllocator,
            lambda c: "starting to record allocations" if c.on else "ending the recording of allocations",
            "Nothing is recorded",
            "memory.commands:record_allocator",
            in_script=False,
        ),
        CommandSpec(
            SaveSnapshot,
            "saving the allocator snapshot of {c.device}",
            "No snapshot was saved",
            "memory.commands:save_snapshot",
            in_script=False,
        ),
        CommandSpec(OpenSnapshot, _opening, "No snapshot was opened", "memory.commands:open_snapshot", in_script=False),
    ),
    events=(SnapshotOpened,),
    state="core.memory.state:MemoryState",
    tab="gui.memory.tab:TAB",
    actions="gui.memory.tab:actions",
    opens=(("snapshot", "gui.memory.snapshot_files:open_file"),),
)
