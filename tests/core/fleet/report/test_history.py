"""What earlier checks say of the cards of the next: the same card in the same circumstances, and nothing else."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from msgspec.structs import replace

from devexplorer.core.fleet.check.plan import CheckPlan
from devexplorer.core.fleet.records import CardMedian, MeasuredKind, StoredCheck
from devexplorer.core.fleet.report.history import MOST_FORMER, TABLE, as_row, former, stored_checks
from devexplorer.core.fleet.table import FleetCard
from devexplorer.core.history.store import Store
from devexplorer.core.records import DeviceInfo

PLAN = CheckPlan()


def card(machine: str = "forge", device: str = "cuda:0", **info: object) -> FleetCard:
    return FleetCard(machine, DeviceInfo(id=device, kind="cuda", **{"name": "T4"} | info))  # type: ignore[arg-type]


def check(began: float = 1.0, median: float = 50.0, **changes: object) -> StoredCheck:
    of_card = {name: changes.pop(name) for name in ("uuid", "machine", "name", "simulated", "kind") if name in changes}
    first = CardMedian(machine="forge", device="cuda:0", name="T4", kind=MeasuredKind.MATMUL, median=median)
    stored = StoredCheck(started_unix_s=began, ended_unix_s=began + 1, medians=(replace(first, **of_card),), cards=1)
    return replace(stored, **changes)


def medians(
    *checks: StoredCheck, of: FleetCard | None = None, plan: CheckPlan = PLAN, fleet: str = ""
) -> tuple[float, ...]:
    found = former(checks, [of or card()], plan, fleet)
    assert len(found) <= 1
    return next(iter(found.values()), ())


def test_medians_of_a_card_are_found_oldest_first_and_not_without_end() -> None:
    assert medians(check(median=50.0), check(median=51.0)) == (50.0, 51.0)
    assert len(medians(*[check()] * 50)) == MOST_FORMER


@pytest.mark.parametrize(
    ("changes", "found"),
    [
        ({}, True),
        ({"machine": "anvil"}, False),
        ({"name": "A10"}, False),
        ({"simulated": True}, False),
        ({"in_turn": True}, False),
        ({"soaked": True}, False),
        ({"soaked": True, "kind": MeasuredKind.MEMORY}, True),
        ({"uuid": "GPU-1", "machine": "anvil"}, False),
    ],
)
def test_only_the_same_card_measured_alike_counts(changes: dict[str, object], found: bool) -> None:
    assert bool(medians(check(**changes))) is found


def test_a_card_is_known_by_its_uuid_wherever_it_is() -> None:
    moved = check(uuid="GPU-1", machine="anvil")
    assert medians(moved, of=card(uuid="GPU-1")) == (50.0,)
    assert medians(moved, of=card(uuid="GPU-2")) == ()
    assert medians(check(), of=card(uuid="GPU-1")) == (50.0,)  # stored when nobody told the UUID


def test_simulated_cards_are_those_of_one_simulated_fleet() -> None:
    simulated = check(simulated=True, fleet="2 nodes of 8, seed 0")
    assert medians(simulated, of=card(simulated=True), fleet="2 nodes of 8, seed 0") == (50.0,)
    assert medians(simulated, of=card(simulated=True), fleet="2 nodes of 8, seed 1") == ()
    assert medians(simulated, fleet="2 nodes of 8, seed 0") == ()


def test_checks_are_stored_beside_runs_in_a_file_of_an_earlier_version(tmp_path: Path) -> None:
    path = tmp_path / "history.sqlite3"
    with Store(path) as store:
        assert store.count() == 0  # a file without the table of checks
        assert store.rows(TABLE) == []
    with Store(path) as store:
        assert store.add_row(TABLE, as_row(check(2.0))) == 1
        store.add_row(TABLE, as_row(check(1.0)))
    with Store(path) as store:
        assert [(one.id, one.started_unix_s) for one in stored_checks(store.rows(TABLE))] == [(2, 1.0), (1, 2.0)]
        assert [one.id for one in store.rows(TABLE, 1)] == [1]
        assert stored_checks(store.rows(TABLE))[1] == replace(check(2.0), id=1)
    with sqlite3.connect(path) as connection:  # written by a newer version
        connection.execute("UPDATE fleet_checks SET record = '{\"medians\": 3}' WHERE id = 1")
    connection.close()
    with Store(path) as store:
        assert [one.id for one in stored_checks(store.rows(TABLE))] == [2]
