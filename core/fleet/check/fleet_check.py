"""Measures all cards of a fleet and says which of them is slow.

The check itself is the thread `fleet-check`, which gives one order after the other and waits for its results. The main
thread calls `beat` with every event of the source: orders go out and results come in there, and nowhere else.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from msgspec.structs import replace

from devexplorer.core.base import Cancelled
from devexplorer.core.fleet.check.plan import (
    ALONE,
    ONE_BY_ONE,
    CheckPlan,
    CheckStep,
    measured_cards,
    pair_rounds,
    seconds_of,
    steps,
)
from devexplorer.core.fleet.events import (
    BlocksMeasured,
    CardKey,
    CardsListed,
    FleetEvent,
    GroupEnded,
    GroupStarted,
    MachineChanged,
    MachineLeft,
    MeasureEvent,
    MeasureOrder,
    MeasuringSource,
    Readings,
)
from devexplorer.core.fleet.records import CardMeasurement, FleetVerdict, LoadReadings, MeasuredKind, Rates
from devexplorer.core.fleet.table import FleetCard, FleetTable
from devexplorer.core.fleet.verdicts.causes import slow_in_pairs
from devexplorer.core.fleet.verdicts.judge import TOGETHER, judge
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Problem
from devexplorer.core.records.base import Record

SEARCH_S = 2.0
"""Of each measurement between machines, which are many."""
LEAST_BLOCKS = 3
"""That a measurement which was cancelled has to have, to say anything: its median is the one in the middle."""
AWAY_S = 20.0
"""That the link to a machine may be broken before what is measured there is given up."""
CANCELLED = "it was cancelled"
"""Why a group has ended that was being measured when the check was."""
Former = Mapping[tuple[CardKey, MeasuredKind, str], tuple[float, ...]]
"""Medians of former checks, oldest first."""

MEDIANS = ("sm_clock_mhz", "memory_clock_mhz", "power_w", "power_cap_w", "temperature_c", "memory_temperature_c")
LARGEST = ("pcie_generation", "pcie_width")
COUNTERS = ("ecc_corrected", "ecc_uncorrected", "pcie_replays")


def readings_under_load(samples: Sequence[DeviceSample], details: DeviceDetails | None = None) -> LoadReadings | None:
    """What the samples of one card say, all taken while it was measured and in their order; None without a sample."""
    if not samples:
        return None
    found: dict[str, Any] = {}
    for field in (*MEDIANS, *LARGEST, *COUNTERS):
        known = [value for sample in samples if (value := getattr(sample, field)) is not None]
        if known and field in MEDIANS:
            found[field] = float(statistics.median(known))
        elif known and field in LARGEST:
            found[field] = max(known)
        elif len(known) > 1:
            found[field] = known[-1] - known[0] if known[-1] >= known[0] else known[-1]  # it has started again
    read = [sample.throttle_reasons for sample in samples if sample.throttle_reasons is not None]
    if read:
        counted = Counter(reason for reasons in read for reason in set(reasons))
        found["throttled"] = {reason: number / len(read) for reason, number in counted.items()}
    seen: set[int] = set()
    shares: list[float] = []
    for sample in samples:
        if sample.processes is not None:
            seen.update(process.pid for process in sample.processes)
            found["other_processes"] = len(seen)
            of_each = [one.utilization_percent for one in sample.processes if one.utilization_percent is not None]
            if of_each or not sample.processes:
                shares.append(sum(of_each))
    if shares:
        found["other_utilization_percent"] = statistics.median(shares)
    if details is not None:
        flags = [flag for flag in (details.remapping_pending, details.retired_pages_pending) if flag is not None]
        if flags:
            found["remapping_pending"] = any(flags)
        found["pcie_generation_max"] = details.pcie_generation_max
        found["pcie_width_max"] = details.pcie_width_max
    return LoadReadings(**found)


class GroupRate(Record):
    """What a group of two or more cards reached."""

    kind: MeasuredKind
    cards: tuple[CardKey, ...]
    rate: float | None = None
    """Median of its blocks, decimal GB/s; None: it could not be measured."""
    failure: str = ""
    simulated: bool = False


class CheckReport(Record):
    """What came of a check."""

    plan: CheckPlan
    verdict: FleetVerdict
    measurements: tuple[CardMeasurement, ...]
    """In the order of the verdict's cards."""
    started_unix_s: float
    ended_unix_s: float
    devices: tuple[DeviceInfo, ...] = ()
    """In the same order."""
    groups: tuple[GroupRate, ...] = ()
    slow_links: tuple[tuple[CardKey, CardKey], ...] = ()
    """Between cards that are not slow themselves."""
    slow_machines: tuple[str, ...] = ()
    """Those that are slow with whichever other machine."""
    start_spread_s: float | None = None
    """The largest difference between the first and the last start of the cards of one order, as their machines say."""
    left_out: tuple[MeasuredKind, ...] = ()
    """For which the budget of time was too short."""
    cancelled: bool = False
    """It was interrupted; it has what was measured until then."""

    @property
    def measured(self) -> tuple[MeasuredKind, ...]:
        """The kinds of which anything was."""
        of_cards = {rates.kind for card in self.measurements for rates in card.rates if rates.blocks}
        of_groups = {group.kind for group in self.groups if group.rate is not None}
        return tuple(kind for kind in self.plan.kinds if kind in of_cards | of_groups)


