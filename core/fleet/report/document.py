"""A check of a fleet as one JSON document, and one line for each card's verdict, made from its structure where it is
shown. Pure functions, any thread."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

import devexplorer
from devexplorer.core.base import list_text, number_text, seconds_text
from devexplorer.core.fleet.check.fleet_check import CheckReport
from devexplorer.core.fleet.events import CardKey
from devexplorer.core.fleet.records import (
    Basis,
    CardMeasurement,
    CardVerdict,
    Cause,
    CauseId,
    GroupCase,
    GroupFinding,
    MeasuredKind,
    RateComparison,
    Rates,
    Verdict,
    WhyUnknown,
)
from devexplorer.core.fleet.verdicts.judge import usable_blocks
from devexplorer.core.records import DeviceInfo
from devexplorer.core.records.base import plain

_WHY = {
    WhyUnknown.LOST: "stopped answering",
    WhyUnknown.NOT_MEASURED: "could not be measured",
    WhyUnknown.WRONG_VALUES: "computed wrong values",
    WhyUnknown.TOO_FEW_EQUAL: "no comparison: needs two equal cards more, or earlier runs of this card",
    WhyUnknown.ABSURD: "faster than its kind can be; measure again",
    WhyUnknown.NOISY: "its rate varies too much; measure longer",
}
_BASIS = {Basis.EQUAL_CARDS: "the median of equal cards", Basis.OWN_HISTORY: "its own earlier runs"}
_CAUSE = {
    CauseId.THERMAL: ("too hot", "°C"),
    CauseId.POWER_CAP: ("lower power limit", "W"),
    CauseId.POWER_SUPPLY: ("power supply asks for less", "W"),
    CauseId.CLOCKS_SET: ("clocks are set lower", "MHz"),
    CauseId.ECC: ("memory errors", ""),
    CauseId.OTHER_PROCESS: ("another process", "%"),
    CauseId.PCIE_WIDTH: ("fewer PCIe lanes", ""),
    CauseId.PCIE_GENERATION: ("lower PCIe generation", ""),
    CauseId.LINK: ("the link", ""),
    CauseId.CARD: ("the card itself; its readings show no other cause", ""),
}
_COARSE = "{name}: cards less than {slower} ({measured}) slower cannot be told, because "
_LATER = "; check again later: each card is then compared with its own earlier runs too."
_CASES = {
    GroupCase.TWO_SPEEDS: "{name}, {measured}: two speeds. {concerned} of {cards} cards run at {ratio} of the others;"
    " look for what they share (rack, power limit, cooling, driver).",
    GroupCase.ALL_CHANGED: "{name}, {measured}: all {cards} cards together run at {ratio} of their earlier runs.",
    GroupCase.TOO_FEW: "{name}, {measured}: {concerned} of {cards} cards have no equals to compare with.",
    GroupCase.UNCERTAIN: _COARSE + "their own figures are uncertain; measure {longer}.",
    GroupCase.DIFFER: _COARSE + "equal cards differ by {share}, which longer measurements do not change" + _LATER,
    GroupCase.FEW: _COARSE + "{cards} equal cards are few" + _LATER,
}
UNITS = {MeasuredKind.MATMUL: "TFLOP/s", MeasuredKind.MODEL: "samples/s"}
"""Of rates; decimal GB/s of all others."""


def measured_text(kind: MeasuredKind, dtype: str) -> str:
    """`matmul float16`."""
    return f"{kind.value} {dtype}".rstrip()


def line(card: CardVerdict) -> str:
    """The verdict without the card's name."""
    text = card.verdict.value
    if card.why is not None:
        text += f": {_WHY[card.why]}"
    elif card.worst is not None:
        text += f": {ratio_text(card.worst)}"
        if card.worst.slow and card.worst.basis is Basis.EQUAL_CARDS:
            for one in card.comparisons:
                same = (one.kind, one.dtype) == (card.worst.kind, card.worst.dtype)
                if same and one.basis is Basis.OWN_HISTORY and not one.slow:
                    text += ", as in its earlier runs"  # slow by nature, or never right
        if card.causes:
            text += f"; likely cause: {cause_text(card.causes[0])}"
    return f"{text} (simulated)" if card.simulated else text


def ratio_text(comparison: RateComparison) -> str:
    """What was measured, the ratio, and to what."""
    measured = measured_text(comparison.kind, comparison.dtype)
    return f"{measured} at {_percent(comparison.ratio)} of {_BASIS[comparison.basis]}"


def cause_text(cause: Cause) -> str:
    """The cause with the reading that speaks for it."""
    name, unit = _CAUSE[cause.cause]
    if cause.value is None:
        return name
    readings = [_reading(cause.value, unit)]
    if cause.usual is not None:
        readings.append(f"equal cards {_reading(cause.usual, unit)}")
    return f"{name} ({', '.join(readings)})"


