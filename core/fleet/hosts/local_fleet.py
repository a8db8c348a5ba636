"""This machine as a fleet of one whose cards are measured, through a session in this process; the engine is a process
of its own. Main thread."""

from __future__ import annotations

import platform
from collections.abc import Sequence

from devexplorer.core.fleet.events import FleetEvent, FleetMachine, MachineChanged, MachineState, MeasureOrder
from devexplorer.core.fleet.hosts.joint_start import JointStart
from devexplorer.core.fleet.hosts.measurements import Share
from devexplorer.core.fleet.hosts.session_member import SessionMember
from devexplorer.core.records import EngineLost, Event
from devexplorer.core.session.session import Session

INTERVAL_S = 1.0
"""Between readings."""


class LocalFleet:
    """Its name is that of the machine."""

    def __init__(self, virtual_spec: str | None = None, *, python: str | None = None) -> None:
        self._session = Session(virtual_spec=virtual_spec, interval_s=INTERVAL_S, python=python)
        self._member = SessionMember(platform.node() or "this machine", self._session)
        self._member.on_other = self._other
        self._joint_start = JointStart()
        self._told: FleetMachine | None = None
        self._problem = ""
        """Why the engine is not there any more."""

    def start(self) -> None:
        """Start sampler and engine."""
        self._session.start()

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call."""
        self._session.beat()
        news = self._member.drain()
        self._joint_start.beat([self._member])
        known: MachineState = "connected" if self._member.knows_devices else "connecting"
        machine = FleetMachine(name=self._member.name, state="lost" if self._problem else known, problem=self._problem)
        if machine == self._told:
            return news
        self._told = machine
        return [MachineChanged(machine=machine), *news]

    def prepare(self, order: MeasureOrder) -> None:
        """Nothing has to be found out."""

    def measure(self, order: MeasureOrder) -> None:
        """Measure on cards of this machine."""
        devices = {group: tuple(device for _, device in keys) for group, keys in enumerate(order.groups)}
        self._member.measure(order, {group: Share(names) for group, names in devices.items()})

    def cancel(self) -> None:
        """End what is being measured."""
        self._member.cancel()

    def close(self, deadline_s: float = 5.0) -> bool:
        """End engine and sampler."""
        return self._session.close(deadline_s)

    def _other(self, event: Event) -> None:
        if isinstance(event, EngineLost) and not event.will_restart:
            self._problem = event.reason
