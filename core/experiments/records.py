"""Commands of the small experiments and what answers them, with the size at which a device overtakes the CPU. No torch;
any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from devexplorer.core.records.base import BaseCommand, BaseEvent, Record


class Ask(BaseCommand, tag="Ask"):
    """Ask a tensor or model one of Python's questions and explain what it answers; changes nothing."""

    target: str
    question: str
    """`type`, `numpy`, `cpu-numpy`, `item`, `tolist`, `is-leaf`, `device`."""


class Replicate(BaseCommand, tag="Replicate"):
    """Put a copy of a model on each of several devices, split a batch over them, run, and gather: what DataParallel
    does."""

    target: str
    devices: tuple[str, ...]
    input: str | None = None


class TimeWork(BaseCommand, tag="TimeWork"):
    """Time products on a device without synchronising, and with."""

    device: str
    size: int = 1000
    iterations: int = 10


class WorkTimed(BaseEvent, tag="WorkTimed"):
    """What a `TimeWork` measured."""

    device: str
    size: int
    iterations: int
    launched_seconds: float
    """Until the last call had returned: what a timer shows without synchronising."""
    finished_seconds: float
    """Until the device had done all of it."""
    simulated: bool


class Crossover(BaseCommand, tag="Crossover"):
    """Run one product over growing sizes on the CPU and on a device: where does the device overtake? Answered with
    `CrossoverMeasured`."""

    device: str
    sizes: tuple[int, ...] = (16, 32, 64, 128, 256, 512, 1024)


class CrossoverPoint(Record):
    """One size: medians."""

    size: int
    cpu_seconds: float
    device_seconds: float
    """The product alone, operands there already."""
    device_with_copies_seconds: float
    """With the copy of both operands there and of the result back."""


class CrossoverMeasured(BaseEvent, tag="CrossoverMeasured"):
    """What was asked with `Crossover`; the device's seconds are simulated where `simulated` says so, the CPU's never
    are."""

    device: str
    simulated: bool
    points: tuple[CrossoverPoint, ...]


DeviceSeconds = Callable[[CrossoverPoint], float]


def alone(point: CrossoverPoint) -> float:
    """Seconds of the product with its operands there already."""
    return point.device_seconds


def with_copies(point: CrossoverPoint) -> float:
    """Seconds of the product with the copy of both operands there and of the result back."""
    return point.device_with_copies_seconds


class Overtaking(NamedTuple):
    """From which measured size on the device is faster."""

    size: int
    """The smallest one from which on it is faster at every size that was measured."""
    before: int | None
    """The measured size below it, at which the CPU is at least as fast; None: there is none."""


def overtaking(points: Sequence[CrossoverPoint], seconds: DeviceSeconds) -> Overtaking | None:
    """Where the device overtakes for good within these sizes; None: it is not faster at the largest one."""
    ordered = sorted(points, key=lambda point: point.size)
    faster = [seconds(point) < point.cpu_seconds for point in ordered]
    if not faster or not faster[-1]:
        return None
    first = len(faster) - 1
    while first and faster[first - 1]:
        first -= 1
    return Overtaking(ordered[first].size, ordered[first - 1].size if first else None)
