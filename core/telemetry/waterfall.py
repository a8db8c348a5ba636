"""Where a device's used memory went: the parts, from what the driver and what the allocator say. Pure functions, any thread."""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.records.devices import AllocatorSample


class MemoryParts(NamedTuple):
    """The parts of a device's memory in bytes; None where it cannot be known. They add up to the total where all are known."""

    workspace: int | None
    """Storages that named objects of the workspace hold."""
    other_allocated: int | None
    """Other live tensors of the engine: benchmark operands, activations."""
    cached: int | None
    """Reserved by the caching allocator and not allocated: given back by "release cache"."""
    context: int | None
    """CUDA context and libraries of the engine process: given back only when it ends."""
    other_processes: int | None
    free: int | None


def memory_parts(used: int | None, total: int | None, allocator: AllocatorSample | None, engine_bytes: int | None) -> MemoryParts:
    """The parts of one moment; `engine_bytes` is what the driver says the engine process uses."""
    free = None if used is None or total is None else max(total - used, 0)
    if allocator is None:
        return MemoryParts(None, None, None, None, used, free)
    workspace = allocator.workspace_bytes or 0
    other = max(allocator.allocated_bytes - workspace, 0)
    cached = max(allocator.reserved_bytes - allocator.allocated_bytes, 0)
    context = allocator.context_bytes
    if context is None and engine_bytes is not None:
        context = max(engine_bytes - allocator.reserved_bytes, 0)
    rest = None if used is None else max(used - allocator.reserved_bytes - (context or 0), 0)
    return MemoryParts(workspace, other, cached, context, rest, free)
