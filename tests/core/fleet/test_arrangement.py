"""Thousands of cards as lines: grouped, folded, filtered, sorted."""

from __future__ import annotations

import numpy as np
from fakes.fleet_tables import joined, table

from devexplorer.core.fleet.events import CardsListed, FleetMachine, MachineChanged
from devexplorer.core.fleet.table import FleetArrangement, FleetTable
from devexplorer.core.records import DeviceInfo


def test_a_small_fleet_is_open_and_a_large_one_folded() -> None:
    small, large = FleetArrangement(table(2, 2)), FleetArrangement(table(1000, 8))
    small.arrange(None)
    large.arrange(None)
    assert small.lines.tolist() == [-1, 0, 1, -2, 2, 3]
    assert large.lines.tolist() == [-1 - number for number in range(1000)]
    large.toggle("node7")
    large.arrange(None)
    assert large.lines[7:17].tolist() == [-8, *range(56, 64), -9]
    assert len(large.lines) == 1008
    assert large.line_of(60) == 12
    assert large.line_of(0) == -1


def test_cards_are_sorted_within_their_groups_and_groups_by_their_first_card() -> None:
    fleet = table(500, 8)
    heat = fleet.column("temperature_c")
    heat[[3, 9, 3000]] = 90.0, 95.0, np.nan
    lines = FleetArrangement(fleet)
    lines.descending = True
    lines.arrange(heat)
    assert [group.name for group in lines.groups[:2]] == ["node1", "node0"]
    assert lines.groups[0].rows[0] == 9
    for group in lines.groups:
        known = heat[group.rows]
        known = known[~np.isnan(known)]
        assert np.all(np.diff(known) <= 0)
    assert next(group for group in lines.groups if 3000 in group.rows).rows[-1] == 3000  # what is not known comes last
    lines.set_by("nothing")
    lines.descending = False
    lines.arrange(heat)
    assert len(lines.lines) == 4000
    assert np.all(np.diff(heat[lines.lines[:-1]]) >= 0)
    assert lines.lines[-1] == 3000


def test_cards_are_grouped_by_model_and_rack() -> None:
    fleet = table(6, 4, ("NVIDIA H100", "Tesla T4"))
    lines = FleetArrangement(fleet)
    lines.set_by("model")
    lines.arrange(None)
    assert [(group.name, len(group.rows)) for group in lines.groups] == [("NVIDIA H100", 12), ("Tesla T4", 12)]
    lines.set_by("rack")
    lines.arrange(None)
    assert [(group.name, len(group.rows)) for group in lines.groups] == [("rack0", 8), ("rack1", 8), ("rack2", 8)]


def test_the_filter_leaves_cards_with_every_word_and_unfolds_them() -> None:
    fleet = table(1000, 8, ("NVIDIA H100", "Tesla T4"))
    lines = FleetArrangement(fleet)
    lines.words = ("node77/", "t4")
    lines.arrange(None)
    assert lines.hits == 4
    assert [fleet.cards[row].name for row in lines.lines if row >= 0] == [
        f"node77/cuda:{index}" for index in (1, 3, 5, 7)
    ]
    lines.words, lines.verdicts = ("slow",), ["slow" if row == 5 else "normal" for row in range(8000)]
    lines.arrange(None)
    assert lines.lines.tolist() == [-1, 5]
    lines.words = ("nothing like it",)
    lines.arrange(None)
    assert not len(lines.lines)


def test_cards_that_come_and_go_are_followed() -> None:
    fleet = table(2, 2)
    lines = FleetArrangement(fleet)
    lines.arrange(None)
    fleet.apply(joined(3, 2)[4:])
    lines.arrange(None)
    assert [group.name for group in lines.groups] == ["node0", "node1", "node2"]


def test_a_machine_without_cards_has_a_heading_and_a_cpu_counts_where_there_is_nothing_else() -> None:
    cpu = DeviceInfo(id="cpu", kind="cpu", name="Example CPU")
    fleet = FleetTable()
    fleet.apply([
        MachineChanged(machine=FleetMachine(name="far")),
        MachineChanged(machine=FleetMachine(name="here", state="connected")),
        CardsListed(machine="here", devices=(cpu,)),
    ])  # fmt: skip
    lines = FleetArrangement(fleet)
    lines.arrange(None)
    assert lines.lines.tolist() == [-1, -2, 0]
    fleet.apply([CardsListed(machine="here", devices=(cpu, DeviceInfo(id="cuda:0", kind="cuda", name="Tesla T4")))])
    lines.arrange(None)
    assert lines.lines.tolist() == [-1, -2, 1]
