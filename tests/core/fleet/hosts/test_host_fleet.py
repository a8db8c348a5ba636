"""Machines behind links as a fleet: their cards, their readings, and what is said when a link breaks."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.far import RouteHere, both_until
from fakes.hosts import READY, HostHere

from devexplorer.core.fleet.hosts.host_fleet import HostFleet, Member
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.machines.window.remote_session import RemoteSession
from devexplorer.core.records import AddVirtual, DeviceSample


class Watched:
    """A fleet with what is known of it; `beat` is what happens thirty times a second."""

    def __init__(self, *members: Member) -> None:
        self.fleet, self.table = HostFleet(members), FleetTable()
        self.fleet.start()

    def beat(self) -> None:
        self.table.apply(self.fleet.drain())

    def settled(self) -> bool:
        return bool(self.table.machines) and self.table.settled


def reading(percent: float) -> DeviceSample:
    return DeviceSample(device="cpu", time_unix_s=1000.0, utilization_percent=percent)


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostHere]:
    made = HostHere(tmp_path)
    made.say(READY)
    yield made
    made.close()


def test_the_cards_of_a_host_are_listed_and_read(host: HostHere) -> None:
    route = RouteHere(host)
    watched = Watched(Member("forge", route, rack="A"))
    host.say(reading(5.0))
    both_until(host, watched.beat, watched.settled)
    forge = watched.table.machines["forge"]
    assert (forge.state, forge.rack, forge.problem) == ("connected", "A", "")
    row = watched.table.row("forge", "cpu")
    assert row is not None
    utilization = watched.table.column("utilization_percent")
    assert utilization[row] == 5.0
    host.say(reading(7.0))
    both_until(host, watched.beat, lambda: utilization[row] == 7.0)
    route.refuse = CannotReach("the network is gone")
    route.link.cut()
    both_until(host, watched.beat, lambda: watched.table.machines["forge"].state == "reconnecting")
    assert utilization[row] == 7.0  # the last reading is kept
    assert watched.fleet.close()
    route.close()


def test_a_host_that_cannot_be_reached_is_lost_with_its_reason(host: HostHere) -> None:
    here, gone = RouteHere(host), RouteHere(host)
    gone.refuse = CannotReach("gpu9 is not known", final=True)
    watched = Watched(Member("forge", here), Member("gpu9", gone))
    host.say(reading(5.0))
    both_until(host, watched.beat, watched.settled)
    assert watched.table.machines["gpu9"].state == "lost"
    assert watched.table.machines["gpu9"].problem == "gpu9 is not known"
    assert {card.machine for card in watched.table.cards} == {"forge"}
    assert watched.fleet.close()
    here.close()


def test_a_fleet_that_comes_before_the_last_one_has_left_has_control_after_it(host: HostHere) -> None:
    route = RouteHere(host)
    former = Watched(Member("forge", route))
    host.say(reading(5.0))
    both_until(host, former.beat, former.settled)
    watched = Watched(Member("forge", route, virtual="1x Tesla T4"))
    both_until(host, watched.beat, watched.settled)
    assert not any(isinstance(command, AddVirtual) for command in host.engines[0].sent)
    assert former.fleet.close()
    both_until(host, watched.beat, lambda: any(isinstance(command, AddVirtual) for command in host.engines[0].sent))
    assert not watched.settled(), "its virtual GPU is being added"
    assert watched.fleet.close()
    route.close()


def test_a_host_that_has_not_said_who_controls_it_is_waited_for(
    host: HostHere, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A command that came then would be refused."""
    told: list[bool] = []
    monkeypatch.setattr(RemoteSession, "knows_control", property(lambda _: bool(told)))
    route = RouteHere(host)
    watched = Watched(Member("forge", route))
    host.say(reading(5.0))
    both_until(host, watched.beat, lambda: watched.table.cards and watched.table.samples[0] is not None)
    assert not watched.settled()
    told.append(True)
    both_until(host, watched.beat, watched.settled)
    assert watched.fleet.close()
    route.close()
