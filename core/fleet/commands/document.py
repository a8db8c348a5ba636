"""A fleet as one JSON document. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from devexplorer.core.fleet.alerts import Raised
from devexplorer.core.fleet.table import FleetCard, FleetTable
from devexplorer.core.records import DeviceSample, Problem
from devexplorer.core.records.base import plain


def fleet_document(fleet: FleetTable, raised: Sequence[Raised], now: float) -> dict[str, Any]:
    """`"machines"` with the age of their last reading, `"devices"`, each with its machine and its last reading, and
    `"alerts"`: what is `raised` of them."""
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
    alerts = [_alert(fleet.cards[alert.row], alert) for alert in raised]
    return {"machines": machines, "devices": devices, "alerts": alerts, "problems": _problems(fleet.problems)}


def _alert(card: FleetCard, alert: Raised) -> dict[str, Any]:
    return {
        "machine": card.machine,
        "device": card.info.id,
        "metric": alert.metric,
        "value": alert.value,
        "level": alert.level,
        "text": alert.text,
        "simulated": card.info.simulated,
    }


def last_heard(fleet: FleetTable) -> dict[str, float]:
    """When a card of each machine was read last."""
    heard: dict[str, float] = {}
    for card, sample in zip(fleet.cards, fleet.samples, strict=True):
        if sample is not None:
            heard[card.machine] = max(heard.get(card.machine, 0.0), sample.time_unix_s)
    return heard


def _problems(problems: Mapping[str, Sequence[Problem]]) -> list[dict[str, Any]]:
    return [{"machine": machine, **plain(problem)} for machine, listed in problems.items() for problem in listed]
