"""A simulated fleet: any number of machines with virtual GPUs, for learning, demonstrations and tests; what its cards
would read, and the faults that it is told to have. Readings and blocks of measurements are made on the thread
`simulated-fleet`.

What is assumed, for want of datasheets that say it:

- Healthy cards of one type differ by a factor with a standard deviation of 1.5 %, and a block of measuring by 1 %.
- Power, temperature and clock are those of `core.devices.board_model`.
- The driver of a hot card lowers the clock by what the card is slower.
"""

from __future__ import annotations

import itertools
import re
import threading
import time
from collections import deque
from collections.abc import Sequence
from typing import Literal, NamedTuple

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
    MOST_EVENTS,
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
from devexplorer.core.records import DeviceInfo, DeviceSample, Problem
from devexplorer.core.virtual.device.cost import (
    LINK_EFFICIENCY,
    NETWORK_GB_S,
    Kind,
    Product,
    Roofline,
    Work,
    transfer_seconds,
)

DefectKind = Literal["slow", "hot", "pcie", "link", "lost"]


class Defect(NamedTuple):
    """One fault of one card."""

    kind: DefectKind
    node: int
    card: int
    share: float
    """Of its rate that is missing: of products and memory (`slow`, `hot`), of copies to and from the host (`pcie`), of
    copies between cards (`link`); 1 for a card that is `lost`."""


_DEFAULT: dict[DefectKind, float] = {"slow": 0.10, "hot": 0.20, "pcie": 0.75, "link": 0.50, "lost": 1.0}
"""10 % slower; a fifth less for heat; 4 of 16 lanes; half of the links."""
_FORM = re.compile(r"(\w+):(\d{1,6})/(\d{1,3})(?::(\d{1,2}(?:\.\d+)?)\s*%)?", re.ASCII)


def parse_defect(text: str) -> Defect:
    """Return what `KIND:NODE/CARD[:SHARE%]` means; nodes and cards count from 0. Raises `BadInput`.

    >>> parse_defect("slow:3/5:10%")
    Defect(kind='slow', node=3, card=5, share=0.1)
    """
    match = _FORM.fullmatch(text.strip())
    kind = next((kind for kind in _DEFAULT if match is not None and match[1] == kind), None)
    if match is None or kind is None:
        raise BadInput(
            f"--defect '{text}' is not a defect; write KIND:NODE/CARD:SHARE, for example slow:3/5:10%"
            f" (kinds: {list_text(list(_DEFAULT))})"
        )
    share = _DEFAULT[kind] if match[4] is None else float(match[4]) / 100
    if match[4] is not None and kind == "lost":
        raise BadInput(f"--defect '{text}': a lost card has no share; write lost:{match[2]}/{match[3]}")
    if share <= 0:
        raise BadInput(f"--defect '{text}' changes nothing; write a share above 0 %")
    return Defect(kind, int(match[2]), int(match[3]), share)


Floats = npt.NDArray[np.float64]

BETWEEN_CARDS = 0.015
BETWEEN_BLOCKS = 0.01


class VirtualCards:
    """`nodes` machines with the same cards. Arrays have the shape `(nodes, cards)`."""

    def __init__(self, nodes: int, profiles: Sequence[Profile], defects: Sequence[Defect] = (), seed: int = 0) -> None:
        """Raises `BadInput` where a defect is of a card that there is not."""
        self.nodes, self.profiles, self.defects = nodes, tuple(profiles), tuple(defects)
        self.shape = nodes, len(profiles)
        for defect in defects:
            if defect.node >= nodes or defect.card >= len(profiles):
                there_is = f"{count_text(nodes, 'node')} with {count_text(len(profiles), 'card')}"
                raise BadInput(
                    f"--defect {defect.kind}:{defect.node}/{defect.card}: the fleet has {there_is}, counted from 0"
                )
        self._random = np.random.default_rng(seed)
        self.factor = np.clip(self._random.normal(1.0, BETWEEN_CARDS, self.shape), 0.9, 1.1)
        """Of each card's rate; a part of the simulation, not of what is measured."""
        self._own_c = self._random.normal(0.0, 1.5, self.shape)
        self._temperature = IDLE_C + self._own_c
        self._clock = np.array([profile.boost_clock_mhz or np.nan for profile in profiles])
        self._power = np.array([profile.tdp_w or np.nan for profile in profiles])
        self._last_s = np.full(nodes, np.nan)
        self.loaded = np.zeros(self.shape, dtype=bool)
        """Which cards are measured now."""

    def share_missing(self, *kinds: str) -> Floats:
        """What the defects of these kinds take from the rate of each card, 0 to 1."""
        missing = np.zeros(self.shape)
        for defect in self.defects:
            if defect.kind in kinds:
                missing[defect.node, defect.card] = max(missing[defect.node, defect.card], defect.share)
        return missing

    @property
    def lost(self) -> npt.NDArray[np.bool_]:
        """Cards that do not answer."""
        return self.share_missing("lost") > 0

    def noise(self, count: int) -> Floats:
        """The factors of `count` blocks of measuring."""
        return self._random.normal(1.0, BETWEEN_BLOCKS, count)

    def samples(self, now: float, names: Sequence[str], part: slice = slice(None)) -> list[tuple[DeviceSample, ...]]:
        """A reading of each card that answers, by node, of these nodes. `names`: ids of the cards of a node."""
        elapsed = np.nan_to_num(now - self._last_s[part]).clip(0.0)[:, None]
        self._last_s[part] = now
        loaded, hot, own = self.loaded[part], self.share_missing("hot")[part], self._own_c[part]
        goal = settled_c(loaded.astype(float), np.where(hot > 0, HOT_C, LOADED_C)) + own
        kept = self._temperature[part] = warmed(self._temperature[part], goal, elapsed)
        jitter = self._random.normal(0.0, 1.0, (2, *kept.shape))
        memory = np.array([profile.memory_bytes for profile in self.profiles])
        rows = zip(
            np.round(kept + 0.3 * jitter[0]),
            self._power * power_share(loaded.astype(float)) * (1 + 0.01 * jitter[1]),
            self._clock * np.where(loaded, 1 - hot, IDLE_CLOCK),
            np.where(self.share_missing("pcie")[part] > 0, 4, 16),
            (hot > 0) & loaded,
            loaded,
            self.lost[part],
            np.where(loaded, 0.2, 0.0) * memory,
            strict=True,
        )
        return [tuple(self._readings(now, names, *row)) for row in rows]

    def _readings(self, now: float, names: Sequence[str], *rows: npt.NDArray[np.generic]) -> list[DeviceSample]:
        readings = []
        columns = zip(*(row.tolist() for row in rows), strict=True)
        for name, profile, values in zip(names, self.profiles, columns, strict=True):
            temperature, power, clock, width, throttled, loaded, lost, used = values
            if lost:
                continue
            reasons: tuple[str, ...] = ()
            if throttled:
                reasons = (TOO_HOT,)
            elif not loaded:
                reasons = (IDLE,)
            readings.append(
                DeviceSample(
                    device=name,
                    time_unix_s=now,
                    memory_used_bytes=int(used),
                    memory_total_bytes=profile.memory_bytes,
                    utilization_percent=100.0 if loaded else 0.0,
                    temperature_c=temperature,
                    power_w=None if power != power else round(power, 1),
                    power_cap_w=profile.tdp_w,
                    sm_clock_mhz=None if clock != clock else round(clock),
                    throttle_reasons=reasons,
                    pcie_width=width,
                    ecc_corrected=0,
                    ecc_uncorrected=0,
                    simulated=True,
                )
            )
        return readings


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
