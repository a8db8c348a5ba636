"""One machine of a fleet through its session, here or behind a link: its events as those of a fleet, its cards measured
with the benchmarks that the window has. On the thread that drains the session."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Mapping
from typing import Protocol

from devexplorer.core.fleet.measurements import spec_of
from devexplorer.core.records import (
    Answer,
    BandwidthResult,
    BenchEnded,
    BenchPoint,
    BenchStarted,
    Command,
    DeviceInfo,
    DeviceSample,
    Event,
    JobEnded,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.records.fleet import MeasuredKind
from devexplorer.core.records.fleet_events import (
    BlocksMeasured,
    CardsListed,
    FleetEvent,
    GroupEnded,
    GroupStarted,
    MeasureOrder,
    Readings,
)
from devexplorer.core.session.poll import PollResult

ONE_BY_ONE = (MeasuredKind.COPIES, MeasuredKind.PEER)
"""They keep the host or two cards busy: an engine has one such run at a time."""


class SomeSession(Protocol):
    """What is needed of `core.session.session.Session` and of `core.machines.remote_session.RemoteSession`."""

    def send(self, command: Command) -> int:
        """Have a command carried out; returns the request number that its events will carry, 0 where it cannot be."""
        ...

    def drain(self) -> PollResult:
        """What happened since the last call."""
        ...


class SessionMember:
    """`drain` often; `measure` groups of this machine, one order at a time."""

    def __init__(self, name: str, session: SomeSession) -> None:
        self.name = name
        self.session = session
        self._infos: dict[str, DeviceInfo] = {}
        self._order: MeasureOrder | None = None
        self._waiting: deque[tuple[int, tuple[str, ...]]] = deque()
        """Groups of the order, and their devices, that have not begun."""
        self._running: dict[int, _Run] = {}
        """By request."""
        self._refused: dict[int, str] = {}
        """What the engine answered."""
        self._told: list[FleetEvent] = []
        self.on_other: Callable[[Event], None] = lambda event: None
        """Told of what happens there and is no reading."""

    def drain(self) -> list[FleetEvent]:
        """What is new on this machine."""
        news = self.session.drain()
        events: list[FleetEvent] = []
        samples: dict[str, DeviceSample] = {}
        if news.state is not None:  # of the snapshot with which a connection begins
            devices = news.state.devices.values()
            events.append(self._listed(CardsListed(
                machine=self.name, devices=tuple(device.info for device in devices), problems=news.state.problems
            )))  # fmt: skip
            samples = {device.info.id: device.sample for device in devices if device.sample is not None}
        if news.catalog is not None:
            events.append(self._listed(CardsListed(
                machine=self.name, devices=news.catalog.devices, problems=news.catalog.problems
            )))  # fmt: skip
        for event in news.events:
            if isinstance(event, DeviceSample):
                samples[event.device] = event
                continue
            if self._order is not None:
                self._measured(event)
            self.on_other(event)
        if samples:
            events.append(Readings(machine=self.name, samples=tuple(samples.values())))
        for run in self._running.values():
            self._told += run.blocks()
        told, self._told = self._told, []
        return [*events, *told]

    def measure(self, order: MeasureOrder, groups: Mapping[int, tuple[str, ...]]) -> None:
        """Measure these groups of the order, all of whose cards are of this machine."""
        self._order = order
        self._waiting = deque(groups.items())
        self._begin()

    def cancel(self) -> None:
        """End what is being measured."""
        for group, _ in self._waiting:
            self._end(group, "it was cancelled")
        self._waiting.clear()
        if self._running:
            self.session.send(StopBenchmark(run=None))

    def _listed(self, listed: CardsListed) -> CardsListed:
        self._infos = {info.id: info for info in listed.devices}
        return listed

    def _begin(self) -> None:
        """Start what can be started now."""
        order = self._order
        while order is not None and self._waiting and not (self._running and order.kind in ONE_BY_ONE):
            group, devices = self._waiting.popleft()
            missing = [device for device in devices if device not in self._infos]
            if missing:
                self._end(group, f"there is no {missing[0]} any more")
                continue
            request = self.session.send(StartBenchmark(spec=spec_of(order, [self._infos[name] for name in devices])))
            if request:
                self._running[request] = _Run(order, group)
            else:
                self._end(group, "another window controls this machine, or it is not connected")

    def _measured(self, event: Event) -> None:
        if isinstance(event, BenchPoint):
            if (run := self._running.get(event.run)) is not None:
                run.take(event)
        elif isinstance(event, BenchStarted):
            if (run := self._running.get(event.run)) is not None:
                self._told.append(GroupStarted(number=run.order.number, group=run.group, time_unix_s=event.time_unix_s))
        elif isinstance(event, BenchEnded):
            if (run := self._running.pop(event.run, None)) is not None:
                self._told += run.blocks()
                self._ended(run, event)
                self._begin()
        elif isinstance(event, Answer) and event.failed:
            self._refused[event.request] = event.words
        elif isinstance(event, JobEnded) and not event.ok and event.request in self._running:
            run = self._running.pop(event.request)
            self._end(run.group, self._refused.pop(event.request, "the engine refused it"))
            self._begin()

    def _ended(self, run: _Run, event: BenchEnded) -> None:
        result = event.result
        failure, verified = event.reason or "", None
        if result is not None:
            verified = result.verified
            failure = result.failure or ("it was stopped" if result.stopped else failure)
            if isinstance(result, BandwidthResult) and verified is None and result.rows[0].gb_per_s is None:
                failure = result.rows[0].reason or failure
        self._end(run.group, failure, verified)

    def _end(self, group: int, failure: str = "", verified: bool | None = None) -> None:
        assert self._order is not None
        self._told.append(GroupEnded(number=self._order.number, group=group, failure=failure, verified=verified))


class _Run:
    """One benchmark of one group."""

    def __init__(self, order: MeasureOrder, group: int) -> None:
        self.order, self.group = order, group
        self._rates: list[float] = []
        self._seconds = 0.0
        self._simulated = False

    def take(self, point: BenchPoint) -> None:
        """A block."""
        rate = _RATE[self.order.kind](point)
        if rate is not None and point.row is None:  # the point of a finished row repeats its median
            self._rates.append(rate)
            self._seconds += point.seconds
            self._simulated = point.simulated

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


def _gb_per_s(point: BenchPoint) -> float | None:
    return point.gb_per_s


_RATE: dict[MeasuredKind, Callable[[BenchPoint], float | None]] = {
    MeasuredKind.MATMUL: lambda point: point.tflops,
    MeasuredKind.MODEL: lambda point: point.samples_per_s,
    MeasuredKind.MEMORY: _gb_per_s,
    MeasuredKind.COPIES: _gb_per_s,
    MeasuredKind.PEER: _gb_per_s,
    MeasuredKind.ALLREDUCE: _gb_per_s,
}
