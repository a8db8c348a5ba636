"""This machine as a fleet of one, read as `devexplorer watch` reads it. Main thread; the readers have threads of their
own."""

from __future__ import annotations

import platform
import time
from collections.abc import Sequence

from devexplorer.core.cli.watch.devices import WatchedDevices
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.fleet.events import CardsListed, FleetEvent, FleetMachine, MachineChanged, Readings


class ThisMachine:
    """Its name is that of the machine."""

    def __init__(self, virtual_spec: str | None, interval_s: float) -> None:
        self._devices = WatchedDevices(virtual_spec, interval_s, Nvml())
        self._interval_s, self._due_s = interval_s, 0.0
        self._name = platform.node() or "this machine"
        self._listed: CardsListed | None = None

    def start(self) -> None:
        """Begin to read."""
        self._devices.__enter__()

    def drain(self) -> Sequence[FleetEvent]:
        """A reading of each device, when one is due."""
        if time.monotonic() < self._due_s:
            return ()
        events: list[FleetEvent] = []
        if self._listed is None:
            events.append(MachineChanged(machine=FleetMachine(name=self._name, state="connected")))
        readings, _ = self._devices.read()
        self._due_s = time.monotonic() + self._interval_s
        listed = CardsListed(machine=self._name, devices=self._devices.infos, problems=self._devices.problems)
        if listed != self._listed:
            self._listed = listed
            events.append(listed)
        events.append(Readings(machine=self._name, samples=tuple(reading.sample for reading in readings)))
        return events

    def close(self, deadline_s: float = 1.0) -> bool:
        """End the readers."""
        self._devices.__exit__()
        return True
