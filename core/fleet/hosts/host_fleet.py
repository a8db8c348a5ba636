"""A fleet of machines that are each reached over a link, a dozen over ssh for example. Main thread; every link has
threads of its own.

Nothing but the last readings is kept here: a window that shows one of these machines connects to it on its own.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Sequence
from typing import NamedTuple

from devexplorer.core.base import Clock
from devexplorer.core.fleet.events import FleetEvent, FleetMachine, MachineChanged, MeasureOrder
from devexplorer.core.fleet.hosts.joint_groups import JointGroups, meeting
from devexplorer.core.fleet.hosts.joint_start import JointStart
from devexplorer.core.fleet.hosts.session_member import SessionMember
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.machines.window.link import Link, Route
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.records import AddVirtual, Event, JobEnded


class Member(NamedTuple):
    """One machine and the way to it."""

    name: str
    route: Route
    rack: str = ""
    address: Callable[[], str] = lambda: ""
    """As other machines reach it; empty: its name. Asked only where machines have to meet."""
    virtual: str | None = None
    """Virtual GPUs that are added there, where there are none."""


class HostFleet:
    """`drain` beats every link."""

    def __init__(self, members: Sequence[Member], *, clock: Clock = time.time) -> None:
        self._clock = clock
        self._hosts: dict[str, _Host] = {}
        self._leaving: list[RemoteSession] = []
        self._events: deque[FleetEvent] = deque()
        self._joint = JointGroups()
        self._start_together = JointStart(clock=clock)
        self._started = False
        self.on_other: Callable[[str, Event], None] = lambda machine, event: None
        """Told of what happens on a machine that is no event of a fleet."""
        for member in members:
            self.add(member)

    def start(self) -> None:
        """Begin to connect to all of them."""
        self._started = True
        for host in self._hosts.values():
            host.start()

    def add(self, member: Member) -> None:
        """Another machine."""
        host = self._hosts[member.name] = _Host(member, self._clock)

        def other(event: Event) -> None:
            host.take(event)
            self.on_other(member.name, event)

        host.member.on_other = other
        if self._started:
            host.start()

    def lose(self, name: str, why: str) -> None:
        """This machine will not come back."""
        host = self._hosts.pop(name)
        self._events += self._joint.passed(name, host.drain())
        self._joint.lose(name)
        self._events.append(MachineChanged(machine=host.lost(why)))
        host.session.close(0.0)
        self._leaving.append(host.session)

    def session(self, name: str) -> RemoteSession | None:
        """The session of a machine."""
        host = self._hosts.get(name)
        return None if host is None else host.session

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call."""
        for name, host in self._hosts.items():
            self._events += self._joint.passed(name, host.drain())
            if host.is_lost:
                self._joint.lose(name)
        for name, group in self._joint.to_stop():
            if name in self._hosts:
                self._hosts[name].member.stop(group)
        self._start_together.beat([host.member for host in self._hosts.values() if not host.is_lost])
        return [self._events.popleft() for _ in range(min(len(self._events), MOST_EVENTS))]

    def prepare(self, order: MeasureOrder) -> None:
        """Ask for the addresses of machines that have to meet, which are kept: ssh is a process each."""
        for name in meeting(order):
            if (host := self._hosts.get(name)) is not None:
                host.address()

    def measure(self, order: MeasureOrder) -> None:
        """Measure on the cards of these machines, each by its own engine."""
        shares, failed = self._joint.share(order, {name: host.address for name, host in self._hosts.items()})
        self._events += failed
        for machine, groups in shares.items():
            self._hosts[machine].member.measure(order, groups)

    def cancel(self) -> None:
        """End what is being measured."""
        for host in self._hosts.values():
            host.member.cancel()

    def close(self, deadline_s: float = 5.0) -> bool:
        """Disconnect; the hosts end by themselves."""
        until = time.monotonic() + deadline_s
        sessions = [*(host.session for host in self._hosts.values()), *self._leaving]
        for session in sessions:
            session.close(0.0)
        ended = [session.close(max(until - time.monotonic(), 0.0)) for session in sessions]
        return all(ended)


class _Host:
    """One machine: its session, and what was last said of its link."""

    def __init__(self, member: Member, clock: Clock) -> None:
        self.session = RemoteSession(member.name, member.route, clock=clock)
        self.member = SessionMember(
            member.name,
            self.session,
        )
        self._rack, self._address, self._virtual = member.rack, member.address, member.virtual
        self._adding = 0
        """The request that adds virtual GPUs."""
        self._taking = False
        """Whether control was asked for, since the window that has it is away."""
        self._told: FleetMachine | None = None

    def start(self) -> None:
        """Begin to connect."""
        self.session.start()
        self.session.set_hidden(True)  # readings once a second

    def take(self, event: Event) -> None:
        """What happens there and is no reading."""
        if isinstance(event, JobEnded) and event.request == self._adding and not event.ok:
            self._adding = 0

    @property
    def address(self) -> Callable[[], str]:
        """As other machines reach it."""
        return lambda: self._address() or self.member.name

    @property
    def is_lost(self) -> bool:
        """Whether no connection is tried any more."""
        return self.session.link.state == "lost"

    def lost(self, why: str) -> FleetMachine:
        """It, when it will not come back."""
        return FleetMachine(name=self.member.name, state="lost", problem=why, rack=self._rack)

    def drain(self) -> list[FleetEvent]:
        """What is new on this machine."""
        self.session.beat()
        news = self.member.drain()
        if self._virtual is not None and self.member.knows_devices and not self.session.why_not():
            if not self.member.has_virtual:
                self._adding = self.session.send(AddVirtual(spec=self._virtual))
            self._virtual = None
        link = self.session.link
        if link.holder_away and not self._taking:  # as a window gets it that comes after that one has left
            self.session.take_over()
        self._taking = link.holder_away
        machine = self._machine(link)
        if machine == self._told:
            return news
        self._told = machine
        return [MachineChanged(machine=machine), *news]

    def _machine(self, link: Link) -> FleetMachine:
        problem = "" if link.live else link.reason
        adding = self._adding != 0 and not self.member.has_virtual
        asking = not self.session.knows_control or self._taking
        begins = link.state == "connected" and (asking or adding or not self.member.knows_devices)  # its engine starts
        state = "connecting" if begins else link.state
        return FleetMachine(name=self.member.name, state=state, problem=problem, rack=self._rack)
