"""The memory of a device, broken down by the figures of the driver and the allocator, and as nvidia-smi, the driver,
torch and the workspace count it. Pure functions, any thread; no torch, no Qt.

The questions are those of pytorch/pytorch issues 37250, 40989, 20532 and 60150: why nvidia-smi shows more than the
tensors have, what the first tensor costs, and why memory does not go back to zero.
"""

from __future__ import annotations

from typing import NamedTuple

from devexplorer.core.base import bytes_text, list_text
from devexplorer.core.devices.backend import torch_module
from devexplorer.core.records import AllocatorSample, DeviceInfo, DeviceSample, ProcessUse


class MemoryParts(NamedTuple):
    """The parts of a device's memory in bytes; None where it cannot be known. They add up to the total where all are
    known."""

    workspace: int | None
    """Storages that named objects of the workspace hold."""
    other_allocated: int | None
    """Other live tensors of the engine: benchmark operands, activations, what Undo keeps, what the allocator rounds up
    to."""
    cached: int | None
    """Reserved by the caching allocator and not allocated: given back by "release cache"."""
    context: int | None
    """CUDA context and libraries of the engine process: given back only when it ends. Where None, `other_processes`
    includes it."""
    other_processes: int | None
    free: int | None
    driver: int | None = None
    """Kept by driver and firmware, counted as neither used nor free (NVML's `reserved`); None where it is not
    reported."""

    @property
    def used(self) -> int | None:
        """All parts but the free ones; None where the use by other processes is not known."""
        if self.other_processes is None:
            return None
        return sum(
            part or 0
            for part in (self.workspace, self.other_allocated, self.cached, self.context, self.other_processes)
        )


class PartText(NamedTuple):
    """The texts of a part."""

    short: str
    """In the bar of a card."""
    title: str
    definition: str
    remedy: str
    """How it becomes free."""


PART_TEXTS = {
    "workspace": PartText(
        "workspace",
        "tensors of named objects",
        "shared memory counted once",
        "Remove or move the object.",
    ),
    "other_allocated": PartText(
        "other allocations",
        "other live tensors",
        "activations, operands, kept for Undo, rounding",
        "Freed when the last reference is dropped.",
    ),
    "cached": PartText(
        "cached",
        "cached by the allocator",
        "kept by torch's caching allocator, not in use now",
        "“Release cache” returns the segments that hold no tensor.",
    ),
    "context": PartText(
        "context",
        "CUDA context and libraries",
        "driver, torch's kernels, libraries such as cuBLAS",
        "Freed when the engine ends: “Restart engine”.",
    ),
    "other_processes": PartText(
        "other processes", "other processes", "all other processes on this card", "Only those processes can free it."
    ),
    "unsplit": PartText(
        "context and other processes",
        "context and other processes",
        "the driver does not report the two separately here",
        "",
    ),
    "used": PartText("used", "used", "all processes; no breakdown is available here", ""),
    "driver": PartText(
        "driver",
        "kept by the driver",
        "for driver and firmware, apart from used and free",
        "",
    ),
    "free": PartText("free", "free", "not in use", ""),
}
"""The texts of each part, by its name in `MemoryParts`, in the order of the bar. `unsplit` replaces `other_processes`
where the context is not known, `used` where only the sum is."""


def memory_parts(
    used: int | None,
    total: int | None,
    allocator: AllocatorSample | None,
    context: int | None,
    driver: int | None = None,
) -> MemoryParts:
    """The parts of one moment.

    `context` is what `ContextEstimator` found, for allocators that do not know it; `driver` what driver and firmware
    keep for themselves. A virtual GPU has no other users, so its allocator alone tells everything: the parts
    then add up to the byte. On a real card `used` and the allocator are read up to a tick apart, by which the sum can
    be off while memory is taken or given back.
    """
    if allocator is None:
        return MemoryParts(None, None, None, None, used, _free(used, total, driver), driver)
    if allocator.context_bytes is not None:
        context = allocator.context_bytes
    if allocator.simulated:
        used = allocator.reserved_bytes + (context or 0)
    # What is published about objects and what the allocator counts are moments apart while an object comes or goes.
    workspace = min(allocator.workspace_bytes or 0, allocator.allocated_bytes)
    cached = max(allocator.reserved_bytes - allocator.allocated_bytes, 0)
    rest = None if used is None else max(used - allocator.reserved_bytes - (context or 0), 0)
    return MemoryParts(
        workspace, allocator.allocated_bytes - workspace, cached, context, rest, _free(used, total, driver), driver
    )


def _free(used: int | None, total: int | None, driver: int | None) -> int | None:
    return None if used is None or total is None else max(total - used - (driver or 0), 0)


class ContextEstimator:
    """What CUDA context and libraries of the engine take on a card, from readings that arrive one by one.

    It is what the driver says that the process uses, less what the allocator has reserved. The list of processes is
    read only every few seconds and repeated in the samples between, so the two are subtracted only when the list is
    new, and only when the allocator had reserved the same before and after it; until then the last result is kept.
    """

    def __init__(self) -> None:
        self.bytes: int | None = None
        """None: not known yet."""
        self._list: tuple[ProcessUse, ...] | None = None
        self._repeats = False
        """Whether this source repeats the very same list between two readings, so that another one is a new reading
        even where it is equal. A recording that is replayed does not."""
        self._reserved: int | None = None
        self._listed: int | None = None
        """What the newest list says, until the allocator has confirmed that it reserved nothing meanwhile."""

    def see_sample(self, sample: DeviceSample, pid: int | None) -> None:
        """Take over a reading of the card; `pid` is the engine's."""
        result, before = sample.processes, self._list
        self._list = result
        self._repeats |= result is not None and result is before
        if result is None or result is before or (result == before and not self._repeats):
            return
        self._listed = next((use.memory_bytes for use in result if use.pid == pid), None)

    def see_allocator(self, sample: AllocatorSample) -> None:
        """Take over a reading of the engine's allocator on that card."""
        settled = sample.reserved_bytes == self._reserved
        self._reserved = sample.reserved_bytes
        if self._listed is not None and settled and self._listed >= sample.reserved_bytes:
            self.bytes = self._listed - sample.reserved_bytes
        self._listed = None

    def forget(self) -> None:
        """The engine has ended, and its context with it."""
        self.bytes = self._reserved = self._listed = None


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
        View("tensors of named objects", "their storages, each once", workspace),
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
            (parts.context, "of CUDA context and libraries (freed when its process ends)"),
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
        says = "A real card's nvidia-smi would report"
    elif info.kind != "cuda":
        says = "The whole card has"
    else:
        says = "nvidia-smi says"
    opening = f"{says} {bytes_text(parts.used)}; the tensors of named objects use {bytes_text(parts.workspace)}."
    if not between:
        return f"{opening} There is no difference."
    return f"{opening} The difference: {list_text(between)}."
