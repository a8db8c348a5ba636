"""Why a slow card is likely slow, from its readings beside those of equal cards under the same load; and whether it is
a member or a link that slows down pairs. Pure functions, any thread.

A reading speaks for a cause only as far as it differs from the median of equal cards that are not slow: under a heavy
product every card of some types reports "power cap", and that explains nothing. A cause has to explain the kinds of
measurement that are slow, and none that it would slow may have been measured as normal: fewer PCIe lanes slow copies
between host and card, and no product. Where nothing differs, it is the card: for what runs on the card alone the chip,
for what leaves it the link. Of two causes that hold, the one with more strength, 0 to 1, which is the share of time or
how far the reading lies from the others'.

What two members do together is as slow as its slowest part. Each was measured with two neighbours: a pair whose members
are fast with others has a slow link. A member that is slow with both is measured once more, with one that is fast.
"""

from __future__ import annotations

import statistics
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import NamedTuple, TypeVar

from devexplorer.core.fleet.records import Cause, CauseId, LoadReadings, MeasuredKind

ON_CARD = frozenset({MeasuredKind.MATMUL, MeasuredKind.MEMORY, MeasuredKind.MODEL})
OFF_CARD = frozenset({MeasuredKind.COPIES, MeasuredKind.PEER, MeasuredKind.ALLREDUCE})
_HOST = OFF_CARD | {MeasuredKind.MODEL}
_COPIES = frozenset({MeasuredKind.COPIES})
_ALL = ON_CARD | OFF_CARD

LEAST = 0.1
"""Strength below which a cause is not named."""
OTHERWISE = 0.2
"""Strength of the cause that is left: named first where no reading says more."""
_SOME_ERRORS, _MANY_REPLAYS, _MUCH_OTHER_PERCENT = 10, 100, 20.0
"""During one measurement; a few errors and packets sent again happen to healthy cards."""


class _ReadCard(NamedTuple):
    """The readings of one card, and of equal cards that are not slow."""

    own: LoadReadings
    others: Sequence[LoadReadings]

    def both(self, field: str) -> tuple[float | None, float | None]:
        """This card's, and the median of the others."""
        return getattr(self.own, field), _median(getattr(other, field) for other in self.others)

    def excess(self, *words: str) -> float:
        """By how much more of the time than the others the card had such a throttle reason."""
        usual = _median(_share(other, words) for other in self.others) or 0.0
        return max((_share(self.own, words) or 0.0) - usual, 0.0)

    @property
    def hotter(self) -> bool:
        temperature, others = self.both("temperature_c")
        return temperature is not None and others is not None and temperature >= others + 8.0

    @property
    def lower_clock(self) -> bool:
        """True also where it cannot be known."""
        clock, others = self.both("sm_clock_mhz")
        return clock is None or others is None or clock < 0.98 * others


