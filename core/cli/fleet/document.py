"""A fleet as one JSON document and as a table. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.cells import cell_len, set_cell_size
from rich.table import Table

from devexplorer.core.base import MISSING, bytes_text, printable
from devexplorer.core.base.plain import plain
from devexplorer.core.cli.terminal.output import table
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceSample, Problem

COLUMNS = ("machine", "device", "name", ">util%", ">memory", ">°C", ">W/cap", ">MHz", ">PCIe", ">ECC", "throttled")
NAME, LEAST_NAME = 2, 20
"""Which column has the name of the card, and the cells that it keeps."""
GAP = 2
SIMULATED = " (simulated)"
MOST_AWAY = 5
"""Machines that are not connected, where there is no room for all."""


def fleet_document(fleet: FleetTable, now: float) -> dict[str, Any]:
    """`"machines"` with the age of their last reading, and `"devices"`, each with its machine and its last reading."""
    heard = last_heard(fleet)
    machines = [
        {
            "name": machine.name,
            "state": machine.state,
            "age_s": max(now - heard[machine.name], 0.0) if machine.name in heard else None,
            "problem": machine.problem or None,
            "rack": machine.rack or None,
            "simulated": machine.simulated,
        }
        for machine in fleet.machines.values()
    ]
    devices = [
        {
            "machine": card.machine,
            **plain(card.info),
            "sample": dict.fromkeys(DeviceSample.__struct_fields__)
            | {"device": card.info.id, "simulated": card.info.simulated}
            | (plain(sample) or {}),
        }
        for card, sample in zip(fleet.cards, fleet.samples, strict=True)
    ]
    return {"machines": machines, "devices": devices, "problems": _problems(fleet.problems)}


def last_heard(fleet: FleetTable) -> dict[str, float]:
    """When a card of each machine was read last."""
    heard: dict[str, float] = {}
    for card, sample in zip(fleet.cards, fleet.samples, strict=True):
        if sample is not None:
            heard[card.machine] = max(heard.get(card.machine, 0.0), sample.time_unix_s)
    return heard


def _problems(problems: Mapping[str, Sequence[Problem]]) -> list[dict[str, Any]]:
    return [{"machine": machine, **plain(problem)} for machine, listed in problems.items() for problem in listed]


def fleet_tables(fleet: FleetTable, room: tuple[int, int] | None = None) -> list[Table]:
    """The cards, a row each; then the machines that are not connected. `room`: columns and lines that there are."""
    away = [machine for machine in fleet.machines.values() if machine.state != "connected"]
    rows = list(zip(fleet.cards, fleet.samples, strict=True))
    shown = len(rows)
    if room is not None:
        away = away[:MOST_AWAY]
        if len(rows) + 2 + len(away) > room[1]:
            shown = max(room[1] - len(away) - 3, 1)
    lines: list[tuple[str, ...]] = [COLUMNS]
    for card, sample in rows[:shown]:
        name = f"{card.info.name}{SIMULATED}" if card.info.simulated else card.info.name
        lines.append((printable(card.machine), card.info.id, printable(name), *_cells(sample)))
    if room is not None:
        lines = _fitting(lines, room[0])
    cards = table(*lines[0])
    for line in lines[1:]:
        cards.add_row(*line)
    if len(rows) > shown:
        cards.caption = f"{len(rows) - shown:,} more cards; a higher terminal shows them"
        cards.caption_justify = "left"
    if not away:
        return [cards]
    machines = table("machine", "state", "problem")
    for machine in away:
        machines.add_row(printable(machine.name), machine.state, printable(machine.problem))
    if room is not None:
        machines.columns[-1].no_wrap, machines.columns[-1].overflow = True, "ellipsis"
    return [cards, machines]


def _fitting(lines: Sequence[tuple[str, ...]], width: int) -> list[tuple[str, ...]]:
    """Each in one line of the terminal: with a shorter name of the card, and without the last columns."""
    columns = len(lines[0])
    while True:
        cells = [max(cell_len(line[index]) for line in lines) for index in range(columns)]
        over = sum(cells) + GAP * (columns - 1) - width
        if over <= cells[NAME] - LEAST_NAME or columns == NAME + 1:
            break
        columns -= 1
    name = max(cells[NAME] - max(over, 0), 1)
    return [(*line[:NAME], _cut(line[NAME], name), *line[NAME + 1 : columns]) for line in lines]


def _cut(text: str, cells: int) -> str:
    """The mark stays."""
    if cell_len(text) <= cells:
        return text
    mark = SIMULATED if text.endswith(SIMULATED) else ""
    return f"{set_cell_size(text, max(cells - len(mark) - 1, 0))}…{mark}"


def _cells(sample: DeviceSample | None) -> list[str]:
    if sample is None:
        return [MISSING] * 8
    cap = "" if sample.power_cap_w is None else f"/{sample.power_cap_w:.0f}"
    lanes = MISSING if sample.pcie_width is None else f"x{sample.pcie_width}"
    generation = "" if sample.pcie_generation is None else str(sample.pcie_generation)
    return [
        _number(sample.utilization_percent),
        bytes_text(sample.memory_used_bytes),
        _number(sample.temperature_c),
        MISSING if sample.power_w is None else f"{sample.power_w:.0f}{cap}",
        _number(sample.sm_clock_mhz),
        lanes if lanes == MISSING else f"{generation}{lanes}",
        _number(sample.ecc_uncorrected),
        ", ".join(map(printable, sample.throttle_reasons or ())),
    ]


def _number(value: float | None) -> str:
    return MISSING if value is None else f"{value:.0f}"
