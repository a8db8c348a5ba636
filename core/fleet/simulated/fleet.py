"""A simulated fleet: any number of machines with virtual GPUs, for learning, demonstrations and tests. Readings and
blocks of measurements are made on the thread `simulated-fleet`; everything is marked simulated."""

from __future__ import annotations

import itertools
import threading
import time
from collections import deque
from collections.abc import Sequence

from devexplorer.core.base import BadInput, Clock, item_bytes
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.fleet.events import (
    BlocksMeasured,
    CardsListed,
    FleetEvent,
    FleetMachine,
    GroupEnded,
    GroupStarted,
    MachineChanged,
    MeasureOrder,
    Readings,
)
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.simulated.cards import VirtualCards
from devexplorer.core.fleet.simulated.defects import Defect
from devexplorer.core.fleet.source import MOST_EVENTS
from devexplorer.core.records import DeviceInfo, Problem
from devexplorer.core.virtual.device.cost import (
    LINK_EFFICIENCY,
    NETWORK_GB_S,
    Kind,
    Product,
    Roofline,
    Work,
    transfer_seconds,
)

# The rates that cards of a simulated fleet reach without noise and defects: what a virtual GPU of their profile
# holds. Pure functions, any thread.

SIDE = 8192
"""Of the square products."""
COPIED = 1 << 30
"""Bytes of one copy."""


def rate(kind: MeasuredKind, dtype: str, cards: Sequence[Profile], *, one_machine: bool) -> float:
    """TFLOP/s or decimal GB/s of a group of cards. Raises `BadInput` for what is not simulated."""
    match kind:
        case MeasuredKind.MATMUL:
            return _products(cards[0], dtype)
        case MeasuredKind.MEMORY:  # a copy within the card reads and writes; what arrived counts
            return COPIED / Roofline(cards[0]).seconds(Work(Kind.COPY, 0, 2 * COPIED)) / 1e9
        case MeasuredKind.COPIES:
            return COPIED / transfer_seconds(None, cards[0], COPIED) / 1e9
        case MeasuredKind.PEER | MeasuredKind.ALLREDUCE:  # a ring: the bus bandwidth is that of its narrowest link
            link = min(card.link_gb_s for card in cards)
            return (link if one_machine else min(link, NETWORK_GB_S)) * LINK_EFFICIENCY
    raise BadInput(f"{kind.value} is not simulated for a fleet; measure matmul, memory, copies, peer or allreduce")


def _products(card: Profile, dtype: str) -> float:
    if dtype not in card.tflops:
        raise BadInput(f"{card.name} has no {dtype} unit; it has {', '.join(card.tflops)}")
    flop = 2 * SIDE**3
    size = item_bytes("float32" if dtype == "tf32" else dtype)
    work = Work(Kind.PRODUCT, flop, 3 * SIDE * SIDE * size, dtype, Product(SIDE, SIDE, SIDE))
    return flop / Roofline(card).seconds(work) / 1e12


