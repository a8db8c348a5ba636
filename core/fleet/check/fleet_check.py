"""Measures all cards of a fleet and says which of them is slow.

The check itself is the thread `fleet-check`, which gives one order after the other and waits for its results. The main
thread calls `beat` with every event of the source: orders go out and results come in there.
"""

from __future__ import annotations

import statistics
import threading
import time
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Mapping, Sequence

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
    MeasureOrder,
    MeasuringSource,
    Readings,
)
from devexplorer.core.fleet.records import CardMeasurement, FleetVerdict, LoadReadings, MeasuredKind, Rates
from devexplorer.core.fleet.table import FleetCard, FleetTable
from devexplorer.core.fleet.verdicts import causes
from devexplorer.core.fleet.verdicts.judge import judge
from devexplorer.core.records import DeviceDetails, DeviceInfo, DeviceSample, Problem
from devexplorer.core.records.base import Record


def readings_under_load(
    samples: Sequence[DeviceSample],
    details: DeviceDetails | None = None,
    own_pids: Collection[int] = (),
    near_memory: bool | None = None,
) -> LoadReadings | None:
    """What the samples of one card say, all taken while it was measured and in their order; None without a sample.

    `own_pids`: processes that measure. Counters are the last reading less the first.
    """
    if not samples:
        return None
    processes, utilization = _others(samples, own_pids)
    return LoadReadings(
        sm_clock_mhz=_median_reading(samples, "sm_clock_mhz"),
        memory_clock_mhz=_median_reading(samples, "memory_clock_mhz"),
        power_w=_median_reading(samples, "power_w"),
        power_cap_w=_median_reading(samples, "power_cap_w"),
        temperature_c=_median_reading(samples, "temperature_c"),
        memory_temperature_c=_median_reading(samples, "memory_temperature_c"),
        throttled=_shares(samples),
        ecc_corrected=_grown(samples, "ecc_corrected"),
        ecc_uncorrected=_grown(samples, "ecc_uncorrected"),
        remapping_pending=None if details is None else _pending(details),
        pcie_generation=_most(samples, "pcie_generation"),
        pcie_width=_most(samples, "pcie_width"),
        pcie_generation_max=None if details is None else details.pcie_generation_max,
        pcie_width_max=None if details is None else details.pcie_width_max,
        pcie_replays=_grown(samples, "pcie_replays"),
        other_processes=processes,
        other_utilization_percent=utilization,
        near_memory=near_memory,
    )


def _known(samples: Sequence[DeviceSample], field: str) -> list[float]:
    return [value for sample in samples if (value := getattr(sample, field)) is not None]


def _median_reading(samples: Sequence[DeviceSample], field: str) -> float | None:
    known = _known(samples, field)
    return float(statistics.median(known)) if known else None


def _most(samples: Sequence[DeviceSample], field: str) -> int | None:
    return int(max(known)) if (known := _known(samples, field)) else None


def _grown(samples: Sequence[DeviceSample], field: str) -> int | None:
    """A counter that starts again has grown by what it shows since."""
    known = _known(samples, field)
    if len(known) < 2:
        return None
    return int(known[-1] - known[0] if known[-1] >= known[0] else known[-1])


def _shares(samples: Sequence[DeviceSample]) -> dict[str, float] | None:
    read = [sample.throttle_reasons for sample in samples if sample.throttle_reasons is not None]
    counted = Counter(reason for reasons in read for reason in set(reasons))
    return {reason: number / len(read) for reason, number in counted.items()} if read else None


def _pending(details: DeviceDetails) -> bool | None:
    known = [flag for flag in (details.remapping_pending, details.retired_pages_pending) if flag is not None]
    return any(known) if known else None


def _others(samples: Sequence[DeviceSample], own_pids: Collection[int]) -> tuple[int | None, float | None]:
    """How many processes of others there were, and the median of their kernels' share of the time together."""
    seen: set[int] = set()
    shares: list[float] = []
    read = [sample.processes for sample in samples if sample.processes is not None]
    for processes in read:
        others = [process for process in processes if process.pid not in own_pids]
        seen.update(process.pid for process in others)
        known = [process.utilization_percent for process in others if process.utilization_percent is not None]
        if known or not others:
            shares.append(sum(known))
    return (len(seen) if read else None), (statistics.median(shares) if shares else None)


