"""Why a slow card is likely slow: its readings under load beside those of equal cards under the same load. Pure
functions, any thread.

A reading speaks for a cause only as far as it differs from the median of equal cards that are not slow: under a heavy
product every card of some types reports "power cap", and that explains nothing. A cause has to explain the kinds of
measurement that are slow, and none that it would slow may have been measured as normal: fewer PCIe lanes slow copies
between host and card, and no product. Where nothing differs, it is the card: for what runs on the card alone the chip,
for what leaves it the link. Of two causes that hold, the one with more strength, 0 to 1, which is the share of time or
how far the reading lies from the others'.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Sequence
from typing import NamedTuple

from devexplorer.core.fleet.records import Cause, CauseId, LoadReadings, MeasuredKind

ON_CARD = frozenset({MeasuredKind.MATMUL, MeasuredKind.MEMORY, MeasuredKind.MODEL})
OFF_CARD = frozenset({MeasuredKind.COPIES, MeasuredKind.PEER, MeasuredKind.ALLREDUCE})
_HOST = frozenset({MeasuredKind.COPIES, MeasuredKind.MODEL, MeasuredKind.ALLREDUCE, MeasuredKind.PEER})
_COPIES = frozenset({MeasuredKind.COPIES})
_ALL = ON_CARD | OFF_CARD

LEAST = 0.1
"""Strength below which a cause is not named."""
OTHERWISE = 0.2
"""Strength of the cause that is left: named first where no reading says more."""
_THERMAL, _CAPPED, _SUPPLY, _SET = ("too hot", "thermal"), ("power cap",), ("power brake",), ("application clocks",)
_SLOWDOWN = ("hardware slowdown",)
"""Heat or a weak supply: says which only together with other readings."""
_HOTTER_C = 8.0
_LOWER_CLOCK = 0.98

Evidence = tuple[float, float | None, float | None]
"""Strength, this card's reading, that of the others."""
NO_EVIDENCE: Evidence = (0.0, None, None)


class CauseRule(NamedTuple):
    """One cause: which kinds of measurement it can explain, and what speaks for it."""

    cause: CauseId
    explains: frozenset[MeasuredKind]
    evidence: Callable[[LoadReadings, Sequence[LoadReadings]], Evidence]
    slows: frozenset[MeasuredKind] = frozenset()
    """What it cannot leave as it is."""


def likely_causes(
    readings: LoadReadings | None,
    usual: Sequence[LoadReadings],
    slow_kinds: frozenset[MeasuredKind],
    normal_kinds: frozenset[MeasuredKind] = frozenset(),
) -> tuple[Cause, ...]:
    """Causes of a slow card, likeliest first; empty where nothing was read. `usual`: readings of equal cards that are
    not slow, under the same load; `normal_kinds`: measured too, and not slow."""
    if readings is None or not slow_kinds:
        return ()
    found = []
    for rule in RULES:
        if rule.slows & normal_kinds:
            continue
        strength, value, others = rule.evidence(readings, usual)
        strength *= len(slow_kinds & rule.explains) / len(slow_kinds)
        if strength >= LEAST:
            found.append(Cause(cause=rule.cause, strength=min(strength, 1.0), value=value, usual=others))
    if max((one.strength for one in found), default=0.0) < OTHERWISE:
        found.append(Cause(cause=CauseId.CARD if slow_kinds & ON_CARD else CauseId.LINK, strength=OTHERWISE))
    return tuple(sorted(found, key=lambda one: -one.strength))  # stable: of equals the first rule


# --- what speaks for a cause ------------------------------------------------------------------------------------------


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _both(readings: LoadReadings, usual: Sequence[LoadReadings], field: str) -> tuple[float | None, float | None]:
    return getattr(readings, field), _median(getattr(other, field) for other in usual)


def _share(readings: LoadReadings, words: tuple[str, ...]) -> float | None:
    """Of the readings that had such a reason; several such reasons: the most frequent."""
    if readings.throttled is None:
        return None
    shares = (share for reason, share in readings.throttled.items() if any(word in reason.lower() for word in words))
    return max(shares, default=0.0)


def _excess_share(readings: LoadReadings, usual: Sequence[LoadReadings], words: tuple[str, ...]) -> float:
    share = _share(readings, words)
    return max((share or 0.0) - (_median(_share(other, words) for other in usual) or 0.0), 0.0)


def _lower_clock(readings: LoadReadings, usual: Sequence[LoadReadings]) -> bool:
    """True also where it cannot be known."""
    clock, others = _both(readings, usual, "sm_clock_mhz")
    return clock is None or others is None or clock < _LOWER_CLOCK * others


