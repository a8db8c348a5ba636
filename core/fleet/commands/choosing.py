"""Which machines a command about a fleet means, and waiting until they have said what they have. Main thread."""

from __future__ import annotations

import argparse
import platform
import time
from collections.abc import Sequence
from functools import partial
from pathlib import Path

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.stopping import Stopping
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.fleet.cluster.cluster_fleet import ClusterFleet
from devexplorer.core.fleet.command_line import check_address
from devexplorer.core.fleet.events import (
    CardsListed,
    FleetEvent,
    FleetMachine,
    FleetSource,
    MachineChanged,
    MeasuringSource,
    Readings,
)
from devexplorer.core.fleet.hosts.host_fleet import HostFleet, LocalFleet, host_members
from devexplorer.core.fleet.simulated import MOST_NODES, SimulatedFleet, parse_defect
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.watch.devices import WatchedDevices

# This machine as a fleet of one, read as `devexplorer watch` reads it. Main thread; the readers have threads of their
# own.


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


def chosen(
    arguments: argparse.Namespace, interval_s: float, findings: TerminalFindings, *, measures: bool = False
) -> MeasuringSource | ThisMachine:
    """The source that the options name, not started. Raises `BadInput` with everything that is wrong. `measures`:
    its cards are measured; simulated measurements take no longer than their computation."""
    if arguments.hosts is not None:
        _real(arguments, findings, "hosts")
        members = findings.checked(lambda: host_members(Path(arguments.hosts), arguments.virtual), [])
        findings.demand_none()
        return HostFleet(members)
    if getattr(arguments, "cluster", None) is not None:
        _real(arguments, findings, "cluster")
        findings.parsed(arguments.cluster, check_address, None)
        findings.demand_none()
        return ClusterFleet(arguments.cluster, arguments.virtual)
    defects = [findings.checked(partial(parse_defect, text)) for text in arguments.defect]
    nodes = findings.count(arguments.nodes, "--nodes")
    seed = findings.parsed(arguments.seed, _seed, 0)
    if nodes is not None and nodes > MOST_NODES:
        findings.add(f"--nodes {nodes} is more than {MOST_NODES}, the most that is simulated")
    if arguments.nodes is None:
        if defects:
            findings.add("--defect is for simulated fleets; give --nodes and --virtual as well")
        findings.check_virtual(arguments.virtual)
        findings.demand_none()
        if measures:
            return LocalFleet(arguments.virtual, python=arguments.python)
        return ThisMachine(arguments.virtual, interval_s)
    if arguments.virtual is None:
        findings.add('--nodes needs the cards of a node; give --virtual "8x NVIDIA H100 80GB HBM3", for example')
    profiles = [] if arguments.virtual is None else findings.checked(partial(parse_virtual, arguments.virtual), [])
    findings.demand_none()
    assert nodes is not None
    known = [defect for defect in defects if defect is not None]
    return SimulatedFleet(nodes, profiles, known, interval_s=interval_s, seed=seed, hurries=measures)


def measured(arguments: argparse.Namespace, findings: TerminalFindings) -> MeasuringSource:
    """As `chosen`, for a check; this machine where no other is named."""
    source = chosen(arguments, 1.0, findings, measures=True)
    assert not isinstance(source, ThisMachine)
    return source


def _real(arguments: argparse.Namespace, findings: TerminalFindings, option: str) -> None:
    for other in ("nodes", "defect"):
        if getattr(arguments, other):
            findings.add(f"--{other} is for simulated fleets, --{option} for real machines; give one of them")
    findings.check_virtual(arguments.virtual)


def _seed(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 18:
        raise BadInput(f"--seed '{text}' is not a whole number from 0")
    return int(text)


DRAIN_S = 0.05
FIRST_S = 30.0
"""Machines that have not answered by then are taken as they are."""
REACH_S = 8.0
"""Those that could not be reached once by then are not waited for."""
CLOSE_S = 5.0


def gather(source: FleetSource, cards: FleetTable, stopping: Stopping) -> bool:
    """Wait until every machine has said something or given up; False when that was interrupted."""
    began_s = time.monotonic()
    while not stopping.wait(DRAIN_S):
        cards.apply(source.drain())
        if problem := getattr(source, "problem", ""):
            raise Unavailable(problem)
        waited_s = time.monotonic() - began_s
        without = cards.unreached if waited_s > REACH_S else ()
        if waited_s > FIRST_S or (cards.machines and cards.settled_without(without)):
            return True
    return False
