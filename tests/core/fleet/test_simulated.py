"""A simulated fleet: marked as such, repeatable, with the defects that were asked for."""

from __future__ import annotations

import time

import numpy as np
import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import load_profiles, parse_virtual
from devexplorer.core.fleet.events import BlocksMeasured, FleetEvent, GroupEnded, GroupStarted, MeasureOrder, Readings
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.simulated import PARTS, Defect, SimulatedFleet, parse_defect, rate
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceSample
from devexplorer.core.virtual.device.cost import NETWORK_GB_S

H100 = parse_virtual("8x NVIDIA H100 80GB HBM3")


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("slow:3/5:10%", Defect("slow", 3, 5, 0.1)),
        (" hot:0/0 ", Defect("hot", 0, 0, 0.2)),
        ("pcie:12/7:50.5%", Defect("pcie", 12, 7, 0.505)),
        ("lost:1/2", Defect("lost", 1, 2, 1.0)),
    ],
)
def test_a_defect_is_a_kind_a_card_and_a_share(text: str, meant: Defect) -> None:
    assert parse_defect(text) == meant


@pytest.mark.parametrize(
    "text",
    ["", "slow", "slow:3", "slow:3/5:10", "broken:1/1", "slow:3/5:100%", "slow:-1/0", "slow:1/1:0%", "lost:1/1:5%"],
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(BadInput, match="write KIND:NODE/CARD:SHARE"):
        parse_defect(text)


def test_a_defect_of_a_card_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadInput, match="3 nodes with 8 cards, counted from 0"):
        SimulatedFleet(3, H100, [parse_defect("slow:3/0")])


def measured(fleet: SimulatedFleet, seconds: float, *, soak_s: float = 0.0) -> list[FleetEvent]:
    """Products on the first card of each machine, to their end."""
    groups = tuple(((machine, "vgpu:0"),) for machine in fleet.machines)
    fleet.measure(
        MeasureOrder(number=1, kind=MeasuredKind.MATMUL, dtype="float16", seconds=seconds, soak_s=soak_s, groups=groups)
    )
    events: list[FleetEvent] = []
    while sum(isinstance(event, GroupEnded) for event in events) < len(groups):
        drained = fleet.drain()
        assert drained, "it hurries"
        events += drained
    return events


def test_every_card_of_every_node_reports_at_once_and_is_marked_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "monotonic", lambda: 100.0)
    fleet, table = SimulatedFleet(30, H100, [parse_defect("lost:2/7")]), FleetTable()
    fleet.start()
    table.apply(fleet.drain())
    assert table.settled
    assert list(table.machines)[:3] == ["node0", "node1", "node2"]
    assert [table.machines[name].rack for name in ("node7", "node8")] == ["rack0", "rack1"]
    assert all(machine.simulated for machine in table.machines.values())
    told = [sample for sample in table.samples if sample is not None]
    assert (len(table.cards), len(told)) == (240, 239)
    assert all(sample.simulated and sample.throttle_reasons == ("idle",) for sample in told)
    assert table.problems["node2"][0].device == "vgpu:7"
    assert not fleet.drain()  # until the next reading is due


def test_readings_come_one_part_of_the_machines_after_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    now_s = 100.0
    monkeypatch.setattr(time, "monotonic", lambda: now_s)
    fleet = SimulatedFleet(2 * PARTS, H100)
    fleet.drain()
    now_s += 1.01 / PARTS
    assert [event.machine for event in fleet.drain() if isinstance(event, Readings)] == ["node0", "node20"]
    now_s += 100.0  # who comes late gets one of each
    assert len(fleet.drain()) == 2 * PARTS


def test_a_measurement_that_hurries_takes_simulated_time() -> None:
    fleet = SimulatedFleet(3, H100, [parse_defect("lost:2/0"), parse_defect("slow:1/0:50%")], hurries=True)
    events = measured(fleet, 20.0, soak_s=30.0)
    started = [event.time_unix_s for event in events if isinstance(event, GroupStarted)]
    samples = [event for event in events if isinstance(event, Readings) and event.machine == "node0"]
    assert len(started) == 2
    assert samples[-1].samples[0].time_unix_s - started[0] == pytest.approx(50, abs=2)
    assert samples[-2].samples[0].utilization_percent == 100
    blocks = [event for event in events if isinstance(event, BlocksMeasured)]
    rates = [np.array([rate for event in blocks if event.group == group for rate in event.rates]) for group in (0, 1)]
    assert [len(each) for each in rates] == [80, 80]  # of a quarter of a second; the soak does not count
    assert rates[1].mean() / rates[0].mean() == pytest.approx(0.5, rel=0.1)
    assert rates[0].std() / rates[0].mean() == pytest.approx(0.01, rel=0.3)
    ended = {event.group: event.failure for event in events if isinstance(event, GroupEnded)}
    assert ended == {0: "", 1: "", 2: "the card does not answer (a simulated defect)"}


def test_the_same_seed_gives_the_same_cards_and_blocks() -> None:
    def blocks(seed: int) -> list[FleetEvent]:
        made = measured(SimulatedFleet(1, H100, seed=seed, hurries=True), 1.0)
        return [event for event in made if isinstance(event, BlocksMeasured)]

    assert blocks(1) == blocks(1) != blocks(2)


def test_healthy_cards_have_the_declared_noise() -> None:
    assert SimulatedFleet(1000, H100).factor.std() == pytest.approx(0.015, rel=0.05)


@pytest.mark.parametrize(
    ("kind", "dtype", "least", "most"),
    [
        (MeasuredKind.MATMUL, "float16", 500, 989.5),
        (MeasuredKind.MEMORY, "", 1000, 3350 / 2),
        (MeasuredKind.COPIES, "", 30, 63),
        (MeasuredKind.PEER, "", 300, 450),
    ],
)
def test_rates_lie_below_the_datasheet(kind: MeasuredKind, dtype: str, least: float, most: float) -> None:
    assert least < rate(kind, dtype, H100[:2], one_machine=True) < most


def test_between_machines_the_network_is_the_narrowest_link() -> None:
    assert rate(MeasuredKind.ALLREDUCE, "", H100[:2], one_machine=False) < NETWORK_GB_S


def test_defects_show_in_the_readings() -> None:
    fleet = SimulatedFleet(
        2, H100[:1], [parse_defect("hot:1/0:20%"), parse_defect("pcie:0/0")], hurries=True
    )  # fmt: skip
    last: dict[str, DeviceSample] = {}
    for event in measured(fleet, 600.0)[:-4]:
        if isinstance(event, Readings) and event.samples[0].utilization_percent:
            last[event.machine] = event.samples[0]
    cool, hot = last["node0"], last["node1"]
    assert (cool.throttle_reasons, hot.throttle_reasons) == ((), ("too hot (the driver lowers the clocks)",))
    assert (cool.pcie_width, hot.pcie_width) == (4, 16)
    assert (hot.temperature_c or 0) > 85 > (cool.temperature_c or 99)
    assert (hot.sm_clock_mhz or 0) == pytest.approx(0.8 * (cool.sm_clock_mhz or 0), abs=1)


@pytest.mark.parametrize(
    ("name", "boost_mhz"), [("Tesla T4", 1590), ("NVIDIA A100-SXM4-80GB", 1410), ("NVIDIA H100 80GB HBM3", 1980)]
)
def test_clocks_follow_from_the_datasheet_rate(name: str, boost_mhz: int) -> None:
    assert load_profiles()[name].boost_clock_mhz == pytest.approx(boost_mhz, rel=0.02)
