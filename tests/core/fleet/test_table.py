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


def test_a_machine_that_left_takes_its_cards_along() -> None:
    table = FleetTable()
    table.apply([*joined("a", 2), *joined("b", 1), reading("b", 0, 70.0), MachineLeft(name="a")])
    assert [card.name for card in table.cards] == ["b/cuda:0"]
    assert list(table.machines) == ["b"]
    assert power(table, "b/cuda:0") == 70.0


def test_what_is_not_known_is_nan_and_a_reading_of_an_unknown_card_is_nothing() -> None:
    table = FleetTable()
    table.apply([*joined("a", 1), reading("a", 0, None), reading("a", 7, 5.0), reading("x", 0, 5.0)])
    assert np.isnan(power(table, "a/cuda:0"))
    assert table.column("time_unix_s").tolist() == [1000.0]


def test_the_history_has_means_of_bins_and_gaps() -> None:
    table = FleetTable()
    table.apply(joined("a", 1))
    for time_s, watts in ((0.0, 10.0), (1.0, 20.0), (BIN_S, 40.0), (4 * BIN_S, 80.0)):
        table.apply([reading("a", 0, watts, 1000.0 + time_s)])
    history = table.history(0, "power_w")
    assert history.shape == (BINS,)
    assert history[-5:] == pytest.approx([15.0, 40.0, np.nan, np.nan, 80.0], nan_ok=True)
    assert np.isnan(history[:-5]).all()


def test_curves_go_on_when_a_clock_is_set_back() -> None:
    """Of one machine of two; the other one's readings stay where they are, and cards that are listed later join."""
    table = FleetTable()
    table.apply([*joined("a", 1), *joined("b", 1)])

    def second(a_s: float, b_s: float, watts: float) -> None:
        table.apply([reading("a", 0, watts, 10_000.0 + a_s), reading("b", 0, watts, 10_000.0 + b_s)])

    for at in range(100):
        second(at, at, 1.0)
    before = table.bin
    for at in range(100, 400):
        second(at - 3600, at, 2.0)
    assert table.bin - before == 300 / BIN_S
    for row in (0, 1):
        assert table.history(row, "power_w")[-62:].tolist() == [1.0] * 2 + [2.0] * 60
    table.apply([*joined("a", 2), reading("a", 1, 7.0, 10_000.0 + 402 - 3600)])
    assert table.history(1, "power_w")[-1] == 7.0
    for at in range(400, 700):
        second(at - 3600, at - 3600, 3.0)  # the other one's as well
    assert table.bin - before == 600 / BIN_S
    assert table.history(2, "power_w")[-120:].tolist() == [2.0] * 60 + [3.0] * 60


def test_a_late_reading_moves_no_curve() -> None:
    table = FleetTable()
    table.apply([*joined("a", 2), reading("a", 0, 1.0, 1000.0)])
    table.apply([reading("a", 1, 5.0, 900.0), reading("a", 0, 1.0, 1001.0)])
    table.apply([reading("a", 1, 5.0, 903.0), reading("a", 0, 1.0, 1002.0)])
    assert table.bin == 1002 // BIN_S
    assert table.history(1, "power_w")[-1] == 5.0


def test_an_unknown_reading_changes_no_mean() -> None:
    table = FleetTable()
    table.apply(joined("a", 1))
    for at, watts in ((0, None), (1, 90.0), (2, 90.0), (3, None), (4, 10.0)):
        table.apply([reading("a", 0, watts, 1000.0 + at)])
    assert table.history(0, "power_w")[-1] == pytest.approx(190 / 3)


def test_a_history_that_is_older_than_its_length_is_empty() -> None:
    table = FleetTable()
    table.apply([*joined("a", 1), reading("a", 0, 10.0, 1000.0)])
    table.apply([reading("a", 0, 30.0, 1000.0 + 10 * BINS * BIN_S)])
    history = table.history(0, "power_w")
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
