"""A check of a fleet as one JSON document, for the command line, the window and files. Pure functions, any thread."""

from __future__ import annotations

import statistics
from typing import Any

import devexplorer
from devexplorer.core.base import list_text, seconds_text
from devexplorer.core.fleet.check.fleet_check import CheckReport
from devexplorer.core.fleet.events import CardKey
from devexplorer.core.fleet.records import CardMeasurement, CardVerdict, MeasuredKind, Rates
from devexplorer.core.fleet.report.verdict_text import group_line, line
from devexplorer.core.fleet.verdicts.judge import usable_blocks
from devexplorer.core.records import DeviceInfo
from devexplorer.core.records.base import plain

UNITS = {MeasuredKind.MATMUL: "TFLOP/s", MeasuredKind.MODEL: "samples/s"}
"""Of rates; decimal GB/s of all others."""


def unit(kind: MeasuredKind) -> str:
    """Of its rates."""
    return UNITS.get(kind, "GB/s")


def median_rate(rates: Rates) -> float | None:
    """Of its usable blocks; None without any."""
    blocks = usable_blocks(rates)
    return statistics.median(blocks.tolist()) if len(blocks) else None


def check_document(report: CheckReport, *, uuids: bool = False) -> dict[str, Any]:
    """The whole report but for single blocks. `uuids`: with what identifies each card to strangers."""
    cards = zip(report.verdict.cards, report.measurements, report.devices, strict=True)
    return {
        "cards": [_card(*card, uuids=uuids) for card in cards],
        "slow": [f"{card.machine}/{card.device}" for card in report.verdict.slow],
        "slow_links": [[key_text(a), key_text(b)] for a, b in report.slow_links],
        "slow_machines": report.slow_machines,
        "equal_cards": [
            {
                "name": finding.name,
                "kind": finding.kind.value,
                "dtype": finding.dtype or None,
                "case": finding.case.value,
                "cards": finding.cards,
                "concerned": finding.concerned,
                "ratio": finding.ratio,
                "share": finding.share,
                "seconds": finding.seconds,
                "line": group_line(finding),
            }
            for finding in report.verdict.groups
        ],
        "groups": [
            {
                "kind": group.kind.value,
                "cards": [key_text(key) for key in group.cards],
                "gb_per_s": group.rate,
                "problem": group.failure or None,
                "simulated": group.simulated,
            }
            for group in report.groups
        ],
        "kinds": [kind.value for kind in report.plan.kinds],
        "dtypes": report.plan.dtypes,
        "seconds": report.plan.seconds,
        "in_turn": report.plan.in_turn,
        "started_unix_s": report.started_unix_s,
        "ended_unix_s": report.ended_unix_s,
        "cancelled": report.cancelled,
        "measured": [kind.value for kind in report.measured],
        "soak_s": report.plan.soak_s,
        "budget_s": report.plan.budget_s,
        "left_out": [kind.value for kind in report.left_out],
        "failed": [f"{card.machine}/{card.device}" for card in report.verdict.failed],
        "problems": failures(report),
        "start_spread_s": report.start_spread_s,
        "false_alarm_rate": report.verdict.family_wise,
        "comparisons": report.verdict.comparisons,
        "devexplorer_version": devexplorer.__version__,
    }


def failures(report: CheckReport) -> list[str]:
    """What could not be measured and why, a line for each reason and machine."""
    concerned: dict[tuple[str, str, str], list[str]] = {}
    for card in report.measurements:
        for rates in card.rates:
            if rates.failure:
                measured = f"{rates.kind.value} {rates.dtype}".rstrip()
                concerned.setdefault((card.machine, measured, rates.failure), []).append(card.device)
    for group in report.groups:
        names = list(dict.fromkeys(machine for machine, _ in group.cards))
        if group.failure and len(names) > 1:
            concerned.setdefault((" and ".join(names), group.kind.value, group.failure), [])
    return [
        f"{machine}{': ' if cards else ''}{', '.join(dict.fromkeys(cards))}: {measured}: {why}"
        for (machine, measured, why), cards in concerned.items()
    ]


def interrupted_line(report: CheckReport) -> str:
    """Of a check that was interrupted: when, and what it could not measure any more."""
    seconds = seconds_text(report.ended_unix_s - report.started_unix_s)
    missing = [kind.value for kind in report.plan.kinds if kind not in report.measured]
    rest = f"; not measured: {list_text(missing)}" if missing else ""
    return f"interrupted after {seconds}: only what was measured until then is judged{rest}"


def key_text(key: CardKey) -> str:
    """`MACHINE/DEVICE`."""
    return "/".join(key)


def _card(card: CardVerdict, measured: CardMeasurement, info: DeviceInfo, *, uuids: bool) -> dict[str, Any]:
    worst = card.worst
    document = {
        "machine": card.machine,
        "device": card.device,
        "name": card.name,
        "ratio": card.ratio,
        "verdict": card.verdict.value,
        "cause": None if card.cause is None else card.cause.value,
        "simulated": card.simulated,
        "why": None if card.why is None else card.why.value,
        "kind": None if worst is None else worst.kind.value,
        "dtype": None if worst is None else worst.dtype or None,
        "compared_with": None if worst is None else worst.basis.value,
        "line": line(card),
        "memory_total_bytes": info.memory_total_bytes,
        "driver_version": info.driver_version,
        "rates": [
            {
                "kind": rates.kind.value,
                "dtype": rates.dtype or None,
                "median": median_rate(rates),
                "unit": unit(rates.kind),
                "blocks": len(rates.blocks),
                "problem": rates.failure,
                "wrong_values": rates.wrong_values,
                "simulated": card.simulated,
            }
            for rates in measured.rates
        ],
        "readings": plain(measured.readings),
    }
    return document | {"uuid": info.uuid, "bus_id": info.bus_id} if uuids else document
