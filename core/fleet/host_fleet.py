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
from devexplorer.core.fleet.session_member import SessionMember
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.machines.link import Link, Route
from devexplorer.core.machines.remote_session import RemoteSession
from devexplorer.core.records.fleet_events import (
    FleetEvent,
    FleetMachine,
    GroupEnded,
    MachineChanged,
    MeasureOrder,
)


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

    def measure(self, order: MeasureOrder) -> None:
        """Measure on the cards of these machines, each by its own engine."""
        hosts = {host.member.name: host for host in self._hosts}
        shares: dict[str, dict[int, tuple[str, ...]]] = {}
        for group, keys in enumerate(order.groups):
            machines = {machine for machine, _ in keys}
            if len(machines) == 1 and machines <= hosts.keys():
                shares.setdefault(keys[0][0], {})[group] = tuple(device for _, device in keys)
            else:
                failure = "cards of several machines are not measured together over ssh yet"
                self._events.append(GroupEnded(number=order.number, group=group, failure=failure))
        for machine, groups in shares.items():
            hosts[machine].member.measure(order, groups)

    def cancel(self) -> None:
        """End what is being measured."""
        for host in self._hosts:
            host.member.cancel()

    def close(self, deadline_s: float = 5.0) -> bool:
        """Disconnect; the hosts end by themselves."""
        until = time.monotonic() + deadline_s
        for host in self._hosts:
            host.session.close(0.0)
        ended = [host.session.close(max(until - time.monotonic(), 0.0)) for host in self._hosts]
        return all(ended)


class _Host:
    """One machine: its session, and what was last said of its link."""

    def __init__(self, member: Member, client: str, clock: Clock) -> None:
        self.session = RemoteSession(member.name, member.route, client, clock=clock)
        self.member = SessionMember(member.name, self.session)
        self._rack = member.rack
        self._told: FleetMachine | None = None

    def drain(self) -> list[FleetEvent]:
        """What is new on this machine."""
        self.session.beat()
        news = self.member.drain()
        machine = self._machine(self.session.link)
        if machine == self._told:
            return news
        self._told = machine
        return [MachineChanged(machine=machine), *news]

    def _machine(self, link: Link) -> FleetMachine:
        problem = "" if link.live else link.reason
        return FleetMachine(name=self.member.name, state=link.state, problem=problem, rack=self._rack)
