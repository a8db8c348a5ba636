"""A check of a whole fleet: every injected fault is found at its card, with its cause, and nothing else is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.fleet.check.fleet_check import CheckReport, FleetCheck, OrderResults
from devexplorer.core.fleet.check.plan import CheckPlan, CheckStep, parse_kinds, seconds_of, steps, within_budget
from devexplorer.core.fleet.events import (
    BlocksMeasured,
    CardDetails,
    CardsListed,
    FleetEvent,
    FleetMachine,
    GroupEnded,
    GroupStarted,
    MachineChanged,
    MeasureOrder,
)
from devexplorer.core.fleet.records import CardVerdict, CauseId, MeasuredKind, Verdict
from devexplorer.core.fleet.report.document import check_document, failures, interrupted_line
from devexplorer.core.fleet.simulated import SimulatedFleet, parse_defect
from devexplorer.core.fleet.table import FleetCard, FleetTable
from devexplorer.core.records import DeviceDetails, DeviceInfo

PATIENCE_S = 60.0
EIGHT = "8x NVIDIA H100 80GB HBM3"


def checked(nodes: int, *defects: str, seed: int = 0, known: bool = False, **plan: object) -> CheckReport:
    source = SimulatedFleet(
        nodes, parse_virtual(EIGHT), [parse_defect(text) for text in defects], seed=seed, hurries=True
    )
    table = FleetTable()
    source.start()
    try:
        until(lambda: bool(table.machines) and table.settled, lambda: table.apply(source.drain()))
        check = FleetCheck(source, table.cards, CheckPlan(**{"seconds": 10.0} | plan), known=table if known else None)  # type: ignore[arg-type]
        check.start()
        until(lambda: check.report is not None, lambda: check.beat(source.drain()))
        assert check.join(PATIENCE_S)
        assert check.report is not None
        return check.report
    finally:
        assert source.close(PATIENCE_S)


def until(happened: object, step: object) -> None:
    end = time.monotonic() + PATIENCE_S
    while not happened():  # type: ignore[operator]
        assert time.monotonic() < end, "it did not happen"
        step()  # type: ignore[operator]


def peculiar(report: CheckReport) -> dict[str, CardVerdict]:
    return {
        f"{card.machine}/{card.device}": card for card in report.verdict.cards if card.verdict is not Verdict.NORMAL
    }


def test_every_fault_is_found_at_its_card_with_its_cause() -> None:
    report = checked(4, "slow:3/5:10%", "hot:1/1", "pcie:2/2", "link:0/4", "lost:2/7")
    found = peculiar(report)
    causes = {name: card.cause for name, card in found.items()}
    assert causes == {
        "node0/vgpu:4": CauseId.LINK,
        "node1/vgpu:1": CauseId.THERMAL,
        "node2/vgpu:2": CauseId.PCIE_WIDTH,
        "node2/vgpu:7": None,
        "node3/vgpu:5": CauseId.CARD,
    }
    assert found["node3/vgpu:5"].ratio == pytest.approx(0.9, abs=0.05)
    assert found["node2/vgpu:7"].verdict is Verdict.FAILED
    assert all(card.simulated for card in report.verdict.cards)


@pytest.mark.parametrize("kind", [MeasuredKind.PEER, MeasuredKind.ALLREDUCE])
def test_the_cause_of_a_slow_link_is_named_where_only_links_are_measured(kind: MeasuredKind) -> None:
    found = peculiar(checked(2, "link:1/3", kinds=(kind,)))
    assert {name: card.cause for name, card in found.items()} == {"node1/vgpu:3": CauseId.LINK}


def test_how_much_is_done_follows_the_time_that_it_takes() -> None:
    """Copies have a turn for each card of a machine where an engine makes them; a simulation makes them at once."""
    plan, fleet = CheckPlan(seconds=20.0), cards(8)
    by_engine = [seconds_of(step, plan) for step in steps(plan, fleet) if step.kind is MeasuredKind.COPIES]
    at_once = [seconds_of(step, plan, at_once=True) for step in steps(plan, fleet) if step.kind is MeasuredKind.COPIES]
    assert (by_engine, at_once) == ([8 * 23.0], [23.0])
    assert SimulatedFleet.at_once


def test_a_machine_that_slows_all_of_them_down_is_named() -> None:
    report = checked(5, "link:3/0:90%", kinds=(MeasuredKind.ALLREDUCE,))
    assert report.slow_machines == ("node3",)


def test_one_card_after_the_other_gives_the_same_verdict() -> None:
    report = checked(2, "slow:1/3:20%", kinds=(MeasuredKind.MATMUL,), in_turn=True)
    assert list(peculiar(report)) == ["node1/vgpu:3"]


# --- what is measured when


def cards(*numbers: int) -> list[FleetCard]:
    return [
        FleetCard(f"m{machine}", DeviceInfo(id=f"cuda:{card}", kind="cuda", name="card"))
        for machine, number in enumerate(numbers)
        for card in range(number)
    ]


@pytest.mark.parametrize("number", [2, 3, 4, 5, 8])
def test_every_card_is_in_two_pairs_and_never_in_two_at_once(number: int) -> None:
    rounds = list(steps(CheckPlan(kinds=(MeasuredKind.PEER,)), cards(number, number)))
    pairs = [pair for step in rounds for pair in step.groups]
    assert len(pairs) == len(set(pairs)) == 2 * (number if number > 2 else 1)
    for step in rounds:
        members = [key for pair in step.groups for key in pair]
        assert len(members) == len(set(members))


def test_products_are_measured_in_each_dtype_and_everything_on_all_cards() -> None:
    plan = CheckPlan(kinds=(MeasuredKind.COPIES, MeasuredKind.MATMUL), dtypes=("float16", "float32"))
    planned: list[CheckStep] = list(steps(plan, cards(2, 1)))
    assert [(step.kind, step.dtype) for step in planned] == [
        (MeasuredKind.COPIES, ""), (MeasuredKind.MATMUL, "float16"), (MeasuredKind.MATMUL, "float32"),
    ]  # fmt: skip
    assert all(len(step.groups) == 3 for step in planned)


def test_a_kind_that_is_named_twice_is_measured_once() -> None:
    assert parse_kinds("memory, matmul,memory") == (MeasuredKind.MEMORY, MeasuredKind.MATMUL)


# --- a source that the test plays


class Played:
    """Keeps orders; the test says what comes of them."""

    def __init__(self) -> None:
        self.orders: list[MeasureOrder] = []
        self.cancelled = False

    def start(self) -> None:
        """Nothing to start."""

    def drain(self) -> Sequence[FleetEvent]:
        return ()

    def prepare(self, order: MeasureOrder) -> None:
        """Nothing has to be found out."""

    def measure(self, order: MeasureOrder) -> None:
        self.orders.append(order)

    def cancel(self) -> None:
        self.cancelled = True

    def close(self, deadline_s: float) -> bool:
        return True


class Playing:
    """A check of matmul alone over three machines with one card each."""

    def __init__(self) -> None:
        self.source = Played()
        self.check = FleetCheck(self.source, cards(1, 1, 1), CheckPlan(kinds=(MeasuredKind.MATMUL,)))
        self.check.start()
        self.until(lambda: self.source.orders)

    def until(self, happened: object) -> None:
        until(happened, lambda: self.check.beat(()))

    def say(self, *events: FleetEvent) -> None:
        self.check.beat(events)

    def measured(self, group: int, rate: float) -> list[FleetEvent]:
        return [
            GroupStarted(number=1, group=group, time_unix_s=100.0 + 0.01 * group),
            BlocksMeasured(number=1, group=group, rates=(rate,) * 40, block_s=0.25),
            GroupEnded(number=1, group=group),
        ]

    @property
    def report(self) -> CheckReport:
        self.until(lambda: self.check.report)
        assert self.check.report is not None
        return self.check.report


@pytest.fixture
def playing() -> Iterator[Playing]:
    made = Playing()
    yield made
    made.check.cancel()
    assert made.check.join(PATIENCE_S)


def test_a_machine_that_dies_keeps_the_results_of_the_others(playing: Playing) -> None:
    playing.say(*playing.measured(0, 100.0), *playing.measured(2, 101.0))
    playing.say(MachineChanged(machine=FleetMachine(name="m1", state="lost", problem="the node died")))
    report = playing.report
    assert [card.lost for card in report.measurements] == [False, True, False]
    assert [len(card.rates[0].blocks) for card in report.measurements] == [40, 0, 40]
    assert report.measurements[1].rates[0].failure == "the node died"


def test_wrong_values_are_a_failed_card(playing: Playing) -> None:
    playing.say(*playing.measured(0, 100.0), *playing.measured(1, 100.0))
    playing.say(*playing.measured(2, 100.0)[:2], GroupEnded(number=1, group=2, verified=False))
    assert [card.verdict for card in playing.report.verdict.cards][2] is Verdict.FAILED


def test_what_was_measured_until_a_check_is_cancelled_is_kept_and_no_card_fails_for_it(playing: Playing) -> None:
    playing.say(*playing.measured(0, 100.0))  # to its end
    playing.say(*playing.measured(1, 101.0)[:2])  # in the middle
    playing.say(playing.measured(2, 99.0)[0])  # just begun
    playing.check.cancel()
    report = playing.report
    assert report.cancelled
    assert playing.source.cancelled
    assert [[len(rates.blocks) for rates in card.rates] for card in report.measurements] == [[40], [40], []]
    assert failures(report) == []
    assert {card.verdict for card in report.verdict.cards} == {Verdict.UNKNOWN}
    assert report.measured == (MeasuredKind.MATMUL,)
    assert interrupted_line(report).endswith("s: only what was measured until then is judged")
    document = check_document(report)
    assert document["cancelled"]
    assert document["measured"] == ["matmul"]


def test_a_few_blocks_of_a_cancelled_measurement_say_nothing(playing: Playing) -> None:
    for group in range(3):
        playing.say(*playing.measured(group, 100.0)[:1])
        playing.say(BlocksMeasured(number=1, group=group, rates=(100.0, 90.0), block_s=0.25))
    playing.check.cancel()
    report = playing.report
    assert not report.measured
    assert interrupted_line(report).endswith("; not measured: matmul")


def test_how_much_is_done_follows_what_is_measured() -> None:
    source = Played()
    plan = CheckPlan(kinds=(MeasuredKind.MATMUL, MeasuredKind.MEMORY), seconds=10.0)
    check = FleetCheck(source, cards(1, 1), plan)
    assert check.done == 0.0
    check.start()
    until(lambda: source.orders, lambda: check.beat(()))
    check.beat([BlocksMeasured(number=1, group=0, rates=(1.0,) * 20, block_s=0.25)])
    assert check.done == pytest.approx(0.5 * 0.25)  # half of one card of two, of one kind of two
    check.beat([BlocksMeasured(number=1, group=0, rates=(1.0,) * 40, block_s=0.25), GroupEnded(number=1, group=0)])
    assert check.done == pytest.approx(0.5 * 0.5)
    check.beat([GroupEnded(number=1, group=1)])
    until(lambda: len(source.orders) == 2, lambda: check.beat(()))
    assert check.done == pytest.approx(0.5)
    check.beat([GroupEnded(number=2, group=0), GroupEnded(number=2, group=1)])
    assert check.join(PATIENCE_S)
    assert check.done == pytest.approx(1.0)


def test_an_order_for_nobody_is_over_at_once() -> None:
    assert OrderResults(MeasureOrder(number=1, kind=MeasuredKind.MATMUL)).wait() == []


def test_events_of_other_orders_and_groups_are_nothing(playing: Playing) -> None:
    devices = CardsListed(machine="m0", devices=())
    playing.say(devices, GroupEnded(number=7, group=0), GroupEnded(number=1, group=9))
    for group in range(3):
        playing.say(*playing.measured(group, 100.0))
    assert [len(card.rates[0].blocks) for card in playing.report.measurements] == [40, 40, 40]


def test_default_limits_and_lanes_of_the_cards_are_part_of_what_is_judged() -> None:
    known = FleetTable()
    details = DeviceDetails(device="cuda:0", time_unix_s=1.0, power_limit_default_w=700.0, pcie_width_max=16)
    known.apply([CardDetails(machine="m0", details=details)])
    check = FleetCheck(Played(), cards(1, 1), CheckPlan(), known=known)
    assert [check._measurement(card).power_limit_default_w for card in check.cards] == [700.0, None]


# --- a budget of time


def test_a_budget_shortens_each_measurement() -> None:
    plan = CheckPlan(kinds=(MeasuredKind.MATMUL, MeasuredKind.COPIES), seconds=20.0, budget_s=40.0)
    fleet = cards(2, 1)
    fitting = within_budget(plan, fleet)
    assert 2.0 < fitting.seconds < 20.0
    assert sum(seconds_of(step, fitting) for step in steps(fitting, fleet)) == pytest.approx(40.0)
    assert within_budget(CheckPlan(budget_s=1e6), fleet).seconds == CheckPlan().seconds


def test_a_budget_for_nothing_is_refused() -> None:
    with pytest.raises(BadInput, match="a budget of 3 s is too short: the first measurement alone takes 5 s"):
        within_budget(CheckPlan(budget_s=3.0), cards(2))


def test_what_is_beyond_the_budget_is_left_out_and_said(playing: Playing) -> None:
    source = Played()
    check = FleetCheck(source, cards(1), CheckPlan(kinds=(MeasuredKind.MATMUL, MeasuredKind.MEMORY), budget_s=0.0))
    check.start()
    assert check.join(PATIENCE_S)
    assert check.report is not None
    assert check.report.left_out == (MeasuredKind.MATMUL, MeasuredKind.MEMORY)
    assert not source.orders


# --- links that break


def test_a_broken_link_costs_what_is_measured_there_and_nothing_else(
    playing: Playing, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.core.fleet.check.fleet_check.AWAY_S", -1.0)
    playing.say(*playing.measured(0, 100.0), *playing.measured(2, 101.0))
    playing.say(MachineChanged(machine=FleetMachine(name="m1", state="reconnecting", problem="nothing has come")))
    report = playing.report
    assert [card.lost for card in report.measurements] == [False, False, False]
    assert [len(card.rates[0].blocks) for card in report.measurements] == [40, 0, 40]
    assert failures(report) == ["m1: cuda:0: matmul float16: the connection broke: nothing has come"]


def test_a_soak_is_ordered_for_products_alone() -> None:
    source = Played()
    check = FleetCheck(source, cards(1), CheckPlan(kinds=(MeasuredKind.MATMUL, MeasuredKind.MEMORY), soak_s=60.0))
    check.start()
    for number in (1, 2):
        until(lambda: len(source.orders) == number, lambda: check.beat(()))  # noqa: B023
        check.beat([GroupEnded(number=number, group=0)])
    assert check.join(PATIENCE_S)
    assert [order.soak_s for order in source.orders] == [60.0, 0.0]
