"""A fleet as lines: no number is cut, a mark neither, and what is away is said."""

from __future__ import annotations

import pytest

from devexplorer.core.fleet.commands.document import fleet_lines
from devexplorer.core.fleet.events import CardsListed, FleetMachine, MachineChanged, Readings
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceInfo, DeviceSample


def fleet(machines: int, cards: int, lost: int = 0) -> FleetTable:
    made = FleetTable()
    infos = tuple(DeviceInfo(id=f"vgpu:{n}", kind="virtual", name="A card 機", simulated=True) for n in range(cards))
    samples = tuple(
        DeviceSample(device=info.id, time_unix_s=1.0, power_w=654.4, power_cap_w=700.0, sm_clock_mhz=1980)
        for info in infos
    )
    for number in range(machines):
        name = f"m{number}\x1b[2J"
        made.apply([MachineChanged(machine=FleetMachine(name=name, state="connected"))])
        made.apply([CardsListed(machine=name, devices=infos), Readings(machine=name, samples=samples)])
    for number in range(lost):
        away = FleetMachine(name=f"away{number}", state="lost", problem="no route to host, " * 9)
        made.apply([MachineChanged(machine=away)])
    return made


def test_in_a_pipe_everything_is_there() -> None:
    lines = [line.plain for line in fleet_lines(fleet(3, 2, lost=9))]
    assert len(lines) == 1 + 6 + 1 + 9
    assert lines[1].split() == ["m0?[2J", "vgpu:0", "A", "card", "機", "(simulated)", "—", "—", "—", "654/700", "1980",
                                "—", "—"]  # fmt: skip
    assert lines[-1].split()[:2] == ["away8", "lost"]
    assert lines[-1].endswith("no route to host,")


@pytest.mark.parametrize(("width", "height"), [(40, 8), (70, 10), (120, 12)])
def test_on_a_terminal_it_keeps_to_the_room_and_no_number_is_cut(width: int, height: int) -> None:
    lines = [line.plain for line in fleet_lines(fleet(20, 8, lost=9), width, height)]
    assert len(lines) <= height
    assert all(len(line) <= width for line in lines)
    cards = [line for line in lines if line.startswith("m0")]
    assert cards
    assert all("(simulated)" in line for line in cards)
    assert all("654/700" in line for line in cards) or width < 70
    assert any("more cards; a higher" in line for line in lines)