SEARCH_S = 2.0
"""Of each measurement of the search for a slow link: it takes about 2 log₂ n of them."""
LEAST_BLOCKS = 3
"""That a measurement which was cancelled has to have, to say anything: its median is the one in the middle."""
AWAY_S = 20.0
"""That the link to a machine may be broken before what is measured there is given up."""
Former = Mapping[tuple[CardKey, MeasuredKind, str], tuple[float, ...]]
"""Medians of former checks, oldest first."""


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
        former: Former | None = None,
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
        self._source, self._former, self._known = source, former or {}, known or FleetTable()
        self._order: MeasureOrder | None = None
        self._orders: deque[MeasureOrder] = deque()
        self._results = CheckResults()
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
        self._spread_s: float | None = None
        self._rates: defaultdict[CardKey, list[Rates]] = defaultdict(list)
        self._samples: defaultdict[CardKey, list[DeviceSample]] = defaultdict(list)
        self._pairs: defaultdict[tuple[CardKey, MeasuredKind], list[Rates]] = defaultdict(list)
        """Of each card with its neighbours: the best of them says how fast the card itself is."""
        self._groups: list[GroupRate] = []
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
        while self._orders:
            self._order = self._orders.popleft()
            self._source.measure(self._order)
        for machine, (since_s, why) in list(self._away.items()):
            if time.monotonic() - since_s > AWAY_S:
                self._results.lose(machine, why)
        for event in events:
            match event:
                case GroupStarted() | BlocksMeasured() | GroupEnded():
                    self._results.put(event)
                case Readings():
                    self._read(event)
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
        """Share of the measurements that is over, 0 to 1; the search for slow links is not counted."""
        return min(self._over + self._share * self._results.share, 1.0)

    def know(self, former: Former) -> None:
        """What earlier checks say of these cards; any time before the end."""
        self._former = former

    def cancel(self) -> None:
        """End it; the report has what was measured until then."""
        self._cancelled.set()
        self._source.cancel()
        self._results.give_up()

    def join(self, deadline_s: float) -> bool:
        """False when the thread still runs at the deadline."""
        self._thread.join(deadline_s)
        return not self._thread.is_alive()

    def _read(self, readings: Readings) -> None:
        if self._order is None:
            return
        if self._order.kind not in ALONE and any(kind in ALONE for kind in self.plan.kinds):
            return  # cards that work alone work harder, and their readings are not mixed with others
        for sample in readings.samples:
            if self._results.runs((readings.machine, sample.device)):
                self._samples[readings.machine, sample.device].append(sample)

    def _note(self, machine: str, problems: Sequence[Problem]) -> None:
        for problem in problems:
            if problem.device is not None and problem.field is None:
                self._silent.add((machine, problem.device))

    def _lose(self, machine: str, why: str) -> None:
        self._gone[machine] = why
        self._results.lose(machine, why)

    # --- its thread

    def _run(self) -> None:
        try:
            self._measure_all()
            self._compare_machines()
        except Cancelled:
            pass
        self.report = self._conclude()

    def _measure_all(self) -> None:
        at_once = getattr(self._source, "at_once", False)
        planned = [(step, seconds_of(step, self.plan, at_once=at_once)) for step in steps(self.plan, self.cards)]
        whole_s = sum(seconds for _, seconds in planned)
        for step, seconds in planned:
            self.step, self._share = step, seconds / whole_s
            if self._is_in_time(step.kind, seconds_of(step, self.plan)):
                self._measure(step, self.plan.seconds)
            self._share, self._over = 0.0, self._over + seconds / whole_s

    def _is_in_time(self, kind: MeasuredKind, seconds: float) -> bool:
        """Whether the budget allows for it; noted where it does not."""
        budget_s = self.plan.budget_s
        if budget_s is None or time.monotonic() - self._began_s + seconds <= budget_s:
            return True
        if kind not in self._left_out:
            self._left_out.append(kind)
        return False

    def _take(self, step: CheckStep, measured: Sequence[Rates]) -> None:
        for group, until_then in zip(step.groups, measured, strict=True):
            if (rates := _so_far(until_then)) is None:
                continue
            if len(group) == 1:
                self._rates[group[0]].append(rates)
                continue
            self._groups.append(self._group_rate(step.kind, group, rates))
            if len(group) == 2 and group[0][0] == group[1][0]:
                for key in group:
                    self._pairs[key, step.kind].append(rates)

    def _group_rate(self, kind: MeasuredKind, group: tuple[CardKey, ...], rates: Rates) -> GroupRate:
        simulated = any(card.info.simulated for card in self.cards if (card.machine, card.info.id) in group)
        return GroupRate(kind=kind, cards=group, rate=_median(rates), failure=rates.failure or "", simulated=simulated)

    def _measure(self, step: CheckStep, seconds: float) -> list[Rates]:
        """One order: the rates of each of its groups, which are taken. Raises `Cancelled`, behind what was measured
        until then."""
        if self._cancelled.is_set():
            raise Cancelled("the check was cancelled")
        self._number += 1
        soak_s = self.plan.soak_s if step.kind is MeasuredKind.MATMUL else 0.0
        order = MeasureOrder(
            number=self._number, kind=step.kind, dtype=step.dtype, seconds=seconds, soak_s=soak_s, groups=step.groups
        )
        self._results.expect(order, self._gone | {machine: why for machine, (_, why) in list(self._away.items())})
        if self._cancelled.is_set():
            raise Cancelled("the check was cancelled")
        self._source.prepare(order)
        self._orders.append(order)
        measured = self._results.wait()
        spread_s = self._results.start_spread_s
        if spread_s is not None:
            self._spread_s = max(spread_s, self._spread_s or 0.0)
        self._take(step, measured)
        if self._cancelled.is_set():
            raise Cancelled("the check was cancelled")
        return measured

    def _compare_machines(self) -> None:
        """Which machine, or which way between two, slows down what all of them do together."""
        kind = MeasuredKind.ALLREDUCE
        first = {card.machine: (card.machine, card.info.id) for card in reversed(self.cards)}
        ring = [first[machine] for machine in dict.fromkeys(card.machine for card in self.cards)]
        if kind not in self.plan.kinds or len(ring) < 2:
            return
        seconds = min(SEARCH_S, self.plan.seconds)
        before = len(self._groups)
        for groups in pair_rounds([ring]):
            step = self.step = CheckStep(kind=kind, dtype="", groups=groups)
            if not self._is_in_time(kind, seconds_of(step, self.plan)):
                return
            self._measure(step, seconds)
        reached = [group.rate for group in self._groups[before:] if group.rate is not None]

        def measure(groups: Sequence[causes.Group]) -> list[float]:
            step = self.step = CheckStep(
                kind=kind, dtype="", groups=tuple(tuple(first[machine] for machine in group) for group in groups)
            )
            return [_median(rates) or 0.0 for rates in self._measure(step, seconds)]

        if len(reached) > 2 and self._is_in_time(kind, seconds * len(ring)):
            found = causes.find_slow([machine for machine, _ in ring], statistics.median(reached), measure)
            self._slow_machines = found.cards
            self._slow_links += [(first[a], first[b]) for a, b in found.links]

    def _slow_pairs(self) -> None:
        """Pairs within a machine that are slow although both of their cards are fast with others."""
        for kind in (MeasuredKind.PEER, MeasuredKind.ALLREDUCE):
            pairs = [
                (group.cards[0], group.cards[1], group.rate)
                for group in self._groups
                if group.kind is kind
                and len(group.cards) == 2
                and group.rate is not None
                and group.cards[0][0] == group.cards[1][0]
            ]
            if len(pairs) < 3:
                continue
            limit = statistics.median(rate for *_, rate in pairs) * causes.SLOW_BELOW
            fast = {key for a, b, rate in pairs if rate >= limit for key in (a, b)}
            self._slow_links += [(a, b) for a, b, rate in pairs if rate < limit and {a, b} <= fast]

    def _conclude(self) -> CheckReport:
        self._slow_pairs()
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
            start_spread_s=self._spread_s,
            left_out=tuple(self._left_out),
            cancelled=self._cancelled.is_set(),
        )

    def _measurement(self, card: FleetCard) -> CardMeasurement:
        key = card.machine, card.info.id
        details = self._known.details.get(key)
        best = [
            max(
                (rates for rates in pairs if not rates.failure),
                key=lambda rates: _median(rates) or 0.0,
                default=pairs[0],
            )
            for (paired, _), pairs in self._pairs.items()
            if paired == key
        ]
        return CardMeasurement(
            machine=card.machine,
            device=card.info.id,
            name=card.info.name,
            memory_total_bytes=card.info.memory_total_bytes,
            rates=tuple(
                Rates(
                    kind=rates.kind,
                    dtype=rates.dtype,
                    blocks=rates.blocks,
                    block_s=rates.block_s,
                    wrong_values=rates.wrong_values,
                    failure=rates.failure,
                    former=self._former.get((key, rates.kind, rates.dtype), ()),
                )
                for rates in (*self._rates[key], *best)
            ),
            power_limit_default_w=None if details is None else details.power_limit_default_w,
            readings=readings_under_load(self._samples[key], details),
            lost=card.machine in self._gone
            or (key in self._silent and any(rates.failure for rates in self._rates[key])),
            simulated=card.info.simulated,
        )


