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
    WhyUnknown.NEAR_PUBLISHED: "below the published figure, but within what other setups differ by",
    WhyUnknown.ABSURD: "faster than its kind can be; measure again",
    WhyUnknown.NOISY: "its rate varies too much; measure longer",
}
_BASIS = {
    Basis.EQUAL_CARDS: "the median of equal cards",
    Basis.OWN_HISTORY: "its own earlier runs",
    Basis.PUBLISHED: "the published figure",
}
_CAUSE = {
    CauseId.THERMAL: ("too hot", "°C"),
    CauseId.POWER_CAP: ("lower power limit", "W"),
    CauseId.POWER_SUPPLY: ("power supply asks for less", "W"),
    CauseId.CLOCKS_SET: ("clocks are set lower", "MHz"),
    CauseId.ECC: ("memory errors", ""),
    CauseId.OTHER_PROCESS: ("another process", "%"),
    CauseId.PCIE_WIDTH: ("fewer PCIe lanes", ""),
    CauseId.PCIE_GENERATION: ("lower PCIe generation", ""),
    CauseId.NUMA: ("measured from CPUs of another NUMA node", ""),
    CauseId.LINK: ("the link", ""),
    CauseId.CARD: ("the card itself; its readings show no other cause", ""),
}


def line(card: CardVerdict) -> str:
    """The verdict without the card's name."""
    marked = " (simulated)" if card.simulated else ""
    if card.why is not None:
        return f"{card.verdict.value}: {_WHY[card.why]}{marked}"
    if card.worst is None:
        return f"{card.verdict.value}{marked}"
    cause = f"; likely cause: {cause_text(card.causes[0])}" if card.causes else ""
    before = ", as in its earlier runs" if _always_was(card.worst, card.comparisons) else ""
    return f"{card.verdict.value}: {ratio_text(card.worst)}{before}{cause}{marked}"


def _always_was(worst: RateComparison, comparisons: Sequence[RateComparison]) -> bool:
    """Slower than equal cards, and no slower than it was: a card that is so by nature, or was never right."""
    same = (one for one in comparisons if (one.kind, one.dtype) == (worst.kind, worst.dtype))
    history = next((one for one in same if one.basis is Basis.OWN_HISTORY), None)
    return worst.slow and worst.basis is Basis.EQUAL_CARDS and history is not None and not history.slow


def ratio_text(comparison: RateComparison) -> str:
    """What was measured, the ratio, and to what."""
    measured = f"{comparison.kind.value} {comparison.dtype}".rstrip()
    return f"{measured} at {100 * comparison.ratio:.1f} % of {_BASIS[comparison.basis]}"


def cause_text(cause: Cause) -> str:
    """The cause with the reading that speaks for it."""
    name, unit = _CAUSE[cause.cause]
    if cause.value is None:
        return name
    others = "" if cause.usual is None else f", equal cards {_reading(cause.usual, unit)}"
    return f"{name} ({_reading(cause.value, unit)}{others})"


def _reading(value: float, unit: str) -> str:
    return f"{value:,.0f} {unit}".rstrip() if float(value).is_integer() else f"{number_text(value)} {unit}".rstrip()


def group_lines(findings: Sequence[GroupFinding]) -> list[str]:
    """What the groups of equal cards say; what could not be told of several kinds for one reason is one line."""
    lines = [group_line(finding) for finding in findings if not finding.case.is_coarse]
    alike: dict[tuple[str, int, GroupCase], list[GroupFinding]] = {}
    for finding in findings:
        if finding.case.is_coarse:
            alike.setdefault((finding.name, finding.cards, finding.case), []).append(finding)
    return lines + [_coarse_line(group) for group in alike.values()]


def _coarse_line(findings: Sequence[GroupFinding]) -> str:
    first = findings[0]
    limits = [f"{_percent(1 - (one.ratio or 0.0))} ({_measured(one.kind.value, one.dtype)})" for one in findings]
    share = max((one.share for one in findings if one.share is not None), default=None)
    seconds = max((one.seconds for one in findings if one.seconds is not None), default=None)
    later = "check again later: each card is then compared with its own earlier runs too"
    match first.case:
        case GroupCase.UNCERTAIN:
            noise = "were measured in too few blocks" if share is None else f"are uncertain by {_percent(share)}"
            longer = "measure longer" if seconds is None else f"measure for {seconds:g} s (--seconds {seconds:g})"
            why, advice = f"their own figures {noise}", longer
        case GroupCase.DIFFER:
            differ = "" if share is None else f" by {_percent(share)}"
            why, advice = f"equal cards differ{differ}, which longer measurements do not change", later
        case _:
            why, advice = f"{first.cards} equal cards are few", later
    return f"{first.name}: cards less than {list_text(limits)} slower cannot be told, because {why}; {advice}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _measured(kind: str, dtype: str) -> str:
    return f"{kind} {dtype}".rstrip()


def group_line(finding: GroupFinding) -> str:
    """What a group of equal cards says together."""
    measured = f"{finding.name}, {finding.kind.value} {finding.dtype}".rstrip()
    percent = "" if finding.ratio is None else f"{100 * finding.ratio:.1f} %"
    match finding.case:
        case GroupCase.TWO_SPEEDS:
            return (
                f"{measured}: two speeds. {finding.concerned} of {finding.cards} cards run at {percent} of the others;"
                " look for what they share (rack, power limit, cooling, driver)."
            )
        case GroupCase.ALL_CHANGED:
            return f"{measured}: all {finding.cards} cards together run at {percent} of their earlier runs."
        case GroupCase.TOO_FEW:
            return f"{measured}: {finding.concerned} of {finding.cards} cards have no equals to compare with."
        case _:
            return _coarse_line([finding])


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
