"""Times work on the clock of its device: simulated, or the wall clock. Runs on the jobs thread."""

from __future__ import annotations

import time
from collections.abc import Iterable

from devexplorer.core.base import Clock
from devexplorer.core.devices.backend import DeviceRegistry


class Timing:
    """A running measurement of work that ends on `destinations`; where none of those is simulated, the clocks of
    simulated sources count.

    It starts once the devices have finished pending work, which is no part of it, and stops once the work has ended. A
    simulated clock counts what the calling thread does, so stop it on the same thread.
    """

    def __init__(
        self,
        registry: DeviceRegistry,
        destinations: Iterable[str],
        sources: Iterable[str] = (),
        wall: Clock = time.perf_counter,
    ) -> None:
        self._registry, self._wall = registry, wall
        ends, starts = set(destinations), set(sources)
        infos = [info for info in registry.infos() if info.id in ends | starts]
        usable = sorted(info.id for info in infos if info.usable)  # a source may be gone by now
        self._ends = [device for device in usable if device in ends]
        simulated = {info.id for info in infos if info.simulated}
        self._simulated = sorted(simulated & ends) or sorted(simulated & starts)
        self._synchronize(usable)
        self._clocks = self._read()
        self._started = wall()

    @property
    def simulated(self) -> bool:
        """Whether the seconds are those of a simulated clock."""
        return bool(self._simulated)

    def stop(self) -> tuple[float, float]:
        """Seconds on the device's clock, and seconds on the wall; the two are the same thing on real devices."""
        self._synchronize(self._ends)
        wall = self._wall() - self._started
        return self._read() - self._clocks if self._simulated else wall, wall

    def _synchronize(self, devices: Iterable[str]) -> None:
        for device in devices:
            self._registry.backend(device).synchronize(device)

    def _read(self) -> float:
        return sum(self._registry.backend(device).clock_seconds(device) for device in self._simulated)