def _reading(value: float, unit: str) -> str:
    number = f"{value:,.0f}" if float(value).is_integer() else number_text(value)
    return f"{number} {unit}".rstrip()


def group_line(finding: GroupFinding) -> str:
    """What a group of equal cards says together."""
    ratio = finding.ratio or 0.0
    return _CASES[finding.case].format(
        name=finding.name,
        measured=measured_text(finding.kind, finding.dtype),
        concerned=finding.concerned,
        cards=finding.cards,
        ratio=_percent(ratio),
        slower=_percent(1 - ratio),
        share=_percent(finding.share or 0.0),
        longer="longer" if finding.seconds is None else f"for {finding.seconds:g} s (--seconds {finding.seconds:g})",
    )


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def together_lines(report: CheckReport) -> list[str]:
    """What concerns several cards: links, machines, groups of equal cards."""
    lines = [f"slow between {key_text(a)} and {key_text(b)}; both are fast with others" for a, b in report.slow_links]
    lines += [f"{machine} slows down what all machines do together" for machine in report.slow_machines]
    return lines + [group_line(finding) for finding in report.verdict.groups]


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
    equal_cards = [
        plain(finding)
        | {
            "kind": finding.kind.value,
            "dtype": finding.dtype or None,
            "case": finding.case.value,
            "line": group_line(finding),
        }
        for finding in report.verdict.groups
    ]
    groups = [
        {
            "kind": group.kind.value,
            "cards": list(map(key_text, group.cards)),
            "gb_per_s": group.rate,
            "problem": group.failure or None,
            "simulated": group.simulated,
        }
        for group in report.groups
    ]
    return {
        "cards": [_card(*card, uuids=uuids) for card in cards],
        "slow": named(report, Verdict.SLOW),
        "slow_links": [[key_text(a), key_text(b)] for a, b in report.slow_links],
        "slow_machines": report.slow_machines,
        "equal_cards": equal_cards,
        "groups": groups,
        "kinds": kind_names(report.plan.kinds),
        "dtypes": report.plan.dtypes,
        "seconds": report.plan.seconds,
        "in_turn": report.plan.in_turn,
        "started_unix_s": report.started_unix_s,
        "ended_unix_s": report.ended_unix_s,
        "cancelled": report.cancelled,
        "measured": kind_names(report.measured),
        "soak_s": report.plan.soak_s,
        "budget_s": report.plan.budget_s,
        "left_out": kind_names(report.left_out),
        "failed": named(report, Verdict.FAILED),
        "problems": failures(report),
        "start_spread_s": report.start_spread_s,
        "false_alarm_rate": report.verdict.family_wise,
        "comparisons": report.verdict.comparisons,
        "devexplorer_version": devexplorer.__version__,
    }


def named(report: CheckReport, verdict: Verdict) -> list[str]:
    """`MACHINE/DEVICE` of each card of which this is said."""
    return [f"{card.machine}/{card.device}" for card in report.verdict.cards if card.verdict is verdict]


def kind_names(kinds: Sequence[MeasuredKind]) -> list[str]:
    """As the command line has them."""
    return [kind.value for kind in kinds]


def failures(report: CheckReport) -> list[str]:
    """What could not be measured and why, a line for each reason and machine."""
    concerned: dict[tuple[str, str, str], dict[str, None]] = {}
    for card in report.measurements:
        for rates in card.rates:
            if rates.failure:
                key = card.machine, measured_text(rates.kind, rates.dtype), rates.failure
                concerned.setdefault(key, {})[card.device] = None
    for group in report.groups:
        machines = dict.fromkeys(machine for machine, _ in group.cards)
        if group.failure and len(machines) > 1:
            concerned.setdefault((" and ".join(machines), group.kind.value, group.failure), {})
    lines = []
    for (machine, measured, why), devices in concerned.items():
        cards = f": {', '.join(devices)}" if devices else ""
        lines.append(f"{machine}{cards}: {measured}: {why}")
    return lines


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
    document: dict[str, Any] = {
        "machine": card.machine,
        "device": card.device,
        "name": card.name,
        "ratio": card.ratio,
        "verdict": card.verdict.value,
        "cause": card.cause and card.cause.value,
        "simulated": card.simulated,
        "why": card.why and card.why.value,
        "kind": None,
        "dtype": None,
        "compared_with": None,
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
    if card.worst is not None:
        document["kind"], document["dtype"] = card.worst.kind.value, card.worst.dtype or None
        document["compared_with"] = card.worst.basis.value
    if uuids:
        document |= {"uuid": info.uuid, "bus_id": info.bus_id}
    return document
