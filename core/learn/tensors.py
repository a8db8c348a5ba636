"""Exercises about devices and tensors. Data; main thread."""

from __future__ import annotations

from devexplorer.core.learn.checks import did, elsewhere, moved, objects, refused, row_of
from devexplorer.core.learn.exercise import Evidence, Exercise, Step
from devexplorer.core.records.experiments import Ask, Crossover, TimeWork
from devexplorer.core.records.laboratory import SetRequiresGrad
from devexplorer.core.records.messages import Combine, Move, NewTensor, SetThreads, Undo

DEVICES, TENSORS = "Devices", "Tensors"

_NUMBERS = "zero one two three four five six seven eight nine ten eleven twelve".split()
ABSENT = "cuda:99"
"""A device that nobody has."""


def _counted(number: int, *things: str) -> set[str]:
    """A number as people write it, alone or with what is counted."""
    said = {str(number), *_NUMBERS[number : number + 1]}
    return said | {f"{one} {thing}" for one in said for thing in things}


def _usable(evidence: Evidence) -> set[str]:
    return _counted(len(evidence.state.usable_devices), "device", "devices")


def _memory(evidence: Evidence) -> set[str]:
    """GiB of the last device, as one would read it: whole, or with one or two digits."""
    usable = evidence.state.usable_devices
    gib = (evidence.state.devices[usable[-1]].total_bytes or 0) / 2**30 if usable else 0.0
    if not gib:
        return set()
    numbers = {f"{gib:.0f}", f"{int(gib)}", f"{gib:.1f}", f"{gib:.2f}", f"{gib:g}"}
    return {f"{number}{unit}" for number in numbers for unit in ("", " gib", "gib")}


def _threads(evidence: Evidence) -> set[str]:
    cpu, engine = evidence.state.devices.get("cpu"), evidence.state.engine
    number = (cpu.info.threads if cpu is not None else None) or (engine.threads if engine is not None else None)
    return set() if number is None else _counted(number, "thread", "threads")


def _sees_others(evidence: Evidence) -> bool:
    """The engine was started with another CUDA_VISIBLE_DEVICES than it had when the step began."""
    engine = evidence.state.engine
    if engine is None or not evidence.state.usable_devices:
        return False
    before = evidence.kept.setdefault(f"visible devices at {evidence.begun_at}", engine)
    return engine is not before and getattr(before, "cuda_visible_devices") != engine.cuda_visible_devices


def _two_places(evidence: Evidence) -> bool:
    """Two tensors of one shape on two devices."""
    places: dict[tuple[int, ...] | None, tuple[str, ...]] = {}
    tensors = [snapshot.rows[0] for snapshot in objects(evidence) if snapshot.kind == "tensor" and snapshot.rows]
    return any(places.setdefault(row.shape, row.devices) != row.devices for row in tensors)


def _no_leaf(evidence: Evidence) -> bool:
    """What was moved is the result of an operation now."""
    newest = evidence.newest
    if newest is None or not newest.ok or not isinstance(newest.command, Move):
        return False
    rows = [row_of(evidence, target) for target in newest.command.targets]
    return any(row is not None and row.is_leaf is False and row.grad_fn is not None for row in rows)


def _two_tensors(evidence: Evidence) -> bool:
    return sum(isinstance(done.command, NewTensor) and done.ok for done in evidence.done) >= 2
