"""One machine of a fleet through its session, here or behind a link: its events as those of a fleet, its cards measured
with the benchmarks that the window has, and several engines beginning at one moment. On the thread that drains the
session."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from devexplorer.core.allreduce.kind import AllReduceSpec, Rendezvous
from devexplorer.core.bandwidth.kind import BandwidthResult, BandwidthSpec
from devexplorer.core.base import BadInput, Clock
from devexplorer.core.fleet.check.plan import ONE_BY_ONE
from devexplorer.core.fleet.events import (
    BlocksMeasured,
    CardDetails,
    CardsListed,
    FleetEvent,
    GroupEnded,
    GroupStarted,
    MeasureOrder,
    Readings,
)
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import (
    Answer,
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchReady,
    BenchSpec,
    BenchStarted,
    Command,
    DeviceDetails,
    DeviceInfo,
    DeviceSample,
    EngineDevices,
    EngineLost,
    Event,
    JobEnded,
    MatmulSpec,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.state import State

SIDES = ((24 << 30, 8192), (4 << 30, 4096), (0, 1024))
"""Least memory in bytes, and the side of the square products of such cards: large enough to fill them."""
COPIED = 1 << 28
"""Bytes of one copy."""
REDUCED = 1 << 26
"""Bytes of each rank's tensor: large enough for the rate of the link."""
MEET_S = 30.0
"""For all ranks to meet."""
MODEL, BATCH = "resnet18", 32
AUTOCAST = ("float16", "bfloat16")
RATES = {MeasuredKind.MATMUL: "tflops", MeasuredKind.MODEL: "samples_per_s"}
"""Fields of a `BenchPoint`; `gb_per_s` of everything else."""


class Share(NamedTuple):
    """What one machine measures of a group."""

    devices: tuple[str, ...]
    meeting: Rendezvous | None = None
    """Where its ranks meet those of other machines."""


def spec_of(order: MeasureOrder, cards: Sequence[DeviceInfo], meeting: Rendezvous | None = None) -> BenchSpec:
    """The benchmark of one group, or of one machine's part in it. Raises `BadInput` where there is none."""
    card = cards[0]
    match order.kind:
        case MeasuredKind.MATMUL:
            side = next(side for least, side in SIDES if (card.memory_total_bytes or 0) >= least)
            seconds = order.soak_s + order.seconds
            return MatmulSpec(device=card.id, dtype=order.dtype, m=side, n=side, k=side, seconds=seconds)
        case MeasuredKind.MEMORY:
            return _copies(card.id, card.id, order.seconds)
        case MeasuredKind.COPIES:
            return _copies("cpu", card.id, order.seconds)
        case MeasuredKind.PEER:
            return _copies(card.id, cards[1].id, order.seconds)
        case MeasuredKind.MODEL:
            autocast = order.dtype if order.dtype in AUTOCAST else None
            return ModelSpec(target=MODEL, device=card.id, batch=BATCH, autocast=autocast, seconds=order.seconds)
        case MeasuredKind.ALLREDUCE:
            devices = tuple(card.id for card in cards)
            return AllReduceSpec(
                devices=devices, ranks=len(devices), sizes=(REDUCED,), seconds=order.seconds, limit_seconds=MEET_S,
                rendezvous=meeting,
            )  # fmt: skip
    raise BadInput(f"{order.kind.value} cannot be measured")


def _copies(source: str, destination: str, seconds: float) -> BandwidthSpec:
    return BandwidthSpec(
        sources=(source,), destinations=(destination,), sizes=(COPIED,), pinned=(True,), seconds=seconds
    )


class SomeSession(Protocol):
    """What is needed of `core.session.session.Session` and of `core.machines.window.remote_session.RemoteSession`."""

    on_drained: Callable[[PollResult], None] | None

    def send(self, command: Command) -> int:
        """Have a command carried out; returns the request number that its events will carry, 0 where it cannot be."""

    def drain(self) -> PollResult:
        """What happened since the last call."""


