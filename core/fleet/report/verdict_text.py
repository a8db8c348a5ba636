"""One line for each card's verdict, made from its structure where it is shown. Pure functions, any thread."""

from __future__ import annotations

from collections.abc import Sequence

from devexplorer.core.base import list_text, number_text
from devexplorer.core.fleet.records import (
    Basis,
    CardVerdict,
    Cause,
    CauseId,
    GroupCase,
    GroupFinding,
    RateComparison,
    WhyUnknown,
)

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
