"""Where a device overtakes the CPU, from measured sizes. Pure functions without torch: the engine and the window use
them, any thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from devexplorer.core.experiments.records import CrossoverPoint

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