class SessionMember:
    """`drain` often; `measure` groups of this machine, one order at a time; `begin` when they are ready."""

    def __init__(self, name: str, session: SomeSession) -> None:
        self.name = name
        self.session = session
        self.knows_devices = False
        """Whether the engine there has said which devices it has, or cannot start."""
        self._infos: dict[str, DeviceInfo] = {}
        self._order: MeasureOrder | None = None
        self._waiting: deque[tuple[int, Share]] = deque()
        """Groups of the order, and what is measured here of each, that have not been sent."""
        self._running: dict[int, _Run] = {}
        """By request."""
        self._refused: dict[int, str] = {}
        """What the engine answered."""
        self._told: list[FleetEvent] = []
        self.on_other: Callable[[Event], None] = lambda event: None
        """Told of what happens there and is no reading."""

    def drain(self) -> list[FleetEvent]:
        """What is new on this machine."""
        return self.take(self.session.drain())

    def take(self, news: PollResult) -> list[FleetEvent]:
        """The same of what somebody else has drained."""
        events: list[FleetEvent] = []
        samples: dict[str, DeviceSample] = {}
        if news.state is not None:  # of the snapshot with which a connection begins
            devices = news.state.devices.values()
            events.append(self._listed(CardsListed(
                machine=self.name, devices=tuple(device.info for device in devices), problems=news.state.problems
            )))  # fmt: skip
            samples = {device.info.id: device.sample for device in devices if device.sample is not None}
            known = [device.details for device in devices if device.details is not None]
            events += [CardDetails(machine=self.name, details=details) for details in known]
            self._reconnected(news.state)
            self.knows_devices |= news.state.engine is not None
        if news.catalog is not None:
            events.append(self._listed(CardsListed(
                machine=self.name, devices=news.catalog.devices, problems=news.catalog.problems
            )))  # fmt: skip
        for event in news.events:
            if isinstance(event, DeviceSample):
                samples[event.device] = event
                continue
            if isinstance(event, DeviceDetails):
                events.append(CardDetails(machine=self.name, details=event))
            elif isinstance(event, EngineDevices) or (isinstance(event, EngineLost) and not event.will_restart):
                self.knows_devices = True
            self._measured(event)
            self.on_other(event)
        if samples:
            events.append(Readings(machine=self.name, samples=tuple(samples.values())))
        for run in self._running.values():
            self._told += run.blocks()
        told, self._told = self._told, []
        return [*events, *told]

    def measure(self, order: MeasureOrder, shares: Mapping[int, Share]) -> None:
        """Measure these groups of the order, as far as their cards are of this machine."""
        for request in self._running:  # of an order that was given up
            self.session.send(StopBenchmark(run=request))
        self._order = order
        self._waiting = deque(shares.items())
        self._send()

    @property
    def has_virtual(self) -> bool:
        """Whether there are virtual GPUs."""
        return any(info.simulated for info in self._infos.values())

    @property
    def is_preparing(self) -> bool:
        """Whether a group is not ready yet that will wait to begin."""
        return any(run.waits and not run.ready for run in self._running.values())

    @property
    def is_ready(self) -> bool:
        """Whether a group waits to begin."""
        return any(run.waits and run.ready for run in self._running.values())

    def begin(self, at_unix_s: float) -> None:
        """Let the groups that are ready begin at this moment."""
        for request, run in self._running.items():
            if run.waits and run.ready:
                run.waits = False
                self.session.send(BeginBenchmark(run=request, at_unix_s=at_unix_s))

    def stop(self, group: int) -> None:
        """End one group."""
        for request, run in self._running.items():
            if run.group == group:
                self.session.send(StopBenchmark(run=request))

    def cancel(self) -> None:
        """End what is being measured."""
        for group, _ in self._waiting:
            self._end(self._order, group, "it was cancelled")
        self._waiting.clear()
        for request in self._running:  # and nothing else that runs there
            self.session.send(StopBenchmark(run=request))

    def _listed(self, listed: CardsListed) -> CardsListed:
        self._infos = {info.id: info for info in listed.devices}
        return listed

    def _send(self) -> None:
        """Have the engine start what it can start now."""
        order = self._order
        while order is not None and self._waiting and not (self._running and order.kind in ONE_BY_ONE):
            group, share = self._waiting.popleft()
            missing = [device for device in share.devices if device not in self._infos]
            if missing:
                self._end(order, group, f"there is no {missing[0]} any more")
                continue
            waits = order.kind not in ONE_BY_ONE
            try:
                spec = spec_of(order, [self._infos[name] for name in share.devices], share.meeting)
            except BadInput as error:
                self._end(order, group, str(error))
                continue
            request = self.session.send(StartBenchmark(spec=spec, waits=waits))
            if request:
                self._running[request] = _Run(order, group, waits)
            else:
                self._end(order, group, "another window controls this machine, or it is not connected")

    def _measured(self, event: Event) -> None:
        match event:
            case BenchPoint() if (run := self._running.get(event.run)) is not None:
                run.take(event)
            case BenchReady() if (run := self._running.get(event.run)) is not None:
                run.ready = True
            case BenchStarted() if event.run in self._running:
                self._began(event.run, event.time_unix_s)
            case BenchEnded():
                self._over(event.run, event)
            case Answer() if event.failed and event.request in self._running:
                self._refused[event.request] = event.words
            case JobEnded() if not event.ok and event.request in self._running:
                self._gave_up(event.request, self._refused.pop(event.request, "it was not carried out"))
            case EngineLost():
                for request in list(self._running):
                    self._gave_up(request, f"the engine ended: {event.reason}")

    def _began(self, request: int, time_unix_s: float) -> None:
        run = self._running[request]
        if not run.began:
            run.waits, run.began = False, True
            self._told.append(GroupStarted(number=run.order.number, group=run.group, time_unix_s=time_unix_s))

    def _reconnected(self, state: State) -> None:
        """What is told of the runs in a snapshot takes the place of what was missed."""
        for request in list(self._running):
            run = state.runs.get(request)
            if run is None:  # it begins yet, or its end is told
                continue
            if run.ended:
                self._over(request, BenchEnded(run=request, time_unix_s=0.0, result=run.result, reason=run.reason))
            elif run.started_unix_s is not None:
                self._began(request, run.started_unix_s)

    def _gave_up(self, request: int, why: str) -> None:
        run = self._running.pop(request)
        self._told += run.blocks()
        self._end(run.order, run.group, why)
        self._send()

    def _over(self, request: int, event: BenchEnded) -> None:
        run = self._running.pop(request, None)
        if run is None:
            return
        self._told += run.blocks()
        result = event.result
        failure, verified = event.reason or "", None
        if result is not None:
            verified = result.verified
            failure = result.failure or ("it was stopped" if result.stopped else failure)
            if isinstance(result, BandwidthResult) and verified is None and result.rows[0].gb_per_s is None:
                failure = result.rows[0].reason or failure
        self._end(run.order, run.group, failure, verified)
        self._send()

    def _end(self, order: MeasureOrder | None, group: int, failure: str = "", verified: bool | None = None) -> None:
        if order is not None:
            self._told.append(GroupEnded(number=order.number, group=group, failure=failure, verified=verified))