class FleetCheck:
    """`start`, then `beat` often until `report` is there; `cancel` ends it with what was measured."""

    def __init__(
        self,
        source: MeasuringSource,
        cards: Sequence[FleetCard],
        plan: CheckPlan,
        known: FleetTable | None = None,
    ) -> None:
        """`known`: what is known of the fleet, for causes."""
        self.cards = measured_cards(cards)
        self.plan = plan
        self.report: CheckReport | None = None
        self.step: CheckStep | None = None
        """What is being measured."""
        self._over, self._share = 0.0, 0.0
        """Shares of the measurements that are over, and of the present one."""
        self._source, self._known = source, known or FleetTable()
        self._former: Former = {}
        self._present: OrderResults | None = None
        """The last order, and what has come of it."""
        self._ordered: OrderResults | None = None
        """The last one that the source was given."""
        self._gone: dict[str, str] = {}
        """Machines that are lost, and why."""
        self._away: dict[str, tuple[float, str]] = {}
        """Machines whose link is broken: since when, and why."""
        self._silent: set[CardKey] = set()
        """Cards that their machine has a problem with as a whole."""
        for machine, problems in self._known.problems.items():
            self._note(machine, problems)
        self._left_out: list[MeasuredKind] = []
        self._number = 0
        self._spreads_s: list[float] = []
        self._rates: defaultdict[CardKey, list[Rates]] = defaultdict(list)
        self._samples: defaultdict[CardKey, list[DeviceSample]] = defaultdict(list)
        self._pairs: defaultdict[tuple[CardKey, MeasuredKind], list[Rates]] = defaultdict(list)
        """Of each card with its neighbours: the best of them says how fast the card itself is."""
        self._groups: list[GroupRate] = []
        self._simulated = {(card.machine, card.info.id) for card in self.cards if card.info.simulated}
        self._slow_links: list[tuple[CardKey, CardKey]] = []
        self._slow_machines: tuple[str, ...] = ()
        self._cancelled = threading.Event()
        self._started_unix_s = self._began_s = 0.0
        self._thread = threading.Thread(target=self._run, name="fleet-check", daemon=True)

    # --- main thread

    def start(self) -> None:
        """Begin; returns at once."""
        self._started_unix_s, self._began_s = time.time(), time.monotonic()
        self._thread.start()

    def beat(self, events: Sequence[FleetEvent]) -> None:
        """What happened in the fleet since the last call."""
        present = self._present
        if present is not None and present is not self._ordered:
            self._ordered = present
            for machine, why in (*self._gone.items(), *((name, why) for name, (_, why) in self._away.items())):
                present.lose(machine, why)
            self._source.measure(present.order)
        for machine, (since_s, why) in self._away.items():
            if present is not None and time.monotonic() - since_s > AWAY_S:
                present.lose(machine, why)
        for event in events:
            match event:
                case GroupStarted() | BlocksMeasured() | GroupEnded() if present is not None:
                    present.put(event)
                case Readings() if present is not None:
                    self._read(event, present)
                case CardsListed():
                    self._note(event.machine, event.problems)
                case MachineChanged() if event.machine.state == "connected":
                    self._away.pop(event.machine.name, None)
                case MachineChanged() if event.machine.state == "reconnecting":
                    why = f"the connection broke: {event.machine.problem}".rstrip(": ")
                    self._away.setdefault(event.machine.name, (time.monotonic(), why))
                case MachineChanged() if event.machine.state == "lost":
                    self._lose(event.machine.name, event.machine.problem or "the connection was lost")
                case MachineLeft():
                    self._lose(event.name, "the machine left the fleet")

    @property
    def done(self) -> float:
        """Share of the measurements that is over, 0 to 1; those between machines are not counted."""
        present = 0.0 if self._present is None else self._present.share
        return min(self._over + self._share * present, 1.0)

    def know(self, former: Former) -> None:
        """What earlier checks say of these cards; any time before the end."""
        self._former = former

    def cancel(self) -> None:
        """End it; the report has what was measured until then."""
        self._cancelled.set()
        self._source.cancel()
        if self._present is not None:
            self._present.end(lambda group: True, CANCELLED)

    def join(self, deadline_s: float) -> bool:
        """False when the thread still runs at the deadline."""
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _read(self, readings: Readings, present: OrderResults) -> None:
        if present.order.kind not in ALONE and any(kind in ALONE for kind in self.plan.kinds):
            return  # cards that work alone work harder, and their readings are not mixed with others
        for sample in readings.samples:
            if present.runs((readings.machine, sample.device)):
                self._samples[readings.machine, sample.device].append(sample)

    def _note(self, machine: str, problems: Sequence[Problem]) -> None:
        for problem in problems:
            if problem.device is not None and problem.field is None:
                self._silent.add((machine, problem.device))

    def _lose(self, machine: str, why: str) -> None:
        self._gone[machine] = why
        if self._present is not None:
            self._present.lose(machine, why)

    # --- its thread

    def _run(self) -> None:
        with suppress(Cancelled):
            at_once = getattr(self._source, "at_once", False)
            planned = [(step, seconds_of(step, self.plan, at_once=at_once)) for step in steps(self.plan, self.cards)]
            whole_s = sum(seconds for _, seconds in planned)
            for step, seconds in planned:
                self._share = seconds / whole_s
                self._measure(step, self.plan.seconds)
                self._share, self._over = 0.0, self._over + seconds / whole_s
            if MeasuredKind.ALLREDUCE in self.plan.kinds:
                self._compare_machines()
        self.report = self._conclude()

    def _measure(self, step: CheckStep, seconds: float) -> list[Rates]:
        """One order: the rates of each of its groups, which are taken; nothing where the budget is too short. Raises
        `Cancelled`, after what was measured until then."""
        self.step = step
        budget_s = self.plan.budget_s
        if budget_s is not None and time.monotonic() - self._began_s + seconds_of(step, self.plan) > budget_s:
            self._left_out.append(step.kind)
            return []
        self._number += 1
        soak_s = self.plan.soak_s if step.kind is MeasuredKind.MATMUL else 0.0
        order = MeasureOrder(
            number=self._number, kind=step.kind, dtype=step.dtype, seconds=seconds, soak_s=soak_s, groups=step.groups
        )
        self._source.prepare(order)
        present = self._present = OrderResults(order)
        if self._cancelled.is_set():  # what is cancelled later ends the order
            raise Cancelled("the check was cancelled")
        measured = present.wait()
        if present.start_spread_s is not None:
            self._spreads_s.append(present.start_spread_s)
        for group, rates in zip(step.groups, measured, strict=True):
            self._take(step.kind, group, rates)
        if self._cancelled.is_set():
            raise Cancelled("the check was cancelled")
        return measured

    def _take(self, kind: MeasuredKind, group: tuple[CardKey, ...], rates: Rates) -> None:
        if rates.failure == CANCELLED:
            if len(rates.blocks) < LEAST_BLOCKS:
                return
            rates = replace(rates, failure=None)
        if len(group) == 1:
            self._rates[group[0]].append(rates)
            return
        simulated = group[0] in self._simulated
        self._groups.append(
            GroupRate(kind=kind, cards=group, rate=_median(rates), failure=rates.failure or "", simulated=simulated)
        )
        if len(group) == 2 and group[0][0] == group[1][0]:
            for key in group:
                self._pairs[key, kind].append(rates)

    def _compare_machines(self) -> None:
        """Which machine, or which way between two neighbours, slows down what all of them do together."""
        first = {card.machine: (card.machine, card.info.id) for card in reversed(self.cards)}
        ring = [first[machine] for machine in dict.fromkeys(card.machine for card in self.cards)]
        seconds = min(SEARCH_S, self.plan.seconds)

        def measure(pairs: Sequence[tuple[CardKey, CardKey]]) -> list[float | None]:
            step = CheckStep(kind=MeasuredKind.ALLREDUCE, dtype="", groups=tuple(pairs))
            return [_median(rates) for rates in self._measure(step, seconds)] or [None] * len(pairs)

        reached: dict[tuple[CardKey, CardKey], float] = {}
        for pairs in pair_rounds([ring]):
            for pair, rate in zip(pairs, measure(pairs), strict=True):
                if rate is not None:
                    reached[pair] = rate
        slow, links = slow_in_pairs(reached, measure)
        self._slow_machines = tuple(machine for machine, _ in slow)
        self._slow_links += links

    def _conclude(self) -> CheckReport:
        for kind in TOGETHER:
            pairs = {
                (group.cards[0], group.cards[1]): group.rate
                for group in self._groups
                if group.kind is kind and len(group.cards) == 2 and group.rate is not None
            }
            within = {(a, b): rate for (a, b), rate in pairs.items() if a[0] == b[0]}
            _, links = slow_in_pairs(within, lambda pairs: [None] * len(pairs))  # a slow card has its own verdict
            self._slow_links += links
        measurements = tuple(self._measurement(card) for card in self.cards)
        return CheckReport(
            plan=self.plan,
            verdict=judge(measurements),
            measurements=measurements,
            started_unix_s=self._started_unix_s,
            ended_unix_s=time.time(),
            devices=tuple(card.info for card in self.cards),
            groups=tuple(self._groups),
            slow_links=tuple(dict.fromkeys(self._slow_links)),
            slow_machines=self._slow_machines,
            start_spread_s=max(self._spreads_s, default=None),
            left_out=tuple(dict.fromkeys(self._left_out)),
            cancelled=self._cancelled.is_set(),
        )

    def _measurement(self, card: FleetCard) -> CardMeasurement:
        key = card.machine, card.info.id
        details = self._known.details.get(key)
        measured = list(self._rates[key])
        failed = any(rates.failure for rates in measured)
        for kind in self.plan.kinds:
            if pairs := self._pairs.get((key, kind)):
                measured.append(max(pairs, key=lambda rates: _median(rates) or 0.0))
        return CardMeasurement(
            machine=card.machine,
            device=card.info.id,
            name=card.info.name,
            memory_total_bytes=card.info.memory_total_bytes,
            rates=tuple(
                replace(rates, former=self._former.get((key, rates.kind, rates.dtype), ())) for rates in measured
            ),
            power_limit_default_w=None if details is None else details.power_limit_default_w,
            readings=readings_under_load(self._samples[key], details),
            lost=card.machine in self._gone or (key in self._silent and failed),
            simulated=card.info.simulated,
        )


