"""A fleet as one JSON document and as a table. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rich.table import Table

from devexplorer.core.base import MISSING, bytes_text, printable
from devexplorer.core.base.plain import plain
from devexplorer.core.cli.terminal.output import table
from devexplorer.core.fleet.table import FleetTable
from devexplorer.core.records import DeviceSample, Problem


def fleet_document(fleet: FleetTable, now: float) -> dict[str, Any]:
    """`"machines"` with the age of their last reading, and `"devices"`, each with its machine and its last reading."""
    heard: dict[str, float] = {}
    for card, sample in zip(fleet.cards, fleet.samples, strict=True):
        if sample is not None:
            heard[card.machine] = max(heard.get(card.machine, 0.0), sample.time_unix_s)
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


def _problems(problems: Mapping[str, Sequence[Problem]]) -> list[dict[str, Any]]:
    return [{"machine": machine, **plain(problem)} for machine, listed in problems.items() for problem in listed]


def fleet_tables(fleet: FleetTable) -> list[Table]:
    """The cards, a row each; then the machines that are not connected."""
    cards = table(
        "machine", "device", "name", ">util%", ">memory", ">°C", ">W/cap", ">MHz", ">PCIe", ">ECC", "throttled"
    )
    for card, sample in zip(fleet.cards, fleet.samples, strict=True):
        name = f"{card.info.name} (simulated)" if card.info.simulated else card.info.name
        cards.add_row(printable(card.machine), card.info.id, printable(name), *_cells(sample))
    away = [machine for machine in fleet.machines.values() if machine.state != "connected"]
    if not away:
        return [cards]
    machines = table("machine", "state", "problem")
    for machine in away:
        machines.add_row(printable(machine.name), machine.state, printable(machine.problem))
    return [cards, machines]


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
