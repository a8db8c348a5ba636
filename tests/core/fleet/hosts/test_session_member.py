"""What a machine's session says as events of a fleet, and groups that begin together."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from devexplorer.core.allreduce.kind import AllReduceSpec
from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.fleet.events import (
    BlocksMeasured,
    CardDetails,
    CardsListed,
    FleetEvent,
    GroupEnded,
    GroupStarted,
    MeasureOrder,
)
from devexplorer.core.fleet.hosts.host_fleet import JointGroups
from devexplorer.core.fleet.hosts.session_member import LEAD_S, PATIENCE_S, JointStart, SessionMember, Share, spec_of
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import (
    Answer,
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchReady,
    BenchStarted,
    Command,
    DeviceDetails,
    DeviceInfo,
    EngineLost,
    Event,
    JobEnded,
    MatmulSpec,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.session.poll import PollResult
from devexplorer.core.session.state import State

CARDS = tuple(DeviceInfo(id=f"cuda:{index}", kind="cuda", name="card", memory_total_bytes=1 << 35) for index in (0, 1))


class Said:
    """A session: keeps commands; the test says what happens."""

    def __init__(self) -> None:
        self.sent: list[Command] = []
        self.events: list[Event] = []
        self.catalog: Catalog | None = Catalog(CARDS)
        self.state: State | None = None

    def send(self, command: Command) -> int:
        self.sent.append(command)
        return len(self.sent)

    def drain(self) -> PollResult:
        result = PollResult(self.events, self.catalog, self.state)
        self.events, self.catalog, self.state = [], None, None
        return result


class One:
    """A member with two cards, listed."""

    def __init__(self, name: str = "forge") -> None:
        self.session = Said()
        self.member = SessionMember(name, self.session)
        self.member.drain()

    def measure(self, kind: MeasuredKind = MeasuredKind.MATMUL, **order: float) -> None:
        keys = tuple(((self.member.name, card.id),) for card in CARDS)
        shares = {group: Share((card.id,)) for group, card in enumerate(CARDS)}
        self.member.measure(MeasureOrder(number=1, kind=kind, dtype="float16", groups=keys, **order), shares)

    def say(self, *events: Event) -> list[FleetEvent]:
        self.session.events += events
        return self.member.drain()

    def of(self, kind: type) -> list[Command]:
        return [command for command in self.session.sent if isinstance(command, kind)]


def ended(events: Sequence[FleetEvent]) -> list[tuple[int, str]]:
    return [(event.group, event.failure) for event in events if isinstance(event, GroupEnded)]


def point(run: int, rate: float, **more: object) -> BenchPoint:
    return BenchPoint(run=run, device="cuda:0", time_unix_s=1.0, tflops=rate, seconds=1.0, **more)  # type: ignore[arg-type]


def test_what_is_measured_waits_until_all_of_it_is_ready() -> None:
    one = One()
    one.measure()
    assert [command.waits for command in one.of(StartBenchmark)] == [True, True]  # type: ignore[attr-defined]
    assert (one.member.is_preparing, one.member.is_ready) == (True, False)
    one.say(BenchReady(run=1))
    assert (one.member.is_preparing, one.member.is_ready) == (True, True)
    one.say(BenchReady(run=2))
    one.member.begin(100.0)
    assert one.of(BeginBenchmark) == [BeginBenchmark(run=run, at_unix_s=100.0) for run in (1, 2)]
    assert not one.member.is_ready


def test_copies_begin_as_they_come_one_after_the_other() -> None:
    one = One()
    one.measure(MeasuredKind.COPIES)
    (first,) = one.of(StartBenchmark)
    assert isinstance(first, StartBenchmark)
    assert not first.waits
    assert not one.member.is_preparing
    one.say(BenchEnded(run=1, time_unix_s=2.0, result=None, reason="no"))
    assert len(one.of(StartBenchmark)) == 2


def test_blocks_of_the_soak_do_not_count() -> None:
    one = One()
    one.measure(soak_s=2.0)
    (spec, _) = (command.spec for command in one.of(StartBenchmark) if isinstance(command, StartBenchmark))
    assert isinstance(spec, MatmulSpec)
    assert spec.seconds == 12.0
    started, blocks = one.say(BenchStarted(run=1, time_unix_s=50.0), *(point(1, rate) for rate in (9.0, 8.0, 7.0, 6.0)))
    assert isinstance(started, GroupStarted)
    assert started.time_unix_s == 50.0
    assert isinstance(blocks, BlocksMeasured)
    assert blocks.rates == (7.0, 6.0)


def test_an_engine_that_dies_or_refuses_ends_its_groups_with_a_reason() -> None:
    one = One()
    one.measure()
    refused = one.say(
        Answer(request=1, title="", words="there is no room", failed=True), JobEnded(request=1, ok=False, time_unix_s=1)
    )
    assert ended(refused) == [(0, "there is no room")]
    assert ended(one.say(EngineLost(reason="It was killed.", will_restart=True, time_unix_s=1.0))) == [
        (1, "the engine ended: It was killed.")
    ]
    assert not one.member.is_preparing


def test_after_a_break_what_is_over_is_known_from_the_snapshot() -> None:
    one = One()
    one.measure()
    state = one.session.state = State()
    spec = MatmulSpec(device="cuda:0", dtype="float16", m=8, n=8, k=8)
    state.apply(BenchPreparing(run=1, spec=spec, simulated=False))
    state.apply(BenchStarted(run=1, time_unix_s=5.0))
    events = one.say()
    assert [(event.group, event.time_unix_s) for event in events if isinstance(event, GroupStarted)] == [(0, 5.0)]
    assert not ended(events)
    state = one.session.state = State()
    state.apply(BenchPreparing(run=1, spec=spec, simulated=False))
    state.apply(BenchEnded(run=1, time_unix_s=9.0, result=None, reason="it was stopped"))
    assert ended(one.say()) == [(0, "it was stopped")]
    assert ended(one.say(JobEnded(request=2, ok=False, time_unix_s=9.0))) == [(1, "it was not carried out")]


def test_details_of_cards_are_passed_on() -> None:
    details = DeviceDetails(device="cuda:0", time_unix_s=1.0, pcie_width_max=16)
    assert One().say(details) == [CardDetails(machine="forge", details=details)]


def test_a_card_that_is_gone_is_one_line() -> None:
    one = One()
    one.session.catalog = Catalog(CARDS[:1])
    (listed,) = one.say()
    assert isinstance(listed, CardsListed)
    one.measure()
    assert ended(one.say()) == [(1, "there is no cuda:1 any more")]


# --- beginning together


class Clocks:
    def __init__(self) -> None:
        self.now_s = 1000.0

    def __call__(self) -> float:
        return self.now_s


def test_all_machines_begin_at_one_moment_when_the_last_is_ready() -> None:
    clocks, fleet = Clocks(), [One("a"), One("b")]
    start, members = JointStart(clock=clocks, monotonic=clocks), [one.member for one in fleet]
    for one in fleet:
        one.measure()
    fleet[0].say(BenchReady(run=1), BenchReady(run=2))
    start.beat(members)
    assert not fleet[0].of(BeginBenchmark)
    fleet[1].say(BenchReady(run=1), BenchEnded(run=2, time_unix_s=1.0, result=None, reason="no room"))
    start.beat(members)
    moments = {command.at_unix_s for one in fleet for command in one.of(BeginBenchmark)}  # type: ignore[attr-defined]
    assert moments == {1000.0 + LEAD_S}
    assert [len(one.of(BeginBenchmark)) for one in fleet] == [2, 1]


def test_nobody_waits_for_ever_for_one_that_is_not_ready() -> None:
    clocks, fleet = Clocks(), [One("a"), One("b")]
    start, members = JointStart(clock=clocks, monotonic=clocks), [one.member for one in fleet]
    for one in fleet:
        one.measure()
    fleet[0].say(BenchReady(run=1), BenchReady(run=2))
    start.beat(members)
    clocks.now_s += PATIENCE_S
    start.beat(members)
    assert [len(one.of(BeginBenchmark)) for one in fleet] == [2, 0]
    fleet[1].say(BenchReady(run=1), BenchReady(run=2))
    start.beat(members)
    assert len(fleet[1].of(BeginBenchmark)) == 2


# --- groups over several machines


RING = MeasureOrder(
    number=1, kind=MeasuredKind.ALLREDUCE, groups=((("a", "cuda:0"), ("b", "cuda:0"), ("b", "cuda:1")),)
)


def shared(order: MeasureOrder) -> tuple[JointGroups, dict[str, dict[int, Share]], list[GroupEnded]]:
    joint = JointGroups()
    return joint, *joint.share(order, {"a": lambda: "10.0.0.1", "b": lambda: "10.0.0.2"})


def test_ranks_of_several_machines_meet_at_the_first() -> None:
    _, shares, failed = shared(RING)
    assert not failed
    meetings = [shares[machine][0].meeting for machine in ("a", "b")]
    assert [(meeting.address, meeting.world_size, meeting.first_rank) for meeting in meetings if meeting] == [
        ("10.0.0.1", 3, 0), ("10.0.0.1", 3, 1),
    ]  # fmt: skip
    assert len({meeting.port for meeting in meetings if meeting}) == 1
    spec = spec_of(RING, CARDS, meetings[1])
    assert isinstance(spec, AllReduceSpec)
    assert (spec.devices, spec.rendezvous) == (("cuda:0", "cuda:1"), meetings[1])


def test_a_group_of_several_machines_is_told_once_and_ends_when_all_have() -> None:
    joint, _, _ = shared(RING)
    started, blocks = (
        GroupStarted(number=1, group=0, time_unix_s=1.0),
        BlocksMeasured(number=1, group=0, rates=(5.0,), block_s=1.0),
    )
    over = GroupEnded(number=1, group=0, verified=True)
    assert joint.passed("b", [started, blocks, over]) == []
    assert joint.passed("a", [started, blocks, over]) == [started, blocks, over]


@pytest.mark.parametrize("lost", [False, True])
def test_where_one_machine_fails_the_others_are_stopped_and_it_is_named(lost: bool) -> None:
    joint, _, _ = shared(RING)
    if lost:
        joint.lose("b")
    else:
        joint.passed("b", [GroupEnded(number=1, group=0, failure="rank 1 ended")])
    assert joint.to_stop() == [("a", 0)]
    assert joint.to_stop() == []
    (end,) = joint.passed("a", [GroupEnded(number=1, group=0, failure="it was stopped")])
    assert isinstance(end, GroupEnded)
    assert end.failure == ("b: it was lost" if lost else "b: rank 1 ended")


def test_copies_between_machines_and_machines_that_are_gone_are_one_line() -> None:
    keys = RING.groups[0]
    _, shares, failed = shared(MeasureOrder(number=1, kind=MeasuredKind.PEER, groups=(keys, (("c", "cuda:0"),))))
    assert not shares
    assert ended(failed) == [(0, "peer is not measured between machines"), (1, "c is not there")]


def test_half_precision_of_a_model_is_autocast() -> None:
    order = MeasureOrder(number=1, kind=MeasuredKind.MODEL, dtype="bfloat16")
    assert spec_of(order, CARDS) == ModelSpec(
        target="resnet18", device="cuda:0", batch=32, autocast="bfloat16", seconds=10.0
    )


def test_one_group_can_be_stopped() -> None:
    one = One()
    one.measure()
    one.member.stop(1)
    assert one.of(StopBenchmark) == [StopBenchmark(run=2)]