def _hotter(readings: LoadReadings, usual: Sequence[LoadReadings]) -> bool:
    temperature, others = _both(readings, usual, "temperature_c")
    return temperature is not None and others is not None and temperature >= others + _HOTTER_C


def _thermal(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    strength = _excess_share(readings, usual, _THERMAL)
    hotter = _hotter(readings, usual)
    if hotter:
        strength = max(strength, _excess_share(readings, usual, _SLOWDOWN))
        if readings.throttled is None and _lower_clock(readings, usual):
            strength = 0.6
    return (strength, *_both(readings, usual, "temperature_c"))


def _power_cap(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    """A limit below that of the others, that the card also reaches."""
    cap, others = _both(readings, usual, "power_cap_w")
    if cap is None or others is None or cap >= 0.98 * others:
        return NO_EVIDENCE
    share = _share(readings, _CAPPED)
    reached = readings.power_w is None or readings.power_w >= 0.9 * cap or (share or 0.0) >= LEAST
    return min((1 - cap / others) / 0.05, 1.0) if reached else 0.0, cap, others


def _power_supply(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    strength = _excess_share(readings, usual, _SUPPLY)
    if not _hotter(readings, usual):
        strength = max(strength, _excess_share(readings, usual, _SLOWDOWN))
    return (strength, *_both(readings, usual, "power_w"))


def _clocks_set(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    strength = _excess_share(readings, usual, _SET) if _lower_clock(readings, usual) else 0.0
    return (strength, *_both(readings, usual, "sm_clock_mhz"))


_SOME_ERRORS = 10
"""Corrected errors during one measurement; a few happen to healthy cards."""


def _ecc(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    bad, bad_others = _both(readings, usual, "ecc_uncorrected")
    if bad and not bad_others:
        return 1.0, bad, bad_others
    corrected, others = _both(readings, usual, "ecc_corrected")
    if corrected is not None and corrected >= _SOME_ERRORS and corrected >= 10 * (others or 0.0):
        return 0.8, corrected, others
    return (0.5 if readings.remapping_pending else 0.0), corrected, others


_MUCH_OTHER_PERCENT = 20.0


def _other_process(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    share, others = _both(readings, usual, "other_utilization_percent")
    if share is not None:
        return (share - (others or 0.0)) / _MUCH_OTHER_PERCENT, share, others
    number, others = _both(readings, usual, "other_processes")
    return (0.4 if number and number > (others or 0.0) else 0.0), None, None


def _fewer(field: str, most: str) -> Callable[[LoadReadings, Sequence[LoadReadings]], Evidence]:
    """Less than the others; without others, less than card and slot together can do."""

    def evidence(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
        value, others = _both(readings, usual, field)
        expected = others if others is not None else getattr(readings, most)
        if value is None or expected is None or value >= expected:
            return NO_EVIDENCE
        return 1.0, value, expected

    return evidence


def _numa(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    far = [other.near_memory is False for other in usual if other.near_memory is not None]
    return (0.7 if readings.near_memory is False and sum(far) * 2 <= len(far) else 0.0), None, None


_MANY_REPLAYS = 100


def _link(readings: LoadReadings, usual: Sequence[LoadReadings]) -> Evidence:
    replays, others = _both(readings, usual, "pcie_replays")
    if replays is not None and replays >= _MANY_REPLAYS and replays >= 10 * (others or 0.0):
        return 0.8, replays, others
    return NO_EVIDENCE


RULES = (
    CauseRule(CauseId.THERMAL, ON_CARD, _thermal),
    CauseRule(CauseId.POWER_CAP, ON_CARD, _power_cap),
    CauseRule(CauseId.POWER_SUPPLY, ON_CARD, _power_supply),
    CauseRule(CauseId.CLOCKS_SET, ON_CARD, _clocks_set),
    CauseRule(CauseId.ECC, _ALL, _ecc),
    CauseRule(CauseId.OTHER_PROCESS, _ALL, _other_process),
    CauseRule(CauseId.PCIE_WIDTH, _HOST, _fewer("pcie_width", "pcie_width_max"), _COPIES),
    CauseRule(CauseId.PCIE_GENERATION, _HOST, _fewer("pcie_generation", "pcie_generation_max"), _COPIES),
    CauseRule(CauseId.NUMA, _COPIES | {MeasuredKind.MODEL}, _numa, _COPIES),
    CauseRule(CauseId.LINK, OFF_CARD, _link),
)
"""In the order in which equal strengths are named."""
