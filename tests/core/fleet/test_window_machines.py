"""The machines of a window as a fleet: read once a second, nothing connected."""

from __future__ import annotations

from fakes.fleet_tables import NOW, info, sample

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.fleet.window_machines import Known, WindowMachines
from devexplorer.core.machines.link import Link
from devexplorer.core.session.state import State


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
    known = [Known("this machine", here, None), Known("gpu1", far, link)]
    source, table = WindowMachines(lambda: known, monotonic=lambda: now[0]), FleetTable()
    table.apply(source.drain())
    assert [card.name for card in table.cards] == ["this machine/cuda:0", "gpu1/cuda:0", "gpu1/cuda:1"]
    assert table.column("temperature_c").tolist() == [50.0] * 3
    assert source.drain() == ()  # it is not due yet
    now[0] += 1
    assert source.drain() == []  # nothing is new
    far.apply(sample(1, NOW + 1, temperature_c=70.0))
    known[1] = Known("gpu1", far, Link(state="reconnecting", since_unix_s=NOW, reason="no answer"))
    now[0] += 1
    table.apply(source.drain())
    assert table.column("temperature_c").tolist() == [50.0, 50.0, 70.0]
    assert table.machines["gpu1"].state == "reconnecting"
    assert table.machines["gpu1"].problem == "no answer"
    del known[1]
    now[0] += 1
    table.apply(source.drain())
    assert list(table.machines) == ["this machine"]
