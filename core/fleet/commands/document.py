"""A fleet as one JSON document and as lines of text: a card a line, then the machines that are not connected. Pure
functions, any thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from devexplorer.core.base import MISSING, bytes_text, printable
from devexplorer.core.cli.terminal import Line, cell_len, set_cell_size
from devexplorer.core.fleet.alerts import Raised
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceSample
from devexplorer.core.records.base import plain


def fleet_document(fleet: FleetTable, raised: Sequence[Raised], now: float) -> dict[str, Any]:
    """`"machines"` with the age of their last reading, `"devices"`, each with its machine and its last reading, and
    `"alerts"`: what is `raised` of them."""
    heard = last_heard(fleet)
    machines = []
    for machine in fleet.machines.values():
        read_s = heard.get(machine.name)
        age_s = None if read_s is None else max(now - read_s, 0.0)
        empty = {"problem": machine.problem or None, "rack": machine.rack or None}
        machines.append(plain(machine) | {"age_s": age_s} | empty)
    devices = [
        {
            "machine": card.machine,
            **plain(card.info),
            "sample": plain(sample)
            or dict.fromkeys(DeviceSample.__struct_fields__)
            | {"device": card.info.id, "simulated": card.info.simulated},
        }
        for card, sample in zip(fleet.cards, fleet.samples, strict=True)
    ]
    alerts = []
    for alert in raised:
        info = fleet.cards[alert.row].info
        alerts.append(
            {
                "machine": fleet.cards[alert.row].machine,
                "device": info.id,
                "metric": alert.metric,
                "value": alert.value,
                "level": alert.level,
                "text": alert.text,
                "simulated": info.simulated,
            }
        )
    problems = [
        {"machine": machine, **plain(problem)} for machine, listed in fleet.problems.items() for problem in listed
    ]
    return {"machines": machines, "devices": devices, "alerts": alerts, "problems": problems}


def last_heard(fleet: FleetTable) -> dict[str, float]:
    """When a card of each machine was read last."""
    heard: dict[str, float] = {}
    for card, sample in zip(fleet.cards, fleet.samples, strict=True):
        if sample is not None:
            heard[card.machine] = max(heard.get(card.machine, 0.0), sample.time_unix_s)
    return heard


TITLES = ("machine", "device", "name", ">util%", ">memory", ">°C", ">W/cap", ">MHz", ">PCIe", ">ECC", "throttled")
"""Of the columns; those of numbers begin with `>`."""
NAME, LEAST_NAME = 2, 20
"""Which column has the name of the card, and the cells that it keeps."""
GAP = 2
SIMULATED = " (simulated)"
MOST_AWAY = 5
"""Machines that are not connected, where there is no room for all."""


def fleet_lines(fleet: FleetTable, width: int | None = None, height: int | None = None) -> list[Line]:
    """`width` and `height`: cells and lines that there are."""
    away = [machine for machine in fleet.machines.values() if machine.state != "connected"]
    rows = list(zip(fleet.cards, fleet.samples, strict=True))
    shown = len(rows)
    if height is not None:
        away = away[: min(MOST_AWAY, height // 3)]
        below = len(away) + bool(away)
        if 1 + len(rows) + below > height:
            shown = max(height - below - 2, 1)
    cards = [tuple(title.removeprefix(">") for title in TITLES)]
    for card, sample in rows[:shown]:
        name = f"{card.info.name}{SIMULATED}" if card.info.simulated else card.info.name
        cards.append((printable(card.machine), card.info.id, printable(name), *_cells(sample)))
    lines = _aligned(cards, width)
    if len(rows) > shown:
        lines.append(Line(f"{len(rows) - shown:,} more cards; a higher terminal shows them", "dim"))
    if away:
        states = [(printable(machine.name), machine.state, printable(machine.problem)) for machine in away]
        lines += _aligned([("machine", "state", "problem"), *states], None)
    return lines if width is None else [line.fitted(width, "…") for line in lines]


def _aligned(rows: Sequence[tuple[str, ...]], width: int | None) -> list[Line]:
    """One line a row, the first of them dim; where there is no room with a shorter name of the card, and without the
    last columns."""
    cells = [max(map(cell_len, column)) for column in zip(*rows, strict=True)]
    if width is not None:
        while len(cells) > NAME + 1 and _over(cells, width) > max(cells[NAME] - LEAST_NAME, 0):
            cells.pop()
        cells[NAME] -= min(max(_over(cells, width), 0), cells[NAME] - 1)
    lines = [(" " * GAP).join(map(_cell, row, cells, TITLES)).rstrip() for row in rows]
    return [Line(lines[0], "dim"), *map(Line, lines[1:])]


def _over(cells: Sequence[int], width: int) -> int:
    return sum(cells) + GAP * (len(cells) - 1) - width


def _cell(text: str, cells: int, title: str) -> str:
    """Padded or cut; the mark of what is simulated stays."""
    length = cell_len(text)
    if length > cells:
        mark = SIMULATED if text.endswith(SIMULATED) else ""
        return f"{set_cell_size(text, max(cells - len(mark) - 1, 0))}…{mark}"
    pad = " " * (cells - length)
    return pad + text if title.startswith(">") else text + pad


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
