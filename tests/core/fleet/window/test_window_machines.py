"""The machines of a window as a fleet: read once a second, nothing connected, and measured together through the
sessions that the window drains."""

from __future__ import annotations

import platform
import threading
from collections.abc import Callable
from typing import Any

import pytest
from fakes.fleet_tables import NOW, info, sample
from fakes.hosts import READY

from devexplorer.core.allreduce.kind import AllReduceSpec
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.fleet.check.fleet_check import FleetCheck
from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.events import BlocksMeasured, FleetEvent, GroupEnded, GroupStarted, MeasureOrder
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.fleet.window.watched_fleet import KnownInWindow, WindowMachines, address_towards
from devexplorer.core.machines.window.link import Link
from devexplorer.core.records import (
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchReady,
    BenchStarted,
    Command,
    Event,
    MatmulSpec,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.state import State

CONNECTED = Link(state="connected", since_unix_s=NOW)


def state_of(*cards: int) -> State:
    state = State()
    state.set_catalog(Catalog(tuple(info(index) for index in cards), ()))
    for index in cards:
        state.apply(sample(index))
    return state


def test_what_the_window_knows_is_read_once_a_second() -> None:
    now = [100.0]
    here, far = state_of(0), state_of(0, 1)
    link = Link(state="connected", since_unix_s=NOW)
    known = [KnownInWindow("this machine", here, None), KnownInWindow("gpu1", far, link)]
    source, table = WindowMachines(lambda: known, monotonic=lambda: now[0]), FleetTable()
    table.apply(source.drain())
    assert [card.name for card in table.cards] == ["this machine/cuda:0", "gpu1/cuda:0", "gpu1/cuda:1"]
    assert table.column("temperature_c").tolist() == [50.0] * 3
    assert source.drain() == []  # it is not due yet
    now[0] += 1
    assert source.drain() == []  # nothing is new
    far.apply(sample(1, NOW + 1, temperature_c=70.0))
    known[1] = KnownInWindow("gpu1", far, Link(state="reconnecting", since_unix_s=NOW, reason="no answer"))
    now[0] += 1
    table.apply(source.drain())
    assert table.column("temperature_c").tolist() == [50.0, 50.0, 70.0]
    assert table.machines["gpu1"].state == "reconnecting"
    assert table.machines["gpu1"].problem == "no answer"
    del known[1]
    now[0] += 1
    table.apply(source.drain())
    assert list(table.machines) == ["this machine"]


# --- measured together


class Drained:
    """A session that the window drains; the test says what comes of it."""

    def __init__(self, first: int = 0) -> None:
        self.sent: list[Command] = []
        self.on_drained: Callable[[PollResult], None] | None = None
        self._first = first

    def send(self, command: Command) -> int:
        self.sent.append(command)
        return self._first + len(self.sent)

    def drain(self) -> PollResult:
        raise AssertionError("the window drains it, nobody else")

    def say(self, *events: Event) -> None:
        if self.on_drained is not None:
            self.on_drained(PollResult(list(events), None))

    def of(self, kind: type[Any]) -> list[Any]:
        return [command for command in self.sent if isinstance(command, kind)]


class Window:
    """This machine and gpu1, with a card each."""

    def __init__(self) -> None:
        self.now = 100.0
        self.here, self.far = Drained(), Drained(first=1 << 32)
        self.states = state_of(0), state_of(0)
        for state in self.states:
            state.apply(READY)
        self.link = CONNECTED
        self.asked: list[str] = []
        self.source = WindowMachines(self.known, monotonic=lambda: self.now)
        self.source.drain()

    def known(self) -> list[KnownInWindow]:
        def address() -> str:
            self.asked.append(threading.current_thread().name)
            return "127.0.0.1"

        return [
            KnownInWindow("this machine", self.states[0], None, self.here),
            KnownInWindow("gpu1", self.states[1], self.link, self.far, address),
        ]

    def order(self, kind: MeasuredKind = MeasuredKind.MATMUL, *, together: bool = False) -> None:
        keys = (("this machine", "cuda:0"), ("gpu1", "cuda:0"))
        groups = (keys,) if together else tuple((key,) for key in keys)
        made = MeasureOrder(number=1, kind=kind, dtype="float16", seconds=1.0, groups=groups)
        self.source.prepare(made)
        self.source.measure(made)

    def drained(self) -> list[FleetEvent]:
        self.now += 0.1
        return list(self.source.drain())


def point(run: int, rate: float) -> BenchPoint:
    return BenchPoint(run=run, device="cuda:0", time_unix_s=NOW, tflops=rate, seconds=0.25)


def test_machines_measure_together_through_their_own_sessions() -> None:
    window = Window()
    window.order()
    far_run = (1 << 32) + 1
    for session in (window.here, window.far):
        (start,) = session.of(StartBenchmark)
        assert isinstance(start.spec, MatmulSpec)
        assert start.waits
    window.here.say(BenchReady(run=1))
    assert window.drained() == []
    assert not window.here.of(BeginBenchmark), "gpu1 is not ready yet"
    window.far.say(BenchReady(run=far_run))
    window.drained()
    (here,), (far,) = window.here.of(BeginBenchmark), window.far.of(BeginBenchmark)
    assert here.at_unix_s == far.at_unix_s
    window.here.say(BenchStarted(run=1, time_unix_s=NOW), point(1, 100.0), sample(0, NOW + 9))
    window.far.say(BenchStarted(run=far_run, time_unix_s=NOW), point(far_run, 90.0), point(far_run, 91.0))
    window.here.say(point(7, 1.0))  # a run of the user's
    events = window.drained()
    assert [event.rates for event in events if isinstance(event, BlocksMeasured)] == [(100.0,), (90.0, 91.0)]
    assert [type(event) for event in events] == [GroupStarted, BlocksMeasured] * 2
    window.here.say(BenchEnded(run=1, time_unix_s=NOW + 1, result=None))
    window.far.say(BenchEnded(run=far_run, time_unix_s=NOW + 1, result=None))
    assert [(event.group, event.failure) for event in window.drained() if isinstance(event, GroupEnded)] == [
        (0, ""),
        (1, ""),
    ]
    window.source.rest()
    assert (window.here.on_drained, window.far.on_drained) == (None, None)


def test_a_check_that_is_cancelled_stops_its_own_runs_alone() -> None:
    window = Window()
    window.order()
    window.source.cancel()
    assert window.here.of(StopBenchmark) == [StopBenchmark(run=1)]
    assert window.far.of(StopBenchmark) == [StopBenchmark(run=(1 << 32) + 1)]


def test_a_session_that_was_replaced_is_not_listened_to_any_more() -> None:
    window = Window()
    window.order()
    before, window.here = window.here, Drained()
    window.order()
    assert before.on_drained is None
    assert len(window.here.of(StartBenchmark)) == 1
    window.source.rest()
    assert (window.here.on_drained, window.far.on_drained) == (None, None)


def test_ranks_of_two_machines_meet_at_an_address_that_was_asked_for_on_another_thread() -> None:
    window = Window()
    thread = threading.Thread(target=window.order, args=(MeasuredKind.ALLREDUCE,), kwargs={"together": True}, name="x")
    thread.start()
    thread.join()
    specs = [session.of(StartBenchmark)[0].spec for session in (window.here, window.far)]
    assert all(isinstance(spec, AllReduceSpec) for spec in specs)
    meetings = [spec.rendezvous for spec in specs]
    assert [(one.address, one.world_size, one.first_rank) for one in meetings] == [
        ("127.0.0.1", 2, 0),
        ("127.0.0.1", 2, 1),
    ]
    assert window.asked == ["x"]


def test_machines_that_cannot_measure_are_left_out_with_the_reason() -> None:
    window = Window()
    assert window.source.left_out() == {}
    window.link = Link(state="connected", since_unix_s=NOW, holder="Ada")
    assert window.source.left_out() == {"gpu1": "Ada controls it"}
    window.link = Link(state="reconnecting", since_unix_s=NOW, reason="no answer")
    assert window.source.left_out() == {"gpu1": "it is not connected: no answer"}
    window.link = CONNECTED
    window.states[0].engine = None
    assert window.source.left_out() == {"this machine": "its engine does not run"}


def test_a_machine_that_cannot_measure_any_more_fails_in_one_line() -> None:
    window = Window()
    window.link = Link(state="reconnecting", since_unix_s=NOW, reason="no answer")
    window.order()
    ended = [event for event in window.drained() if isinstance(event, GroupEnded)]
    assert [(event.group, event.failure) for event in ended] == [(1, "it is not connected: no answer")]
    assert len(window.here.of(StartBenchmark)) == 1


def test_a_machine_that_was_taken_off_the_window_is_not_waited_for() -> None:
    window = Window()
    check = FleetCheck(window.source, _cards(window), CheckPlan(kinds=(MeasuredKind.MATMUL,)))
    check.start()
    while not window.here.of(StartBenchmark):
        check.beat(window.drained())
    window.source._machines = lambda: window.known()[:1]
    window.now += 1
    check.beat(window.drained())
    window.here.say(BenchReady(run=1))
    check.beat(window.drained())
    assert window.here.of(BeginBenchmark), "gpu1 is not waited for"
    window.here.say(
        BenchStarted(run=1, time_unix_s=NOW), *[point(1, 100.0)] * 9, BenchEnded(run=1, time_unix_s=NOW, result=None)
    )
    while check.report is None:
        check.beat(window.drained())
    assert check.join(20.0)
    assert [(card.lost, len(card.rates[0].blocks)) for card in check.report.measurements] == [(False, 9), (True, 0)]


def _cards(window: Window) -> list[Any]:
    table = FleetTable()
    window.now += 1
    source = WindowMachines(window.known, monotonic=lambda: window.now)
    table.apply(source.drain())
    return table.cards


@pytest.mark.parametrize(("other", "address"), [("127.0.0.1", "127.0.0.1"), ("no such place.", platform.node())])
def test_the_address_by_which_others_reach_this_machine(other: str, address: str) -> None:
    assert address_towards(other) == address
