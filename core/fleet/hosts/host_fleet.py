"""Fleets of machines that are each reached over a link, the hosts of a list file over ssh for example, and this machine
as a fleet of one; what becomes of groups whose cards are of several machines. Main thread; every link has threads of
its own.

Nothing but the last readings is kept here: a window that shows one of these machines connects to it on its own.
"""

from __future__ import annotations

import platform
import random
import time
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple

from devexplorer.core.allreduce.kind import Rendezvous
from devexplorer.core.base import BadInput, Clock, printable
from devexplorer.core.fleet.events import (
    MOST_EVENTS,
    BlocksMeasured,
    CardKey,
    FleetEvent,
    FleetMachine,
    GroupEnded,
    GroupStarted,
    MachineChanged,
    MachineState,
    MeasureOrder,
)
from devexplorer.core.fleet.hosts.session_member import JointStart, SessionMember, Share
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.machines.ssh.connection import Connection
from devexplorer.core.machines.ssh.hosts import address, checked
from devexplorer.core.machines.ssh.records import Prompt, Report
from devexplorer.core.machines.window.link import Link, Route
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.machines.window.routes import SshRoute
from devexplorer.core.records import AddVirtual, EngineLost, Event, JobEnded
from devexplorer.core.session.session import Session

PORTS = range(20_000, 32_000)
"""One of them is where ranks of several machines meet: above those of services, below those that systems give away."""


class _Joint:
    """A group of several machines."""

    def __init__(self, machines: Sequence[str]) -> None:
        self.machines = machines
        """The first has rank 0."""
        self.ended: dict[str, GroupEnded] = {}
        self.failure = ""
        """The first that was heard of: others follow from it."""


class JointGroups:
    """`share` an order, then let the events of each machine pass."""

    def __init__(self) -> None:
        self._number = 0
        self._joint: dict[int, _Joint] = {}
        self._stop: list[tuple[str, int]] = []

    def share(
        self,
        order: MeasureOrder,
        addresses: Mapping[str, Callable[[], str]],
        why_not: Callable[[str], str] = lambda machine: f"{machine} is not there",
    ) -> tuple[dict[str, dict[int, Share]], list[GroupEnded]]:
        """What each machine measures, by group; and the groups that cannot be. `addresses`: of the machines that are
        there, as others reach them. `why_not`: why another one takes no part."""
        self._number, self._joint, self._stop = order.number, {}, []
        shares: dict[str, dict[int, Share]] = {}
        failed: list[GroupEnded] = []
        for group, keys in enumerate(order.groups):
            devices = _by_machine(keys)
            if missing := [machine for machine in devices if machine not in addresses]:
                failed.append(GroupEnded(number=order.number, group=group, failure=why_not(missing[0])))
            elif len(devices) == 1:
                ((machine, own),) = devices.items()
                shares.setdefault(machine, {})[group] = Share(own)
            elif order.kind is not MeasuredKind.ALLREDUCE:
                failure = f"{order.kind.value} is not measured between machines"
                failed.append(GroupEnded(number=order.number, group=group, failure=failure))
            else:
                self._joint[group] = _Joint(tuple(devices))
                first, port = 0, random.choice(PORTS)
                address = addresses[next(iter(devices))]()
                for machine, own in devices.items():
                    meeting = Rendezvous(address=address, port=port, world_size=len(keys), first_rank=first)
                    shares.setdefault(machine, {})[group] = Share(own, meeting)
                    first += len(own)
        return shares, failed

    def passed(self, machine: str, events: Iterable[FleetEvent]) -> list[FleetEvent]:
        """The events of a machine; those of groups of several machines once, and their end when all have ended."""
        passed: list[FleetEvent] = []
        for event in events:
            joint = self._joint_of(event)
            if joint is None or machine not in joint.machines:
                passed.append(event)
            elif isinstance(event, GroupEnded):
                passed += self._ended(joint, machine, event)
            elif machine == joint.machines[0]:  # the seconds of a block are those of the slowest rank of all machines
                passed.append(event)
        return passed

    def lose(self, machine: str) -> None:
        """This machine says nothing more: what it took part in cannot go on. Who listens knows that it is lost."""
        for group, joint in self._joint.items():
            if machine in joint.machines and machine not in joint.ended:
                self._ended(joint, machine, GroupEnded(number=self._number, group=group, failure="it was lost"))

    def to_stop(self) -> Sequence[tuple[str, int]]:
        """Machines and groups that have failed elsewhere, since the last call."""
        stop, self._stop = self._stop, []
        return stop

    def _joint_of(self, event: FleetEvent) -> _Joint | None:
        if isinstance(event, GroupStarted | BlocksMeasured | GroupEnded) and event.number == self._number:
            return self._joint.get(event.group)
        return None

    def _ended(self, joint: _Joint, machine: str, ended: GroupEnded) -> list[GroupEnded]:
        joint.ended[machine] = ended
        left = [other for other in joint.machines if other not in joint.ended]
        if ended.failure and not joint.failure:
            joint.failure = f"{machine}: {ended.failure}"
            self._stop += [(other, ended.group) for other in left]
        if left:
            return []
        verified = [part.verified for part in joint.ended.values() if part.verified is not None]
        return [
            GroupEnded(
                number=ended.number,
                group=ended.group,
                failure=joint.failure,
                verified=all(verified) if verified else None,
            )
        ]


