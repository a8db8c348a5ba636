"""A fleet of machines that are each reached over a link, a dozen over ssh for example. Main thread; every link has
threads of its own.

Nothing but the last readings is kept here: a window that shows one of these machines connects to it on its own.
"""

from __future__ import annotations

import time
import uuid
from collections import deque
from collections.abc import Sequence
from typing import NamedTuple

from devexplorer.core.base import Clock
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.machines.link import Link, Route
from devexplorer.core.machines.remote_session import RemoteSession
from devexplorer.core.records import DeviceSample
from devexplorer.core.records.fleet_events import CardsListed, FleetEvent, FleetMachine, MachineChanged, Readings


class Member(NamedTuple):
    """One machine and the way to it."""

    name: str
    route: Route
    rack: str = ""


class HostFleet:
    """`drain` beats every link."""

    def __init__(self, members: Sequence[Member], *, clock: Clock = time.time) -> None:
        client = uuid.uuid4().hex
        self._hosts = [_Host(member, client, clock) for member in members]
        self._events: deque[FleetEvent] = deque()

    def start(self) -> None:
        """Begin to connect to all of them."""
        for host in self._hosts:
            host.session.start()
            host.session.set_hidden(True)  # readings once a second

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call."""
        for host in self._hosts:
            self._events += host.drain()
        return [self._events.popleft() for _ in range(min(len(self._events), MOST_EVENTS))]

    def close(self, deadline_s: float = 5.0) -> bool:
        """Disconnect; the hosts end by themselves."""
        until = time.monotonic() + deadline_s
        for host in self._hosts:
            host.session.close(0.0)
        ended = [host.session.close(max(until - time.monotonic(), 0.0)) for host in self._hosts]
        return all(ended)


class _Host:
    """One member: its session, and what was last said of its link."""

    def __init__(self, member: Member, client: str, clock: Clock) -> None:
        self.session = RemoteSession(member.name, member.route, client, clock=clock)
        self._member = member
        self._told: FleetMachine | None = None

    def drain(self) -> list[FleetEvent]:
        """What is new on this machine."""
        name, events = self._member.name, list[FleetEvent]()
        self.session.beat()
        news = self.session.drain()
        machine = self._machine(self.session.link)
        if machine != self._told:
            self._told = machine
            events.append(MachineChanged(machine=machine))
        samples: dict[str, DeviceSample] = {}
        if news.state is not None:  # of the snapshot with which a connection begins
            devices = news.state.devices.values()
            infos = tuple(device.info for device in devices)
            events.append(CardsListed(machine=name, devices=infos, problems=news.state.problems))
            samples = {device.info.id: device.sample for device in devices if device.sample is not None}
        if news.catalog is not None:
            events.append(CardsListed(machine=name, devices=news.catalog.devices, problems=news.catalog.problems))
        samples |= {event.device: event for event in news.events if isinstance(event, DeviceSample)}
        if samples:
            events.append(Readings(machine=name, samples=tuple(samples.values())))
        return events

    def _machine(self, link: Link) -> FleetMachine:
        problem = "" if link.live else link.reason
        return FleetMachine(name=self._member.name, state=link.state, problem=problem, rack=self._member.rack)
