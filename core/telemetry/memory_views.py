"""Memory as counted by nvidia-smi, the driver, torch and the workspace, and why the counts differ. Pure functions, any
thread.

The questions are those of pytorch/pytorch issues 37250, 40989, 20532 and 60150: why nvidia-smi shows more than the
tensors have, what the first tensor costs, and why memory does not go back to zero.
"""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base import bytes_text, list_text
from devexplorer.core.devices.backend import torch_module
from devexplorer.core.records import AllocatorSample, DeviceInfo
from devexplorer.core.telemetry.memory_breakdown import MemoryParts


class View(NamedTuple):
    """One count of the memory."""

    who: str
    question: str
    """How to ask for it by hand."""
    bytes: int | None


def memory_views(
    info: DeviceInfo, used: int | None, engine_bytes: int | None, allocator: AllocatorSample | None
) -> tuple[View, ...]:
    """From the widest to the narrowest; for a device without an allocator to ask only what the system says.

    On a virtual GPU the first two are what nvidia-smi would say of a real one.
    """
    if info.kind == "cpu":
        return (View("the system, all processes", "psutil.virtual_memory()", used),)
    kind, _, number = info.id.partition(":")
    module = torch_module("cuda" if kind == "nvml" else kind)
    where = f'"{info.id}"'
    if info.simulated:
        engine_bytes = None if allocator is None else allocator.reserved_bytes + (allocator.context_bytes or 0)
        card, process = "nvidia-smi, of a real card", "nvidia-smi, this process on a real card"
        ask_card, ask_process = (
            f'torch.vgpu.mem_get_info("{info.id}")',
            "reserved plus context: a virtual GPU has no other processes",
        )
    elif kind in ("cuda", "nvml"):
        card, process = "nvidia-smi, the whole card", "nvidia-smi, this process"
        ask_card = (
            f"nvidia-smi -i {number if info.nvml_index is None else info.nvml_index} --query-gpu=memory.used"
            " --format=csv"
        )
        ask_process = "nvidia-smi --query-compute-apps=pid,used_memory --format=csv"
    else:
        card, process = "the whole device", "this process"
        ask_card, ask_process = f"torch.accelerator.get_memory_info({where})", "not reported by this driver"
    reserved = allocated = workspace = None
    if allocator is not None:
        reserved, allocated = allocator.reserved_bytes, allocator.allocated_bytes
        workspace = allocator.workspace_bytes
    return (
        View(card, ask_card, used),
        View(process, ask_process, engine_bytes),
        View("torch, reserved", f"{module}.memory_reserved({where})", reserved),
        View("torch, allocated", f"{module}.memory_allocated({where})", allocated),
        View("tensors of the workspace", "the storages of all objects, each once", workspace),
    )


def why_they_differ(info: DeviceInfo, parts: MemoryParts, used: int | None) -> str:
    """What makes up the difference between the widest and the narrowest count, and how to free it."""
    if info.kind == "cpu":
        return (
            "The CPU has no context and no caching allocator: torch frees memory as soon as a tensor is deleted."
            " The figure covers all processes on this machine."
        )
    if parts.workspace is None or used is None:
        return (
            f"This session uses no memory on {info.id}; all of it belongs to other processes."
            if used
            else f"{info.id} is not in use yet. The first tensor also creates a context of a few hundred MiB."
        )
    between = [
        f"{bytes_text(size)} {words}"
        for size, words in (
            (parts.context, "of CUDA context and libraries (freed when the engine ends)"),
            (parts.cached, "cached by torch"),
            (parts.other_allocated, "in live tensors that no object holds (rounding included)"),
            (
                parts.other_processes,
                "of other processes" if parts.context is not None else "of CUDA context and other processes",
            ),
        )
        if size
    ]
    if info.simulated:
        says = "A real card's nvidia-smi would say"
    elif info.kind != "cuda":
        says = "The whole card has"
    else:
        says = "nvidia-smi says"
    opening = f"{says} {bytes_text(parts.used)}, the tensors of the workspace use {bytes_text(parts.workspace)}."
    if not between:
        return f"{opening} There is no difference."
    return f"{opening} The difference: {list_text(between)}."