def _median(rates: Rates) -> float | None:
    return statistics.median(rates.blocks) if rates.blocks and not rates.failure else None


class OrderResults:
    """What comes of one order; `wait` on the thread of the check, everything else on the main thread."""

    def __init__(self, order: MeasureOrder) -> None:
        self.order = order
        self._blocks: list[list[float]] = [[] for _ in order.groups]
        self._block_s: list[float | None] = [None] * len(order.groups)
        self._done = [0.0] * len(order.groups)
        """Share of each group that is measured."""
        self._done_sum = 0.0
        self._of_card = {key: index for index, group in enumerate(order.groups) for key in group}
        """The group of each card; none is in two."""
        self._since_s = time.monotonic()
        self._started: dict[int, float] = {}
        self._ended: dict[int, GroupEnded] = {}
        self._over = threading.Event()
        if not order.groups:
            self._over.set()

    def put(self, event: MeasureEvent) -> None:
        """An event of a group; those of earlier orders, and of groups that there are not, are nothing."""
        group = event.group
        if event.number != self.order.number or not 0 <= group < len(self._blocks) or group in self._ended:
            return
        if isinstance(event, GroupStarted):
            self._started.setdefault(group, event.time_unix_s)
            return
        share = 1.0
        if isinstance(event, BlocksMeasured):
            self._blocks[group] += event.rates
            self._block_s[group] = event.block_s
            share = min(len(self._blocks[group]) * event.block_s / self.order.seconds, 1.0)
        self._done_sum += share - self._done[group]
        self._done[group] = share
        if isinstance(event, GroupEnded):
            self._ended[group] = event
            if len(self._ended) == len(self._blocks):
                self._over.set()

    @property
    def share(self) -> float:
        """What is measured, 0 to 1; of a soak what has passed of its time."""
        order = self.order
        soaked_s = min(time.monotonic() - self._since_s, order.soak_s)
        return (soaked_s + order.seconds * self._done_sum / max(len(self._done), 1)) / (order.soak_s + order.seconds)

    def runs(self, key: CardKey) -> bool:
        """Whether a card is being measured."""
        group = self._of_card.get(key)
        return group in self._started and group not in self._ended

    def lose(self, machine: str, why: str) -> None:
        """Nothing more comes from this machine."""
        self.end(lambda group: any(name == machine for name, _ in group), why)

    def end(self, concerned: Callable[[tuple[CardKey, ...]], bool], why: str) -> None:
        """Nothing more comes of these groups."""
        for index, group in enumerate(self.order.groups):
            if concerned(group):
                self.put(GroupEnded(number=self.order.number, group=index, failure=why))

    @property
    def start_spread_s(self) -> float | None:
        """Between the first and the last start, if the groups are meant to begin together."""
        if self.order.kind in ONE_BY_ONE or not self._started:
            return None
        return max(self._started.values()) - min(self._started.values())

    def wait(self) -> list[Rates]:
        """When every group has ended: the rates of each."""
        self._over.wait()
        return [
            Rates(
                kind=self.order.kind,
                dtype=self.order.dtype,
                blocks=tuple(self._blocks[index]),
                block_s=self._block_s[index],
                wrong_values=self._ended[index].verified is False,
                failure=self._ended[index].failure or None,
            )
            for index in range(len(self._blocks))
        ]
