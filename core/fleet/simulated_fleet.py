"""A simulated fleet: any number of machines with virtual GPUs, for learning, demonstrations and tests. Its readings are
made on the thread `simulated-fleet`; everything is marked simulated."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence

from devexplorer.core.base import Clock
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.fleet.defects import Defect
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.fleet.virtual_cards import VirtualCards
from devexplorer.core.records import DeviceInfo, Problem
from devexplorer.core.records.fleet_events import CardsListed, FleetEvent, FleetMachine, MachineChanged, Readings

MOST_NODES = 4096
"""More is a slip of the pen."""
NODES_A_RACK = 8
PARTS = 20
"""The nodes report one part after the other: all at once would hold up the window."""
MOST_WAITING = 4
"""Readings of each machine that are kept for who drains."""


def card_info(index: int, profile: Profile) -> DeviceInfo:
    """What is known of a virtual card of a node."""
    return DeviceInfo(
        id=f"vgpu:{index}",
        kind="virtual",
        name=profile.name,
        usable=True,
        memory_total_bytes=profile.memory_bytes,
        compute_capability=profile.compute_capability,
        sm_count=profile.sm_count,
        datasheet_tflops=dict(profile.tflops),
        memory_gb_s=profile.memory_gb_s,
        simulated=True,
    )


class SimulatedFleet:
    """Machines `node0`, `node1`, … in racks of eight."""

    def __init__(
        self,
        nodes: int,
        profiles: Sequence[Profile],
        defects: Sequence[Defect] = (),
        *,
        interval_s: float = 1.0,
        seed: int = 0,
        clock: Clock = time.time,
    ) -> None:
        self.cards = VirtualCards(nodes, profiles, defects, seed)
        self.machines = tuple(f"node{index}" for index in range(nodes))
        self.devices = tuple(card_info(index, profile) for index, profile in enumerate(profiles))
        self._interval_s, self._clock = interval_s, clock
        self._events: deque[FleetEvent] = deque()
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulated-fleet", daemon=True)

    def start(self) -> None:
        """The machines join at once; readings follow."""
        lost = self.cards.lost
        for index, machine in enumerate(self.machines):
            rack = f"rack{index // NODES_A_RACK}"
            joined = FleetMachine(name=machine, state="connected", rack=rack, simulated=True)
            problems = tuple(
                Problem(device=info.id, reason="the card does not answer (a simulated defect)")
                for info, gone in zip(self.devices, lost[index], strict=True)
                if gone
            )
            listed = CardsListed(machine=machine, devices=self.devices, problems=problems)
            self._events += (MachineChanged(machine=joined), listed)
        self._thread.start()

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call."""
        return [self._events.popleft() for _ in range(min(len(self._events), MOST_EVENTS))]

    def close(self, deadline_s: float = 1.0) -> bool:
        """End it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _run(self) -> None:
        names = [info.id for info in self.devices]
        due = time.monotonic()
        for turn in itertools.count():
            if self._stop.wait(max(due - time.monotonic(), 0.0)):
                return
            due += self._interval_s / PARTS
            part = slice(turn % PARTS, None, PARTS)
            nodes = self.cards.samples(self._clock(), names, part)
            if len(self._events) < MOST_WAITING * len(self.machines):  # else nobody takes them
                self._events += [
                    Readings(machine=machine, samples=samples)
                    for machine, samples in zip(self.machines[part], nodes, strict=True)
                ]
