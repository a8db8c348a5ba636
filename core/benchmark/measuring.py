"""What runs of copies, jobs and model steps have in common: the timer of a device, the length of a block, the samples that are kept.

No thread of its own.
"""

from __future__ import annotations

from collections.abc import Iterable

from devexplorer.core.benchmark.timing import Block, BlockTimer, CpuTimer, CudaTimer, Operation, SynchronisedTimer
from devexplorer.core.devices.backend import Fleet

BLOCK_SECONDS = 0.05
LONGEST_BLOCK = 10_000
"""Iterations."""
MOST_SAMPLES = 200_000
"""Kept for the percentiles."""


class SimulatedTimer:
    """The calling thread's time on a virtual GPU's simulated clock, as fast as the CPU stands in: nothing waits for the wall."""

    simulated = True

    def __init__(self, device: str, fleet: Fleet) -> None:
        self._device, self._backend = device, fleet.backend(device)

    def block(self, operation: Operation, iterations: int) -> Block:
        """See `BlockTimer`."""
        samples = []
        for _ in range(iterations):
            before = self._backend.clock_seconds(self._device)
            operation()
            samples.append(self._backend.clock_seconds(self._device) - before)
        return Block(iterations, sum(samples), tuple(samples))


def timer_for(device: str, fleet: Fleet) -> BlockTimer:
    """How work on this device is timed."""
    kind = fleet.info(device).kind
    if kind == "cpu":
        return CpuTimer()
    if kind == "virtual":
        return SimulatedTimer(device, fleet)
    if kind == "cuda":
        return CudaTimer(device)
    return SynchronisedTimer(lambda: fleet.backend(device).synchronize(device))


def block_length(each: float) -> int:
    """Iterations of `each` seconds that fill a block: 1 at least."""
    return min(max(int(BLOCK_SECONDS / each), 1), LONGEST_BLOCK) if each > 0 else LONGEST_BLOCK


class Samples:
    """Figures in the order in which they were measured. When there are too many, every second one is kept, then every fourth, …"""

    def __init__(self, most: int = MOST_SAMPLES) -> None:
        self.kept: list[float] = []
        self._most = most
        self._stride = 1
        self._seen = 0

    def add(self, samples: Iterable[float]) -> None:
        """Remember samples."""
        for sample in samples:
            if self._seen % self._stride == 0:
                self.kept.append(sample)
            self._seen += 1
            if len(self.kept) > self._most:
                del self.kept[1::2]
                self._stride *= 2