class _Run:
    """One benchmark of one group."""

    def __init__(self, order: MeasureOrder, group: int, waits: bool) -> None:
        self.order, self.group = order, group
        self.waits = waits
        """It will not begin before it is told to."""
        self.ready = self.began = False
        self._soaked_s = 0.0
        self._any = False
        self._rates: list[float] = []
        self._seconds = 0.0
        self._simulated = False

    def take(self, point: BenchPoint) -> None:
        """A block."""
        rate: float | None = getattr(point, RATES.get(self.order.kind, "gb_per_s"))
        repeats = point.finished is not None  # its rate is the median of what came before
        if rate is None or (repeats and self._any):
            return
        if self._soaked_s < self.order.soak_s:
            self._soaked_s += point.seconds
            return
        self._rates.append(rate)
        self._seconds += point.seconds
        self._simulated, self._any = point.simulated, True

    def blocks(self) -> list[FleetEvent]:
        """Those since the last call."""
        rates, seconds = self._rates, self._seconds
        if not rates:
            return []
        self._rates, self._seconds = [], 0.0
        return [
            BlocksMeasured(
                number=self.order.number,
                group=self.group,
                rates=tuple(rates),
                block_s=seconds / len(rates),
                simulated=self._simulated,
            )
        ]


LEAD_S = 0.5
"""Until the moment: every engine has to hear of it before. One that hears of it later begins at once."""
PATIENCE_S = 30.0
"""For the last to be ready after the first was; those that are late begin as they come."""


class JointStart:
    """`beat` often."""

    def __init__(self, *, clock: Clock = time.time, monotonic: Clock = time.monotonic) -> None:
        self._clock, self._monotonic = clock, monotonic
        self._since_s: float | None = None
        """When the first was ready."""

    def beat(self, members: Sequence[SessionMember]) -> None:
        """Let those that are ready begin, if nobody has to be waited for. Leave out who will not answer."""
        ready = [member for member in members if member.is_ready]
        if not ready:
            self._since_s = None
            return
        now_s = self._monotonic()
        self._since_s = now_s if self._since_s is None else self._since_s
        if any(member.is_preparing for member in members) and now_s - self._since_s < PATIENCE_S:
            return
        at_unix_s = self._clock() + LEAD_S
        for member in ready:
            member.begin(at_unix_s)
