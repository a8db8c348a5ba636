"""What the commands about allocators do, and what they answer: release the cache, record, save and open snapshots. Jobs
thread."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence

from devexplorer.core.base import BadInput, Cancelled, ProgressMonitor, bytes_text, count_text, quoted
from devexplorer.core.devices.backend import torch_module
from devexplorer.core.memory import snapshot_file
from devexplorer.core.memory.records import OpenSnapshot, RecordAllocator, ReleaseCache, SaveSnapshot, SnapshotOpened
from devexplorer.core.memory.snapshot_file import digest
from devexplorer.core.records import Answer, Fact
from devexplorer.core.workspace import CommandResult, Workspace


def release_cache(workspace: Workspace, command: ReleaseCache, progress: ProgressMonitor) -> CommandResult:
    """Give memory that the allocator keeps for later back to the device."""
    device = workspace.registry.choose(command.device)
    if device == "cpu":
        raise BadInput("the CPU has no cache to release: torch frees its memory as soon as a tensor is deleted")
    backend = workspace.registry.backend(device)
    before, used_before = backend.allocator_sample(device, time.time()), backend.used_bytes(device)
    if before is None:
        raise BadInput(f"this engine has nothing on {device}, so nothing is cached there")
    backend.empty_cache(device)
    after = backend.allocator_sample(device, time.time()) or before
    given = before.reserved_bytes - after.reserved_bytes
    kept = after.reserved_bytes - after.allocated_bytes
    words = (
        f"{bytes_text(given)} of cached memory went back to the device." if given else "No segment was completely free."
    )
    if kept:
        words += (
            f" {bytes_text(kept)} stay cached: their segments still hold tensors, and only a whole "
            "segment can be released."
        )
    if before.reserved_bytes == before.allocated_bytes:
        words = "Nothing was cached: every byte that torch has reserved is in use."
    words += " Tensors are unaffected."
    pairs = (
        ("used by all processes", used_before, backend.used_bytes(device)),
        ("reserved by torch", before.reserved_bytes, after.reserved_bytes),
        ("allocated", before.allocated_bytes, after.allocated_bytes),
        ("largest free block", before.largest_free_block_bytes, after.largest_free_block_bytes),
    )
    facts = tuple(
        Fact(label, f"{bytes_text(was)} → {bytes_text(now)}")
        for label, was, now in pairs
        if was is not None and now is not None
    )
    kind = device.partition(":")[0]
    heading = f"{device} gave back {bytes_text(given)}" if given else f"{device} had nothing to release"
    return CommandResult(
        Answer(
            title=heading,
            words=words,
            facts=facts,
            code=f"{torch_module(kind)}.empty_cache()  # of every {kind} device at once",
        )
    )


def record_allocator(workspace: Workspace, command: RecordAllocator, progress: ProgressMonitor) -> CommandResult:
    """Let the allocators record where each block is allocated, or stop that."""
    on = command.on
    able = workspace.registry.record(on)
    if on and not able:
        raise BadInput(
            "no allocator here can record: torch's CPU allocator keeps no list of blocks, and there is no CUDA device",
            virtual_helps=True,
        )
    where = ", ".join(able) if len(able) <= 4 else f"{able[0]} to {able[-1]}"
    if not on:
        words = "Snapshots keep what was recorded until the tensors are deleted."
        code = "torch.cuda.memory._record_memory_history(None)"
        return CommandResult(Answer(title="Allocations are no longer recorded", words=words, code=code))
    words = (
        f"The allocators of {where} now record which line of code requests each block, so that a "
        "snapshot shows which lines hold the most memory. Earlier blocks have no line. Each "
        "allocation takes a few microseconds longer."
    )
    if any(device.startswith("cuda") for device in able):
        words += " On a CUDA device without a context, recording starts shortly after the first tensor."
    code = 'torch.cuda.memory._record_memory_history("all", stacks="python", max_entries=100_000)'
    return CommandResult(Answer(title="Allocations are being recorded", words=words, code=code))


def save_snapshot(workspace: Workspace, command: SaveSnapshot, progress: ProgressMonitor) -> CommandResult:
    """Write the snapshot of a device's allocator."""
    device, path = workspace.registry.choose(command.device), command.path
    taken = workspace.registry.backend(device).snapshot(device)
    size = snapshot_file.save(taken, path)
    sent, name = command.sent_to, path if command.sent_to is None else os.path.basename(command.sent_to.path)
    counts = [
        (segment["total_size"], segment["allocated_size"], len(segment["blocks"])) for segment in taken["segments"]
    ]
    counted = _counted(counts, sum(map(len, taken.get("device_traces", ()))))
    words = (
        f"Wrote {bytes_text(size)} to {name}: {counted}. Open it here, at pytorch.org/memory_viz or "
        "with torch.cuda._memory_viz."
    )
    if workspace.registry.info(device).simulated:
        words += " The file is marked as simulated."
    if sent is not None:
        words += f" The window copies it to {sent.machine}."
    code = f"torch.cuda.memory._dump_snapshot({quoted(name)})  # of every CUDA device"
    title = f"Snapshot of {device} {'saved' if sent is None else 'written'}"
    return CommandResult(Answer(title=title, words=words, code=code))


def open_snapshot(workspace: Workspace, command: OpenSnapshot, progress: ProgressMonitor) -> CommandResult:
    """Read the snapshot of a device's allocator, or one of a file."""
    if (command.path is None) == (command.device is None):
        raise BadInput("choose either a device or a file")
    if command.path is not None:
        sent = command.sent_from
        known = command.path if sent is None else os.path.basename(sent.path)
        source = os.path.basename(known)
        code = f"python -m torch.cuda._memory_viz stats {quoted(known)}"
        if sent is not None:
            source = f"{source} of {sent.machine}"
        found = snapshot_file.load(command.path, source, _reader(progress, source), known)
    else:
        source, code = workspace.registry.choose(command.device or ""), "torch.cuda.memory._snapshot()"
        backend = workspace.registry.backend(source)
        found = digest(backend.snapshot(source), source, simulated=workspace.registry.info(source).simulated)
    segments = [(segment.bytes, segment.allocated_bytes, len(segment.blocks)) for segment in found.segments]
    words = f"{_counted(segments, found.trace_entries)}."
    if found.cut:
        words += f" {count_text(found.cut, 'block')} are not shown: only the largest are."
    if not found.stacks:
        words += " No line of code is known: recording was off when the blocks were allocated."
    answer = Answer(title=f"The allocator snapshot of {source}", words=words, code=code)
    return CommandResult(answer, events=(SnapshotOpened(snapshot=found),))


def _counted(segments: Sequence[tuple[int, int, int]], steps: int) -> str:
    """In words; a segment is its bytes, those in use, and its number of blocks."""
    reserved, allocated, blocks = (sum(column) for column in zip(*segments, strict=True)) if segments else (0, 0, 0)
    parts = [
        f"{count_text(len(segments), 'segment')} of {bytes_text(reserved)}",
        f"{bytes_text(allocated)} in use",
        count_text(blocks, "block"),
    ]
    return ", ".join([*parts, count_text(steps, "recorded step")] if steps else parts)


def _reader(progress: ProgressMonitor, source: str) -> Callable[[float], None]:
    def report(share: float) -> None:
        if progress.cancelled():
            raise Cancelled(f"{source} was not opened: reading was cancelled")
        progress.report(share, f"reading {source}")

    return report
