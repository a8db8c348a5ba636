"""The machines that a window has anyway, as a source of a fleet: what is known of them is read once a second, and no
second connection is made. Main thread only."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from devexplorer.core.base import Clock
from devexplorer.core.machines.link import Link
from devexplorer.core.records import DeviceSample
from devexplorer.core.records.fleet_events import (
    CardsListed,
    FleetEvent,
    FleetMachine,
    MachineChanged,
    MachineLeft,
    Readings,
)
from devexplorer.core.session.state import State

INTERVAL_S = 1.0


class Known(NamedTuple):
    """One machine of the window."""

    name: str
    state: State
    """What is known of it, on show or not."""
    link: Link | None
    """None: it is this one."""


class WindowMachines:
    """`machines` says which there are now."""

    def __init__(self, machines: Callable[[], Iterable[Known]], *, monotonic: Clock = time.monotonic) -> None:
        self._machines, self._monotonic = machines, monotonic
        self._due_s = float("-inf")
        self._told: dict[str, FleetMachine] = {}
        self._listed: dict[str, CardsListed] = {}
        self._read: dict[tuple[str, str], DeviceSample] = {}

    def start(self) -> None:
        """Nothing has to begin."""

    def drain(self) -> Sequence[FleetEvent]:
        """What has changed since the last look, when another one is due."""
        if self._monotonic() < self._due_s:
            return ()
        self._due_s = self._monotonic() + INTERVAL_S
        events: list[FleetEvent] = []
        known = list(self._machines())
        for name in self._told.keys() - {one.name for one in known}:
            del self._told[name]
            self._listed.pop(name, None)
            events.append(MachineLeft(name=name))
        for one in known:
            events += self._look(one)
        return events

    def close(self, deadline_s: float = 0.0) -> bool:
        """The window's machines go on."""
        return True

    def _look(self, one: Known) -> list[FleetEvent]:
        events: list[FleetEvent] = []
        infos = tuple(device.info for device in one.state.devices.values())
        cards = [info for info in infos if info.kind != "cpu"]
        problem = "" if one.link is None or one.link.live else one.link.reason
        machine = FleetMachine(
            name=one.name,
            state="connected" if one.link is None else one.link.state,
            problem=problem,
            simulated=bool(cards) and all(info.simulated for info in cards),
        )
        if machine != self._told.get(one.name):
            self._told[one.name] = machine
            events.append(MachineChanged(machine=machine))
        listed = CardsListed(machine=one.name, devices=infos, problems=one.state.problems)
        if listed != self._listed.get(one.name):
            self._listed[one.name] = listed
            events.append(listed)
        samples = tuple(
            sample
            for device in one.state.devices.values()
            if (sample := device.sample) is not None and sample is not self._read.get((one.name, device.info.id))
        )
        self._read |= {(one.name, sample.device): sample for sample in samples}
        if samples:
            events.append(Readings(machine=one.name, samples=samples))
        return events