def _so_far(rates: Rates) -> Rates | None:
    """What was measured; of what was cancelled what came until then, None for too little."""
    if rates.failure != CANCELLED:
        return rates
    return replace(rates, failure=None) if len(rates.blocks) >= LEAST_BLOCKS else None


def _median(rates: Rates) -> float | None:
    return statistics.median(rates.blocks) if rates.blocks and not rates.failure else None


CANCELLED = "it was cancelled"
"""Why a group has ended that was being measured when the check was."""


class CheckResults:
    """What came of the present order; `wait` on the thread of the check, everything else on the main thread."""

    def __init__(self) -> None:
        self.start_spread_s: float | None = None
        """Between the first and the last start of the last order, if its groups are meant to begin together."""
        self._changed = threading.Condition()
        self._order: MeasureOrder | None = None
        self._blocks: list[list[float]] = []
        self._block_s: list[float | None] = []
        self._done: list[float] = []
        """Share of each group that is measured."""
        self._done_sum = 0.0
        self._groups: dict[CardKey, int] = {}
        """The group of each card; none is in two."""
        self._since_s = 0.0
        self._started: dict[int, float] = {}
        self._ended: dict[int, GroupEnded] = {}

    def expect(self, order: MeasureOrder, gone: Mapping[str, str]) -> None:
        """Another order begins."""
        with self._changed:
            self._order, self._started, self._ended, self._since_s = order, {}, {}, time.monotonic()
            self._groups = {key: index for index, group in enumerate(order.groups) for key in group}
            self._blocks = [[] for _ in order.groups]
            self._block_s = [None for _ in order.groups]
            self._done, self._done_sum = [0.0] * len(order.groups), 0.0
        for machine, why in list(gone.items()):
            self.lose(machine, why)

    def put(self, event: GroupStarted | BlocksMeasured | GroupEnded) -> None:
        """An event of a group; those of earlier orders, and of groups that there are not, are nothing."""
        with self._changed:
            order = self._order
            if order is None or event.number != order.number or not 0 <= event.group < len(order.groups):
                return
            if isinstance(event, GroupStarted):
                self._started.setdefault(event.group, event.time_unix_s)
            elif isinstance(event, GroupEnded):
                self._ended.setdefault(event.group, event)
                self._note_done(event.group, 1.0)
                self._changed.notify()
            elif event.group not in self._ended:
                blocks = self._blocks[event.group]
                blocks += event.rates
                self._block_s[event.group] = event.block_s
                self._note_done(event.group, min(len(blocks) * event.block_s / order.seconds, 1.0))

    @property
    def share(self) -> float:
        """Of the present order that is measured, 0 to 1; of a soak what has passed of its time."""
        with self._changed:
            order = self._order
            if order is None:
                return 0.0
            soaked_s = min(time.monotonic() - self._since_s, order.soak_s)
            measured = self._done_sum / len(self._done) if self._done else 1.0
            return (soaked_s + order.seconds * measured) / (order.soak_s + order.seconds)

    def _note_done(self, group: int, share: float) -> None:
        self._done_sum += share - self._done[group]
        self._done[group] = share

    def runs(self, key: CardKey) -> bool:
        """Whether a card is being measured."""
        with self._changed:
            group = self._groups.get(key)
            return group is not None and group in self._started and group not in self._ended

    def lose(self, machine: str, why: str) -> None:
        """Nothing more comes from this machine."""
        self._end(lambda group: any(name == machine for name, _ in group), why)

    def give_up(self) -> None:
        """Nothing more comes at all."""
        self._end(lambda group: True, CANCELLED)

    def _end(self, concerned: Callable[[tuple[CardKey, ...]], bool], why: str) -> None:
        with self._changed:
            if self._order is None:
                return
            for index, group in enumerate(self._order.groups):
                if index not in self._ended and concerned(group):
                    self._ended[index] = GroupEnded(number=self._order.number, group=index, failure=why)
            self._changed.notify()

    def wait(self) -> list[Rates]:
        """When every group has ended: the rates of each."""
        with self._changed:
            order = self._order
            assert order is not None
            self._changed.wait_for(lambda: len(self._ended) == len(order.groups))
            starts = () if order.kind in ONE_BY_ONE else self._started.values()
            self.start_spread_s = max(starts) - min(starts) if starts else None
            return [
                Rates(
                    kind=order.kind,
                    dtype=order.dtype,
                    blocks=tuple(self._blocks[index]),
                    block_s=self._block_s[index],
                    wrong_values=self._ended[index].verified is False,
                    failure=self._ended[index].failure or None,
                )
                for index in range(len(order.groups))
            ]
