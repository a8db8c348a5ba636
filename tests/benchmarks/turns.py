"""Alternates several methods in one run, so that other load on the machine affects all of them equally."""

from __future__ import annotations

import os
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, TypeVar

Result = TypeVar("Result")
Work = Callable[[], object]
FEWEST = 3
"""Minimum number of rounds, in addition to the warm-up."""


class Times(NamedTuple):
    """Seconds of each round of one method."""

    wall: list[float]
    cpu: list[float]
    """Of the calling thread alone: without waiting for a core, and without torch's other threads."""

    def of(self, work: Callable[[], Result]) -> Result:
        """Run this and record its times."""
        wall, cpu = time.perf_counter(), time.thread_time()
        result = work()
        cpu, wall = time.thread_time() - cpu, time.perf_counter() - wall
        self.wall.append(wall)
        self.cpu.append(cpu)
        return result


def take_turns(ways: Mapping[str, tuple[Work, Work]], rounds: int, seconds: float) -> dict[str, Times]:
    """Each method is `(prepare, work)`, of which the work is timed; every other round goes backwards, so that the order
    varies.

    No round begins after `seconds`, so that this also ends on a busy machine; but at least `FEWEST` are run."""
    found = {name: Times([], []) for name in ways}
    started = time.perf_counter()
    for round_ in range(rounds + 1):
        if round_ > FEWEST and time.perf_counter() - started > seconds:
            break
        for name in ways if round_ % 2 else reversed(ways):
            prepare, work = ways[name]
            prepare()
            found[name].of(work)
    return {name: Times(times.wall[1:], times.cpu[1:]) for name, times in found.items()}  # the first round warms up


def nothing() -> None:
    """The preparation of work that needs none."""


def ratio(ours: Sequence[float], theirs: Sequence[float]) -> float:
    """Median of the ratios of the same rounds."""
    return statistics.median(a / b for a, b in zip(ours, theirs, strict=True))


def load() -> str:
    """The machine's load of the last minute, if available."""
    cores = os.cpu_count()
    return f"load {os.getloadavg()[0]:.1f} on {cores} cores" if hasattr(os, "getloadavg") else f"{cores} cores"
