"""The snapshot of a virtual GPU's allocator, as `torch.cuda.memory._snapshot()` writes that of a real one. Any thread;
no torch.

The keys are those of `THCPModule_memorySnapshot` (torch/csrc/cuda/Module.cpp, torch 2.13), so that torch's own tools
read it (`torch.cuda._memory_viz`, pytorch.org/memory_viz). `allocator_settings` has one key more, which says that it is
simulated.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from devexplorer.core.virtual.device.memory import AllocatorEvent, BlockCopy
from devexplorer.core.virtual.device.stacks import Stack

if TYPE_CHECKING:
    from devexplorer.core.virtual.device.machine import VirtualGpu

POOL = (0, 0)
"""The id of the shared pool."""

Frames = Callable[[Stack | None], list[dict[str, Any]]]


def snapshot(gpu: VirtualGpu) -> dict[str, Any]:
    """Segments, blocks and what was recorded, as plain values; equal stacks are one list, so that a pickle holds them
    once."""
    known: dict[Stack, list[dict[str, Any]]] = {}

    def frames(stack: Stack | None) -> list[dict[str, Any]]:
        if stack is None:
            return []
        if stack not in known:
            known[stack] = [{"filename": file, "line": line, "name": name} for file, line, name in stack]
        return known[stack]

    segments, events = gpu.memory.blocks_and_trace()
    traces: list[list[dict[str, Any]]] = [[] for _ in range(gpu.index)]
    return {
        "segments": [_segment(gpu.index, blocks, frames) for blocks in segments],
        "device_traces": [*traces, [_event(event, frames) for event in events]],
        "allocator_settings": {
            "PYTORCH_CUDA_ALLOC_CONF": "",
            "max_split_size": -1,
            "garbage_collection_threshold": 0.0,
            "expandable_segments": False,
            "simulated": f"{gpu.id}, {gpu.profile.name}",
        },
        "external_annotations": [],
    }


def _segment(device: int, blocks: list[BlockCopy], frames: Frames) -> dict[str, Any]:
    used = [block for block in blocks if not block.is_free]
    size = sum(block.size for block in blocks)
    allocated = sum(block.size for block in used)
    return {
        "device": device,
        "address": blocks[0].address,
        "total_size": size,
        "allocated_size": allocated,
        "active_size": allocated,
        "requested_size": sum(block.requested for block in used),
        "stream": 0,
        "segment_type": "small" if blocks[0].in_small_pool else "large",
        "segment_pool_id": POOL,
        "is_expandable": False,
        "frames": [],
        "blocks": [
            {
                "address": block.address,
                "size": block.size,
                "requested_size": block.requested,
                "state": "inactive" if block.is_free else "active_allocated",
                "frames": frames(block.stack),
            }
            for block in blocks
        ],
    }


def _event(event: AllocatorEvent, frames: Frames) -> dict[str, Any]:
    return {
        "action": event.action,
        "device_free" if event.action == "oom" else "addr": event.address,
        "size": event.size,
        "stream": 0,
        "time_us": event.time_us,
        "frames": frames(event.stack),
        "pool_id": POOL,
    }
