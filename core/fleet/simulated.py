"""A simulated fleet: any number of machines with virtual GPUs, for learning, demonstrations and tests; what its cards
would read, and the faults that it is told to have. On the thread that drains it.

What is assumed, for want of datasheets that say it:

- Healthy cards of one type differ by a factor with a standard deviation of 1.5 %, and a block of measuring by 1 %.
- Power, temperature and clock are those of `core.devices.board_model`.
- The driver of a hot card lowers the clock by what the card is slower.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.base import BadInput, Clock, count_text, item_bytes, list_text
from devexplorer.core.devices.board_model import (
    HOT_C,
    IDLE,
    IDLE_C,
    IDLE_CLOCK,
    LOADED_C,
    TOO_HOT,
    power_share,
    settled_c,
    warmed,
)
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
from devexplorer.core.records import DeviceSample, Problem
from devexplorer.core.virtual.device.cost import (
    LINK_EFFICIENCY,
    NETWORK_GB_S,
    Kind,
    Product,
    Roofline,
    Work,
    transfer_seconds,
)

Floats = npt.NDArray[np.float64]

BETWEEN_CARDS, BETWEEN_BLOCKS = 0.015, 0.01
SIDE = 8192
"""Of the square products."""
COPIED = 1 << 30
"""Bytes of one copy."""
MOST_NODES = 4096
"""More is a slip of the pen."""
NODES_A_RACK = 8
PARTS = 20
"""The nodes report one part after the other: all at once would hold up the window."""
BLOCK_S = 0.25
LOST = "the card does not answer (a simulated defect)"


class Defect(NamedTuple):
    """One fault of one card."""

    kind: str
    node: int
    card: int
    share: float
    """Of its rate that is missing: of products and memory (`slow`, `hot`), of copies to and from the host (`pcie`), of
    copies between cards (`link`); 1 for a card that is `lost`."""


_DEFAULT = {"slow": 0.10, "hot": 0.20, "pcie": 0.75, "link": 0.50, "lost": 1.0}
"""10 % slower; a fifth less for heat; 4 of 16 lanes; half of the links."""
_FORM = re.compile(rf"({'|'.join(_DEFAULT)}):(\d{{1,6}})/(\d{{1,3}})(?::(\d{{1,2}}(?:\.\d+)?)\s*%)?", re.ASCII)


def parse_defect(text: str) -> Defect:
    """Return what `KIND:NODE/CARD[:SHARE%]` means; nodes and cards count from 0. Raises `BadInput`.

    >>> parse_defect("slow:3/5:10%")
    Defect(kind='slow', node=3, card=5, share=0.1)
    """
    match = _FORM.fullmatch(text.strip())
    if match is not None:
        kind, node, card, percent = match.groups()
        share = _DEFAULT[kind] if percent is None else float(percent) / 100
        if share > 0 and (percent is None or kind != "lost"):
            return Defect(kind, int(node), int(card), share)
    raise BadInput(
        f"--defect '{text}' is not a defect; write KIND:NODE/CARD:SHARE, for example slow:3/5:10%"
        f" (kinds: {list_text(list(_DEFAULT))}; a lost card has no share)"
    )


SLOWED_BY = {
    MeasuredKind.MATMUL: ("slow", "hot"),
    MeasuredKind.MEMORY: ("slow", "hot"),
    MeasuredKind.COPIES: ("pcie",),
    MeasuredKind.PEER: ("link",),
    MeasuredKind.ALLREDUCE: ("link",),
}
"""Which defects take from the rate of a measurement."""


def rate(kind: MeasuredKind, dtype: str, cards: Sequence[Profile], *, one_machine: bool) -> float:
    """TFLOP/s or decimal GB/s that virtual GPUs of these profiles hold together, without noise and defects. Raises
    `BadInput` for what is not simulated."""
    card = cards[0]
    match kind:
        case MeasuredKind.MATMUL:
            if dtype not in card.tflops:
                raise BadInput(f"{card.name} has no {dtype} unit; it has {', '.join(card.tflops)}")
            flop = 2 * SIDE**3
            read = 3 * SIDE * SIDE * item_bytes("float32" if dtype == "tf32" else dtype)
            work = Work(Kind.PRODUCT, flop, read, dtype, Product(SIDE, SIDE, SIDE))
            return flop / Roofline(card).seconds(work) / 1e12
        case MeasuredKind.MEMORY:  # a copy within the card reads and writes; what arrived counts
            return COPIED / Roofline(card).seconds(Work(Kind.COPY, 0, 2 * COPIED)) / 1e9
        case MeasuredKind.COPIES:
            return COPIED / transfer_seconds(None, card, COPIED) / 1e9
        case MeasuredKind.PEER | MeasuredKind.ALLREDUCE:  # a ring: the bus bandwidth is that of its narrowest link
            link = min(one.link_gb_s for one in cards)
            return (link if one_machine else min(link, NETWORK_GB_S)) * LINK_EFFICIENCY
    raise BadInput(f"{kind.value} is not simulated for a fleet; measure matmul, memory, copies, peer or allreduce")


class _Measured:
    """A group that is being measured."""

    def __init__(self, members: Sequence[tuple[int, int]], rate: float, left_s: float) -> None:
        self.members, self.rate, self.left_s = members, rate, left_s


class SimulatedFleet:
    """Machines `node0`, `node1`, … in racks of eight. Arrays have the shape `(nodes, cards)`."""

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
        """`hurries`: simulated seconds of a measurement pass as fast as they are computed; else like real ones. Raises
        `BadInput` where a defect is of a card that there is not."""
        for defect in defects:
            if defect.node >= nodes or defect.card >= len(profiles):
                raise BadInput(
                    f"--defect {defect.kind}:{defect.node}/{defect.card}: the fleet has {count_text(nodes, 'node')}"
                    f" with {count_text(len(profiles), 'card')}, counted from 0"
                )
        self.name = f"{nodes} nodes of {len(profiles)}, seed {seed}"
        """Cards of the same name in two fleets of this name are the same."""
        self.machines = [f"node{index}" for index in range(nodes)]
        self.devices = [f"vgpu:{index}" for index in range(len(profiles))]
        self._profiles, self.defects, self._shape = profiles, defects, (nodes, len(profiles))
        self._random = np.random.default_rng(seed)
        self.factor = np.clip(self._random.normal(1.0, BETWEEN_CARDS, self._shape), 0.9, 1.1)
        """Of each card's rate; a part of the simulation, not of what is measured."""
        self._own_c = self._random.normal(0.0, 1.5, self._shape)
        self._temperature = IDLE_C + self._own_c
        self._lost, self._hot, self._narrow = (self.missing(kind) for kind in ("lost", "hot", "pcie"))
        self._loaded = np.zeros(self._shape, bool)
        """Which cards are measured now."""
        self._interval_s, self._hurries, self._clock = interval_s, hurries, clock
        self._due_s = time.monotonic() - interval_s * (1 - 1 / PARTS)
        """When the next part reports; at first all of them do."""
        self._ahead_s = 0.0
        """How far simulated time is ahead of the clock."""
        self._turn = 0
        self._events: list[FleetEvent] = []
        self._order = MeasureOrder(number=0, kind=MeasuredKind.MATMUL)
        self._measured: dict[int, _Measured] = {}
        """Groups of the order that have not ended."""

    def missing(self, *kinds: str) -> Floats:
        """What the defects of these kinds take from the rate of each card, 0 to 1."""
        missing = np.zeros(self._shape)
        for defect in self.defects:
            if defect.kind in kinds:
                missing[defect.node, defect.card] = max(missing[defect.node, defect.card], defect.share)
        return missing

    def start(self) -> None:
        """The machines join at once; readings follow."""
        infos = tuple(profile.simulated_card(name) for name, profile in zip(self.devices, self._profiles, strict=True))
        for node, machine in enumerate(self.machines):
            rack = f"rack{node // NODES_A_RACK}"
            lost = [name for name, gone in zip(self.devices, self._lost[node], strict=True) if gone]
            problems = tuple(Problem(device=name, reason=LOST) for name in lost)
            joined = FleetMachine(name=machine, state="connected", rack=rack, simulated=True)
            self._events.append(MachineChanged(machine=joined))
            self._events.append(CardsListed(machine=machine, devices=infos, problems=problems))

    def drain(self) -> Sequence[FleetEvent]:
        """What happened since the last call, at most one reading of each machine."""
        events, self._events = self._events, []
        step_s = self._interval_s / PARTS
        for _ in range(PARTS):
            now_s = time.monotonic()
            if self._hurries and self._measured:
                if events:  # one part at a time
                    break
                self._ahead_s += step_s
                self._due_s = now_s
            elif now_s < self._due_s:
                break
            else:
                self._due_s = max(self._due_s, now_s - self._interval_s) + step_s
            part = self._turn % PARTS
            self._turn += 1
            events += self._readings(part)
            for group, measured in list(self._measured.items()):
                if measured.members[0][0] % PARTS == part:
                    events += self._blocks(group, measured)
        return events

    def prepare(self, order: MeasureOrder) -> None:
        """Nothing has to be found out."""

    def measure(self, order: MeasureOrder) -> None:
        """All groups at once; those with a lost card, or without such a rate, end."""
        self.cancel()
        self._order = order
        factor = self.factor * (1 - self.missing(*SLOWED_BY.get(order.kind, ())))
        nodes = {machine: node for node, machine in enumerate(self.machines)}
        for number, group in enumerate(order.groups):
            members = [(nodes[machine], self.devices.index(device)) for machine, device in group]
            profiles = [self._profiles[card] for _, card in members]
            try:
                base = rate(order.kind, order.dtype, profiles, one_machine=len({node for node, _ in members}) == 1)
                if any(self._lost[member] for member in members):
                    raise BadInput(LOST)
            except BadInput as error:
                self._events.append(GroupEnded(number=order.number, group=number, failure=str(error)))
                continue
            slowest = float(min(factor[member] for member in members))
            self._measured[number] = _Measured(members, base * slowest, order.soak_s + order.seconds)
            now = self._clock() + self._ahead_s
            self._events.append(GroupStarted(number=order.number, group=number, time_unix_s=now))
            for member in members:
                self._loaded[member] = True

    def cancel(self) -> None:
        """End the measurement."""
        for group in list(self._measured):
            self._events.append(self._end(group, "it was cancelled"))

    def close(self, deadline_s: float = 1.0) -> bool:
        """Nothing of it runs by itself."""
        return True

    def _readings(self, part: int) -> list[FleetEvent]:
        """Of each card of these nodes that answers."""
        now = self._clock() + self._ahead_s
        nodes = slice(part, None, PARTS)
        loaded, hot = self._loaded[nodes], self._hot[nodes]
        busy = loaded.astype(float)
        goal = settled_c(busy, np.where(hot > 0, HOT_C, LOADED_C)) + self._own_c[nodes]
        self._temperature[nodes] = warmed(self._temperature[nodes], goal, np.array(self._interval_s))
        noise = self._random.normal(0.0, 1.0, (2, *loaded.shape))
        temperature = np.round(self._temperature[nodes] + 0.3 * noise[0])
        power = power_share(busy) * (1 + 0.01 * noise[1])
        clock = np.where(loaded, 1 - hot, IDLE_CLOCK)
        figures = np.stack((temperature, power, clock, loaded, hot, self._narrow[nodes], self._lost[nodes]), axis=-1)
        events: list[FleetEvent] = []
        for machine, cards in zip(self.machines[nodes], figures.tolist(), strict=True):
            samples = []
            for device, profile, card in zip(self.devices, self._profiles, cards, strict=True):
                if not card[-1]:
                    samples.append(_sample(device, profile, now, *card[:-1]))
            events.append(Readings(machine=machine, samples=tuple(samples)))
        return events

    def _blocks(self, group: int, measured: _Measured) -> list[FleetEvent]:
        """What a group has measured in the last interval."""
        order, seconds = self._order, min(self._interval_s, measured.left_s)
        if measured.left_s > order.seconds + 1e-9:  # it soaks
            measured.left_s -= min(seconds, measured.left_s - order.seconds)
            return []
        count = max(1, round(seconds / BLOCK_S))
        rates = tuple((measured.rate * self._random.normal(1.0, BETWEEN_BLOCKS, count)).tolist())
        measured.left_s -= seconds
        events: list[FleetEvent] = [
            BlocksMeasured(number=order.number, group=group, rates=rates, block_s=seconds / count, simulated=True)
        ]
        if measured.left_s <= 1e-9:
            events.append(self._end(group))
        return events

    def _end(self, group: int, failure: str = "") -> GroupEnded:
        for member in self._measured.pop(group).members:
            self._loaded[member] = False
        return GroupEnded(number=self._order.number, group=group, failure=failure)


def _sample(
    device: str,
    profile: Profile,
    now: float,
    temperature_c: float,
    power: float,
    clock: float,
    loaded: float,
    hot: float,
    narrow: float,
) -> DeviceSample:
    """`power` and `clock` are shares of the profile's."""
    reasons: tuple[str, ...] = ()
    if not loaded:
        reasons = (IDLE,)
    elif hot:
        reasons = (TOO_HOT,)
    return DeviceSample(
        device=device,
        time_unix_s=now,
        memory_used_bytes=int(0.2 * loaded * profile.memory_bytes),
        memory_total_bytes=profile.memory_bytes,
        utilization_percent=100 * loaded,
        temperature_c=temperature_c,
        power_w=None if profile.tdp_w is None else round(profile.tdp_w * power, 1),
        power_cap_w=profile.tdp_w,
        sm_clock_mhz=None if profile.boost_clock_mhz is None else round(profile.boost_clock_mhz * clock),
        throttle_reasons=reasons,
        pcie_width=4 if narrow else 16,
        ecc_corrected=0,
        ecc_uncorrected=0,
        simulated=True,
    )
