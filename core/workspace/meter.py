"""Times work on the clock of its device: simulated, or the wall clock. Runs on the jobs thread."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from devexplorer.core.devices.backend import DeviceRegistry


class Timing:
    """A running measurement; a simulated clock counts what the calling thread does, so stop it on the
    same thread."""

    def __init__(self, registry: DeviceRegistry, wall: Callable[[], float], simulated: Sequence[str]) -> None:
        self._registry, self._wall = registry, wall
        self._devices = simulated
        self._clocks = self._read()
        self._started = wall()

    @property
    def simulated(self) -> bool:
        """Whether the seconds are those of a simulated clock."""
        return bool(self._devices)

    def stop(self) -> tuple[float, float]:
        """Seconds on the device's clock, and seconds on the wall; the two are the same thing on real devices."""
        wall = self._wall() - self._started
        if not self._devices:
            return wall, wall
        return self._read() - self._clocks, wall

    def _read(self) -> float:
        return sum(self._registry.backend(device).clock_seconds(device) for device in self._devices)


class Meter:
    """Starts measurements on the devices of a registry."""

    def __init__(self, registry: DeviceRegistry, wall: Callable[[], float]) -> None:
        self._registry, self._wall = registry, wall

    def start(self, destinations: Sequence[str], sources: Iterable[str] = ()) -> Timing:
        """Time work that ends on `destinations`; where none of those is simulated, the clocks of simulated sources
        count."""
        known = {info.id for info in self._registry.infos() if info.simulated}
        devices = sorted(known.intersection(destinations)) or sorted(known.intersection(sources))
        return Timing(self._registry, self._wall, devices)