def _median(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return statistics.median(known) if known else None


def _share(readings: LoadReadings, words: tuple[str, ...]) -> float | None:
    """Of the readings that had such a reason; several such reasons: the most frequent."""
    if readings.throttled is None:
        return None
    shares = (share for reason, share in readings.throttled.items() if any(word in reason.lower() for word in words))
    return max(shares, default=0.0)


# --- how strongly the readings speak for a cause


def _thermal(card: _ReadCard) -> float:
    if not card.hotter:
        return card.excess("too hot", "thermal")
    if card.own.throttled is None and card.lower_clock:
        return 0.6
    return max(card.excess("too hot", "thermal"), card.excess("hardware slowdown"))


def _power_cap(card: _ReadCard) -> float:
    """A limit below that of the others, that the card also reaches."""
    cap, others = card.both("power_cap_w")
    if cap is None or others is None or cap >= 0.98 * others:
        return 0.0
    power = card.own.power_w
    if power is None or power >= 0.9 * cap or (_share(card.own, ("power cap",)) or 0.0) >= LEAST:
        return (1 - cap / others) / 0.05
    return 0.0


def _power_supply(card: _ReadCard) -> float:
    strength = card.excess("power brake")
    if not card.hotter:  # the hardware slows down for heat or for a weak supply
        strength = max(strength, card.excess("hardware slowdown"))
    return strength


def _clocks_set(card: _ReadCard) -> float:
    return card.excess("application clocks") if card.lower_clock else 0.0


def _uncorrected(card: _ReadCard) -> float:
    errors, others = card.both("ecc_uncorrected")
    return 1.0 if errors and not others else 0.0


def _corrected(card: _ReadCard) -> float:
    if _many(card, "ecc_corrected", _SOME_ERRORS):
        return 0.8
    return 0.5 if card.own.remapping_pending else 0.0


def _many(card: _ReadCard, field: str, least: int) -> bool:
    number, others = card.both(field)
    return number is not None and number >= least and number >= 10 * (others or 0.0)


def _other_process(card: _ReadCard) -> float:
    share, others = card.both("other_utilization_percent")
    if share is not None:
        return (share - (others or 0.0)) / _MUCH_OTHER_PERCENT
    number, others = card.both("other_processes")
    return 0.4 if number and number > (others or 0.0) else 0.0


def _fewer(field: str, card: _ReadCard) -> float:
    """Less than the others; without others, less than card and slot together can do."""
    value, others = card.both(field)
    expected = getattr(card.own, f"{field}_max") if others is None else others
    return 1.0 if value is not None and expected is not None and value < expected else 0.0


def _link(card: _ReadCard) -> float:
    return 0.8 if _many(card, "pcie_replays", _MANY_REPLAYS) else 0.0


class CauseRule(NamedTuple):
    """One cause: which kinds of measurement it can explain, which reading shows it, what speaks for it."""

    cause: CauseId
    explains: frozenset[MeasuredKind]
    field: str
    strength: Callable[[_ReadCard], float]
    slows: frozenset[MeasuredKind] = frozenset()
    """What it cannot leave as it is."""


RULES = (
    CauseRule(CauseId.THERMAL, ON_CARD, "temperature_c", _thermal),
    CauseRule(CauseId.POWER_CAP, ON_CARD, "power_cap_w", _power_cap),
    CauseRule(CauseId.POWER_SUPPLY, ON_CARD, "power_w", _power_supply),
    CauseRule(CauseId.CLOCKS_SET, ON_CARD, "sm_clock_mhz", _clocks_set),
    CauseRule(CauseId.ECC, _ALL, "ecc_uncorrected", _uncorrected),
    CauseRule(CauseId.ECC, _ALL, "ecc_corrected", _corrected),
    CauseRule(CauseId.OTHER_PROCESS, _ALL, "other_utilization_percent", _other_process),
    CauseRule(CauseId.PCIE_WIDTH, _HOST, "pcie_width", partial(_fewer, "pcie_width"), _COPIES),
    CauseRule(CauseId.PCIE_GENERATION, _HOST, "pcie_generation", partial(_fewer, "pcie_generation"), _COPIES),
    CauseRule(CauseId.LINK, OFF_CARD, "pcie_replays", _link),
)
"""In the order in which equal strengths are named."""


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
    card = _ReadCard(readings, usual)
    found = []
    for rule in RULES:
        strength = rule.strength(card) * len(slow_kinds & rule.explains) / len(slow_kinds)
        if strength >= LEAST and not rule.slows & normal_kinds:
            value, others = card.both(rule.field)
            found.append(Cause(cause=rule.cause, strength=min(strength, 1.0), value=value, usual=others))
    if max((one.strength for one in found), default=0.0) < OTHERWISE:
        found.append(Cause(cause=CauseId.CARD if slow_kinds & ON_CARD else CauseId.LINK, strength=OTHERWISE))
    return tuple(sorted(found, key=lambda one: -one.strength))  # stable: of equals the first rule


# --- member or link

SLOW_BELOW = 0.85
"""Of the rate that is expected. Coarser than what is said of a single card: links vary more."""
Member = TypeVar("Member")


def slow_in_pairs(
    rates: Mapping[tuple[Member, Member], float],
    measure: Callable[[Sequence[tuple[Member, Member]]], Sequence[float | None]],
) -> tuple[tuple[Member, ...], tuple[tuple[Member, Member], ...]]:
    """Slow members and slow links, from the rates of neighbours. `measure` measures pairs that do not overlap."""
    if len(rates) < 3:
        return (), ()
    limit = SLOW_BELOW * sorted(rates.values())[3 * len(rates) // 4]  # most pairs may have a slow member
    slow = [pair for pair, rate in rates.items() if rate < limit]
    fast = {member for pair, rate in rates.items() if rate >= limit for member in pair}
    partners = sorted(fast, key=str)
    doubtful = [member for member in dict.fromkeys(member for pair in slow for member in pair) if member not in fast]
    members = []
    while doubtful:
        pairs = list(zip(doubtful, partners, strict=False))
        for (member, _), rate in zip(pairs, measure(pairs), strict=True):
            if rate is not None and rate >= limit:
                fast.add(member)
            elif rate is not None:
                members.append(member)
        doubtful = doubtful[len(pairs) :]
    return tuple(members), tuple(pair for pair in slow if fast.issuperset(pair))
