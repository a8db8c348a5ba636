"""The rows of a fleet: machines come and go, readings and their history stay with their card."""

from __future__ import annotations

import numpy as np
import pytest

from devexplorer.core.fleet.events import CardsListed, FleetEvent, FleetMachine, MachineChanged, MachineLeft, Readings
from devexplorer.core.fleet.table import BIN_S, BINS, FleetTable
from devexplorer.core.records import DeviceInfo, DeviceSample


def joined(machine: str, cards: int) -> list[FleetEvent]:
    devices = tuple(DeviceInfo(id=f"cuda:{card}", kind="cuda", name="card") for card in range(cards))
    return [
        MachineChanged(machine=FleetMachine(name=machine, state="connected")),
        CardsListed(machine=machine, devices=devices),
    ]


def reading(machine: str, card: int, watts: float | None, time_s: float = 1000.0) -> Readings:
    return Readings(machine=machine, samples=(DeviceSample(device=f"cuda:{card}", time_unix_s=time_s, power_w=watts),))


def power(table: FleetTable, name: str) -> float:
    row = table.row(*name.split("/"))
    assert row is not None
    return float(table.column("power_w")[row])


def test_cards_of_one_machine_are_next_to_each_other_and_keep_their_readings() -> None:
    table = FleetTable()
    table.apply([*joined("a", 2), *joined("b", 1), reading("a", 1, 50.0), reading("b", 0, 70.0)])
    table.apply([*joined("c", 1), CardsListed(machine="a", devices=tuple(c.info for c in table.cards[:1]))])
    table.apply(joined("a", 2))
    assert [card.name for card in table.cards] == ["a/cuda:0", "a/cuda:1", "b/cuda:0", "c/cuda:0"]
    assert power(table, "b/cuda:0") == 70.0
    assert np.isnan(power(table, "a/cuda:1"))  # it was gone in between
    table.apply([MachineLeft(name="a")])
    assert [card.name for card in table.cards] == ["b/cuda:0", "c/cuda:0"]
    assert list(table.machines) == ["b", "c"]
    assert power(table, "b/cuda:0") == 70.0


def test_what_is_not_known_is_nan_and_a_reading_of_an_unknown_card_is_nothing() -> None:
    table = FleetTable()
    table.apply([*joined("a", 1), reading("a", 0, None), reading("a", 7, 5.0), reading("x", 0, 5.0)])
    assert np.isnan(power(table, "a/cuda:0"))
    assert table.column("time_unix_s").tolist() == [1000.0]


def curve(*readings: tuple[float, float | None]) -> list[float]:
    """Of one card: what was read when, by the clock here; that of the machine may say anything."""
    now_s = [0.0]
    table = FleetTable(lambda: now_s[0])
    table.apply(joined("a", 1))
    for at_s, heat in readings:
        now_s[0] = 1000.0 + at_s
        sample = DeviceSample(device="cuda:0", time_unix_s=5000.0 - at_s, temperature_c=heat)
        table.apply([Readings(machine="a", samples=(sample,))])
    return [float(value) for value in table.history(0, "temperature_c")]


def test_the_history_has_means_of_bins_and_gaps() -> None:
    history = curve((0.0, 10.0), (1.0, 20.0), (2.0, None), (BIN_S, 40.0), (BIN_S + 1, 60.0), (4 * BIN_S, 80.0))
    assert len(history) == BINS
    assert history[-5:] == pytest.approx([15.0, 50.0, np.nan, np.nan, 80.0], nan_ok=True)
    assert np.isnan(history[:-5]).all()
    history = curve((0.0, 10.0), (10 * BINS * BIN_S, 30.0))
    assert history[-1] == 30.0
    assert np.isnan(history[:-1]).all()


def test_a_fleet_is_settled_when_each_machine_has_told_of_its_cards_or_is_lost() -> None:
    table = FleetTable()
    table.apply(joined("a", 2))
    assert not table.settled
    table.apply([reading("a", 0, 1.0), reading("a", 1, 1.0)])
    assert table.settled
    table.apply([MachineChanged(machine=FleetMachine(name="b", state="connecting"))])
    assert not table.settled
    table.apply([MachineChanged(machine=FleetMachine(name="b", state="lost", problem="refused"))])
    assert table.settled