def meeting(order: MeasureOrder) -> list[str]:
    """The machines whose ranks have to meet those of others, each once."""
    groups = [_by_machine(keys) for keys in order.groups]
    return list(dict.fromkeys(name for group in groups if len(group) > 1 for name in group))


def _by_machine(keys: Sequence[CardKey]) -> dict[str, tuple[str, ...]]:
    devices: dict[str, tuple[str, ...]] = {}
    for machine, device in keys:
        devices[machine] = (*devices.get(machine, ()), device)
    return devices


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
        self.member = SessionMember(member.name, self.session)
        self.member.on_other = self._take
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

    def _take(self, event: Event) -> None:
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


# The list of the hosts of a fleet, as a small text file: a host a line, as ssh takes it, with `name=`, `rack=` and
# `python=` behind it where they are wanted. Pure functions on one file, any thread.

LARGEST = 1 << 20
"""Bytes; a larger file is no list of hosts."""
MOST_HOSTS = 64
"""Each is a process of ssh and three threads here; more machines than that are a cluster's job."""


class FleetHost(NamedTuple):
    """One line of the file."""

    host: str
    """As ssh takes it."""
    name: str
    """As it is listed; the host, where nothing else is said."""
    rack: str = ""
    python: str = ""
    """The interpreter there; empty: the one that is most likely meant."""


def read_hosts(path: Path) -> list[FleetHost]:
    """The hosts of the file. Raises `BadInput` with everything that is wrong, each with its line."""
    try:
        with path.open("rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise BadInput(f"--hosts '{path}' cannot be read: {(error.strerror or str(error)).lower()}") from None
    if len(data) > LARGEST:
        raise BadInput(f"--hosts '{path}' is no list of hosts: it has more than {LARGEST >> 20} MiB")
    hosts: list[FleetHost] = []
    wrong: list[str] = []
    for number, line in enumerate(data.decode("utf-8", "replace").splitlines(), 1):
        words = line.partition("#")[0].split()
        if not words:
            continue
        try:
            host = _host(words)
            if any(other.name == host.name for other in hosts):
                raise BadInput(f"{host.name} is listed twice; give one of them another name=")
            hosts.append(host)
        except BadInput as error:
            wrong.append(f"{path.name}, line {number}: {printable(str(error))}")
    if len(hosts) > MOST_HOSTS:
        wrong.append(f"{path.name} lists {len(hosts)} hosts; at most {MOST_HOSTS} are reached over ssh")
    if not hosts and not wrong:
        wrong.append(f"{path.name} lists no host; write one a line, as ssh takes it: gpu1 or user@gpu1")
    if wrong:
        raise BadInput(*wrong)
    return hosts


def _host(words: list[str]) -> FleetHost:
    """What one line says.

    >>> _host(["user@gpu1", "rack=A", "name=gpu1"])
    FleetHost(host='user@gpu1', name='gpu1', rack='A', python='')
    """
    said: dict[str, str] = {}
    for word in words[1:]:
        key, equals, value = word.partition("=")
        if key not in ("name", "rack", "python") or not equals or not value or key in said:
            raise BadInput(f"'{word}' is not understood; a host may be followed by name=, rack= and python=")
        said[key] = value
    host = checked(words[0])
    if "/" in said.get("name", ""):
        raise BadInput(f"name={said['name']} has a slash, which stands between machine and device")
    return FleetHost(host, said.pop("name", host), **said)


def host_members(path: Path, virtual: str | None = None) -> list[Member]:
    """Those of the file; each gets these virtual GPUs. Raises `BadInput` with everything that is wrong in it."""
    return [
        Member(host.name, SshRoute(host.host, host.python, silently), host.rack, partial(address, host.host), virtual)
        for host in read_hosts(path)
    ]


def silently(host: str, report: Callable[[Report], None]) -> Connection:
    """A connection that gives up where ssh asks something: questions of a dozen hosts at once could not be told
    apart."""
    connection: Connection

    def told(what: Report) -> None:
        report(what)
        if isinstance(what, Prompt):
            connection.answer(what.number, None)

    connection = Connection(host, told)
    return connection


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
