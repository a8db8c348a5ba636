"""A simulated fleet: marked as such, repeatable, with the defects that were asked for."""

from __future__ import annotations

import time

import numpy as np
import pytest

from devexplorer.core.base import BadInput
from devexplorer.core.devices.profiles import load_profiles, parse_virtual
from devexplorer.core.fleet.events import FleetMachine, GroupEnded, GroupStarted, MachineChanged, Readings
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.simulated import SimulatedFleet, VirtualCards, parse_defect, rate
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceSample
from devexplorer.core.virtual.device.cost import NETWORK_GB_S

H100 = "8x NVIDIA H100 80GB HBM3"


def test_who_drains_too_seldom_gets_the_newest_reading_of_each_machine() -> None:
    fleet = SimulatedFleet(2, parse_virtual("1x Tesla T4"))
    joined = [MachineChanged(machine=FleetMachine(name=name, state="connected")) for name in fleet.machines]
    rounds = [
        Readings(machine=name, samples=(DeviceSample(device="vgpu:0", time_unix_s=float(number)),))
        for number in range(5)
        for name in fleet.machines
    ]
    fleet._events.extend([*joined, *rounds])
    assert fleet.drain() == [*joined, *rounds[-2:]]
    fleet._measuring = True  # readings under load are wanted all
    fleet._events.extend(rounds)
    assert fleet.drain() == rounds
    fleet._measuring = False  # it has ended, but nobody was told yet
    told = [GroupStarted(number=1, group=0, time_unix_s=1.0), *rounds, GroupEnded(number=1, group=0)]
    fleet._events.extend(told)
    assert fleet.drain() == told


def test_every_card_of_every_node_reports_and_is_marked_simulated() -> None:
    fleet = SimulatedFleet(3, parse_virtual(H100), [parse_defect("lost:2/7")], interval_s=0.05)
    table = FleetTable()
    fleet.start()
    try:
        until = time.monotonic() + 20
        while not (table.machines and table.settled) and time.monotonic() < until:
            table.apply(fleet.drain())
    finally:
        assert fleet.close(5.0)
    assert list(table.machines) == ["node0", "node1", "node2"]
    assert all(machine.simulated for machine in table.machines.values())
    assert len(table.cards) == 24
    told = [sample for sample in table.samples if sample is not None]
    assert len(told) == 23
    assert all(sample.simulated for sample in told)
    assert table.problems["node2"][0].device == "vgpu:7"


def test_the_same_seed_gives_the_same_cards_and_blocks() -> None:
    first, second, other = (VirtualCards(4, parse_virtual(H100), seed=seed) for seed in (1, 1, 2))
    assert np.array_equal(first.factor, second.factor)
    assert np.array_equal(first.noise(5), second.noise(5))
    assert not np.array_equal(first.factor, other.factor)


def test_healthy_cards_and_their_blocks_have_the_declared_noise() -> None:
    cards = VirtualCards(1000, parse_virtual(H100))
    assert cards.factor.std() == pytest.approx(0.015, rel=0.05)
    assert cards.noise(10_000).std() == pytest.approx(0.01, rel=0.05)


def test_a_defect_takes_its_share_of_one_card() -> None:
    missing = VirtualCards(8, parse_virtual(H100), [parse_defect("slow:3/5:10%")]).share_missing("slow", "hot")
    assert missing[3, 5] == pytest.approx(0.1)
    assert np.count_nonzero(missing) == 1


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
    (card,) = parse_virtual("NVIDIA H100 80GB HBM3")
    assert least < rate(kind, dtype, [card, card], one_machine=True) < most


def test_between_machines_the_network_is_the_narrowest_link() -> None:
    (card,) = parse_virtual("NVIDIA H100 80GB HBM3")
    assert rate(MeasuredKind.ALLREDUCE, "", [card, card], one_machine=False) < NETWORK_GB_S


def test_a_hot_card_says_why_once_it_works() -> None:
    cards = VirtualCards(1, parse_virtual("2x NVIDIA H100 80GB HBM3"), [parse_defect("hot:0/1:20%")])
    cards.loaded[:] = True
    cards.samples(0.0, ("vgpu:0", "vgpu:1"))
    ((cool, hot),) = cards.samples(600.0, ("vgpu:0", "vgpu:1"))
    assert cool.throttle_reasons == ()
    assert hot.throttle_reasons is not None
    assert "hot" in hot.throttle_reasons[0]
    assert hot.temperature_c is not None
    assert cool.temperature_c is not None
    assert hot.temperature_c > 85 > cool.temperature_c
    assert hot.sm_clock_mhz is not None
    assert cool.sm_clock_mhz is not None
    assert hot.sm_clock_mhz == pytest.approx(0.8 * cool.sm_clock_mhz, abs=1)


def test_a_narrow_link_to_the_host_shows_in_the_readings() -> None:
    cards = VirtualCards(1, parse_virtual("2x T4"), [parse_defect("pcie:0/0")])
    ((narrow, wide),) = cards.samples(0.0, ("vgpu:0", "vgpu:1"))
    assert (narrow.pcie_width, wide.pcie_width) == (4, 16)


@pytest.mark.parametrize(
    ("name", "boost_mhz"), [("Tesla T4", 1590), ("NVIDIA A100-SXM4-80GB", 1410), ("NVIDIA H100 80GB HBM3", 1980)]
)
def test_clocks_follow_from_the_datasheet_rate(name: str, boost_mhz: int) -> None:
    assert load_profiles()[name].boost_clock_mhz == pytest.approx(boost_mhz, rel=0.02)


def test_a_defect_of_a_card_that_there_is_not_is_refused() -> None:
    with pytest.raises(BadInput, match="3 nodes with 8 cards, counted from 0"):
        VirtualCards(3, parse_virtual(H100), [parse_defect("slow:3/0")])