MOST_NODES = 4096
"""More is a slip of the pen."""
NODES_A_RACK = 8
PARTS = 20
"""The nodes report one part after the other: all at once would hold up the window."""
BEHIND = 2
"""Events of each machine that wait, from which on who drains is behind."""
MOST_WAITING = 4
"""Readings of each machine that are kept for who drains."""
MOST_AHEAD = 8 * MOST_EVENTS
"""Events that a measurement in a hurry makes before who listens has taken them."""
BLOCK_S = 0.25
SLOWED_BY = {
    MeasuredKind.MATMUL: ("slow", "hot", "lost"),
    MeasuredKind.MEMORY: ("slow", "hot", "lost"),
    MeasuredKind.COPIES: ("pcie", "lost"),
    MeasuredKind.PEER: ("link", "lost"),
    MeasuredKind.ALLREDUCE: ("link", "lost"),
}
"""Which defects take from the rate of a measurement."""
LOST = "the card does not answer (a simulated defect)"


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

    at_once = True
    """All groups of an order are measured at the same time."""

    def __init__(
        self,
        nodes: int,
        profiles: Sequence[Profile],
        defects: Sequence[Defect] = (),
        *,
        interval_s: float = 1.0,
        seed: int = 0,
        hurries: bool = False,
        clock: Clock = time.time,
    ) -> None:
        """`hurries`: simulated seconds of a measurement pass as fast as they are computed; else like real ones."""
        self.cards = VirtualCards(nodes, profiles, defects, seed)
        self.machines = tuple(f"node{index}" for index in range(nodes))
        self.devices = tuple(card_info(index, profile) for index, profile in enumerate(profiles))
        self.name = f"{nodes} nodes of {len(profiles)}, seed {seed}"
        """Cards of the same name in two fleets of this name are the same."""
        self._interval_s, self._hurries, self._clock = interval_s, hurries, clock
        self._ahead_s = 0.0
        """How far simulated time is ahead of the clock."""
        self._events: deque[FleetEvent] = deque()
        self._orders: deque[_Measurement | None] = deque()
        """None: end what is measured."""
        self._measuring = False
        """Whether an order is carried out: all of its readings are wanted."""
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="simulated-fleet", daemon=True)

    # --- main thread

    def start(self) -> None:
        """The machines join at once; readings follow."""
        lost = self.cards.lost
        for index, machine in enumerate(self.machines):
            rack = f"rack{index // NODES_A_RACK}"
            joined = FleetMachine(name=machine, state="connected", rack=rack, simulated=True)
            problems = tuple(
                Problem(device=info.id, reason=LOST)
                for info, gone in zip(self.devices, lost[index], strict=True)
                if gone
            )
            listed = CardsListed(machine=machine, devices=self.devices, problems=problems)
            self._events += (MachineChanged(machine=joined), listed)
        self._thread.start()

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call. Where that comes too seldom, readings that newer ones follow are left out:
        what is shown is of now."""
        if not self._measuring and len(self._events) > BEHIND * len(self.machines):
            self._catch_up()
        return [self._events.popleft() for _ in range(min(len(self._events), MOST_EVENTS))]

    def _catch_up(self) -> None:
        kept: list[FleetEvent] = []
        latest: dict[str, Readings] = {}
        waiting = [self._events.popleft() for _ in range(len(self._events))]  # its thread may add to them
        if any(isinstance(event, GroupStarted | BlocksMeasured | GroupEnded) for event in waiting):
            self._events.extendleft(reversed(waiting))  # readings under load among them are wanted all
            return
        for event in waiting:
            if isinstance(event, Readings):
                latest[event.machine] = event
            else:
                kept.append(event)
        self._events.extendleft(reversed([*kept, *latest.values()]))

    def prepare(self, order: MeasureOrder) -> None:
        """Nothing has to be found out."""

    def measure(self, order: MeasureOrder) -> None:
        """Measure on simulated cards."""
        self._orders.append(_Measurement(order, self))

    def cancel(self) -> None:
        """End the measurement."""
        self._orders.append(None)

    def close(self, deadline_s: float = 1.0) -> bool:
        """End it."""
        self._stop.set()
        if self._thread.ident is not None:
            self._thread.join(deadline_s)
        return not self._thread.is_alive()

    # --- its thread

    def _run(self) -> None:
        names = [info.id for info in self.devices]
        step_s = self._interval_s / PARTS
        running: _Measurement | None = None
        due = time.monotonic()
        for turn in itertools.count():
            if self._stop.is_set():
                return
            if running is not None and self._hurries:
                self._ahead_s += step_s
                while len(self._events) > MOST_AHEAD and not self._stop.wait(0.001):
                    pass  # who listens is slower than the simulation
            else:
                due = max(due, time.monotonic() - step_s)
                self._stop.wait(max(due - time.monotonic(), 0.0))
                due += step_s
            now = self._clock() + self._ahead_s
            while self._orders:
                order = self._orders.popleft()
                self._events += [] if running is None else running.end_all()
                running = order
                self._measuring = running is not None
                if running is not None:
                    self._events += running.begin(now)
            part = slice(turn % PARTS, None, PARTS)
            nodes = self.cards.samples(now, names, part)
            if running is not None or len(self._events) < MOST_WAITING * len(self.machines):  # else nobody takes them
                self._events += [
                    Readings(machine=machine, samples=samples)
                    for machine, samples in zip(self.machines[part], nodes, strict=True)
                ]
            if running is not None:
                self._events += running.blocks(turn % PARTS, self._interval_s)
                if running.is_over:
                    running, self._measuring = None, False


class _Measurement:
    """One order: its groups with their rates, and how much of each is left."""

    def __init__(self, order: MeasureOrder, fleet: SimulatedFleet) -> None:
        self._order, self._cards = order, fleet.cards
        nodes = {machine: index for index, machine in enumerate(fleet.machines)}
        columns = {info.id: index for index, info in enumerate(fleet.devices)}
        self._members = [[(nodes[machine], columns[device]) for machine, device in group] for group in order.groups]
        self._left = dict.fromkeys(range(len(order.groups)), order.soak_s + order.seconds)
        """Seconds that are still to be measured, by group."""
        self._parts: list[list[int]] = [[] for _ in range(PARTS)]
        """Groups that report in each part of an interval."""
        for group, members in enumerate(self._members):
            self._parts[members[0][0] % PARTS].append(group)
        self._rates: dict[int, float] = {}

    @property
    def is_over(self) -> bool:
        """Whether every group has ended."""
        return not self._left

    def begin(self, now: float) -> list[FleetEvent]:
        """All groups at once; those with a lost card, or without such a rate, end."""
        missing = self._cards.share_missing(*SLOWED_BY.get(self._order.kind, ()))
        events: list[FleetEvent] = []
        for group, members in enumerate(self._members):
            profiles = [self._cards.profiles[card] for _, card in members]
            try:
                base = rate(
                    self._order.kind, self._order.dtype, profiles, one_machine=len({node for node, _ in members}) == 1
                )
            except BadInput as error:
                events.append(self._end(group, str(error)))
                continue
            if any(self._cards.lost[node, card] for node, card in members):
                events.append(self._end(group, LOST))
                continue
            self._rates[group] = base * min(
                self._cards.factor[node, card] * (1 - missing[node, card]) for node, card in members
            )
            events.append(GroupStarted(number=self._order.number, group=group, time_unix_s=now))
            for node, card in members:
                self._cards.loaded[node, card] = True
        return events

    def blocks(self, part: int, seconds: float) -> list[FleetEvent]:
        """What the groups of a part have measured in the last seconds."""
        events: list[FleetEvent] = []
        for group in self._parts[part]:
            if group not in self._left:
                continue
            measured = min(seconds, self._left[group])
            if self._left[group] > self._order.seconds + 1e-9:  # it soaks
                self._left[group] -= min(seconds, self._left[group] - self._order.seconds)
                continue
            count = max(1, round(measured / BLOCK_S))
            rates = self._rates[group] * self._cards.noise(count)
            events.append(
                BlocksMeasured(
                    number=self._order.number,
                    group=group,
                    rates=tuple(rates.tolist()),
                    block_s=measured / count,
                    simulated=True,
                )
            )
            self._left[group] -= measured
            if self._left[group] <= 1e-9:
                events.append(self._end(group))
        return events

    def end_all(self) -> list[FleetEvent]:
        """It was cancelled."""
        return [self._end(group, "it was cancelled") for group in list(self._left)]

    def _end(self, group: int, failure: str = "") -> GroupEnded:
        self._left.pop(group, None)
        for node, card in self._members[group]:
            self._cards.loaded[node, card] = False
        return GroupEnded(number=self._order.number, group=group, failure=failure)
