"""One device as the window knows it: what it is, what was read of it last, its curves. Main thread; no Qt, no torch."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

from devexplorer.core.records import AllocatorSample, DeviceDetails, DeviceInfo, DeviceSample
from devexplorer.core.telemetry.history import THROUGHPUT, History
from devexplorer.core.telemetry.memory_breakdown import ContextEstimator, MemoryParts, memory_parts


@dataclass
class Device:
    """One device with its latest readings and its histories."""

    info: DeviceInfo
    colour: int
    """Index into the palette; the CPU has -1. Stays with the device for the session."""
    sample: DeviceSample | None = None
    allocator: AllocatorSample | None = None
    details: DeviceDetails | None = None
    engine_bytes: int | None = None
    """Memory of the engine process as the driver reports it, if it does."""
    context: ContextEstimator = field(default_factory=ContextEstimator)
    """Estimates the share of CUDA context and libraries where the allocator does not report it."""
    history: History = field(default_factory=History)
    """Everything of `core.telemetry.history.DEVICE_METRICS`, a row per `DeviceSample`."""
    throughput: History = field(default_factory=lambda: History((THROUGHPUT,), gap_s=math.inf))
    """A row per block of a benchmark, a gap after each run."""

    @property
    def used_bytes(self) -> int | None:
        """Memory in use by all processes, from the most recent source."""
        return self.sample.memory_used_bytes if self.sample is not None else self.info.memory_used_bytes

    @property
    def total_bytes(self) -> int | None:
        """Capacity."""
        if self.sample is not None and self.sample.memory_total_bytes is not None:
            return self.sample.memory_total_bytes
        return self.info.memory_total_bytes

    @property
    def parts(self) -> MemoryParts:
        """Breakdown of the used memory, as far as it was measured."""
        driver = self.sample.memory_reserved_bytes if self.sample is not None else None
        return memory_parts(self.used_bytes, self.total_bytes, self.allocator, self.context.bytes, driver)
