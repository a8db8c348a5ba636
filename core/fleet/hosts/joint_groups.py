"""What each machine measures of an order, and what becomes of groups whose cards are of several machines. Main thread,
and no method waits."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterable, Mapping, Sequence

from devexplorer.core.allreduce.kind import Rendezvous
from devexplorer.core.fleet.events import BlocksMeasured, CardKey, FleetEvent, GroupEnded, GroupStarted, MeasureOrder
from devexplorer.core.fleet.hosts.measurements import Share
from devexplorer.core.fleet.records import MeasuredKind

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
