"""Why a slow card is likely slow, from its readings beside those of equal cards under the same load; and which member
of a fleet slows down what several do together. Pure functions, any thread.

A reading speaks for a cause only as far as it differs from the median of equal cards that are not slow: under a heavy
product every card of some types reports "power cap", and that explains nothing. A cause has to explain the kinds of
measurement that are slow, and none that it would slow may have been measured as normal: fewer PCIe lanes slow copies
between host and card, and no product. Where nothing differs, it is the card: for what runs on the card alone the chip,
for what leaves it the link. Of two causes that hold, the one with more strength, 0 to 1, which is the share of time or
how far the reading lies from the others'.

An all-reduce or a copy is as slow as its slowest member or link, so one measurement clears everything in it. The search
halves: both halves of what was slow are measured at once. A slow half is searched on; where both halves are fast, the
slowness is between them, and halves of the halves are crossed until two members are left. These two are then measured
with a partner that was cleared: if one of them is slow there too, it is the card, otherwise the link between the two.

That takes about 2 log₂ n rounds for one fault among n, each a few measurements that can run at the same time, against
n (n − 1) / 2 for all pairs. Measured groups never overlap within a round. A fault that shows in some rounds only leaves
a contradiction, which is said rather than guessed.
"""

from __future__ import annotations

import statistics
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

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


Group = tuple[str, ...]
Measure = Callable[[Sequence[Group]], Sequence[float]]
"""Measures groups of members that do not overlap, all at once; a rate each that does not depend on the group's size
(bus bandwidth as nccl-tests defines it), 0 or NaN where it failed."""

SLOW_BELOW = 0.85
"""Of the rate that is expected. Coarser than what is said of a single card: links vary more."""


class FoundLinks(NamedTuple):
    """What slows a fleet down."""

    cards: tuple[str, ...] = ()
    links: tuple[tuple[str, str], ...] = ()
    unclear: tuple[Group, ...] = ()
    """Slow once and not when looked at closer, or a pair without a fast member to compare its two with."""
    measurements: int = 0
    rounds: int = 0


class _LinkSearch:
    """Counts measurements and remembers what was fast."""

    def __init__(self, members: Sequence[str], measure: Measure, expected: float) -> None:
        self.members = members
        self._measure = measure
        self._limit = expected * SLOW_BELOW
        self.cleared: list[str] = []
        self.measurements = self.rounds = 0

    def slow(self, *groups: Group) -> tuple[bool, ...]:
        """Of each group; a group of one is fast by definition."""
        asked = [group for group in groups if len(group) > 1]
        rates = list(self._measure(asked)) if asked else []
        self.rounds += bool(asked)
        self.measurements += len(asked)
        known = dict(zip(asked, (not rate >= self._limit for rate in rates), strict=True))  # NaN is slow
        for group, is_slow in known.items():
            if not is_slow:
                self.cleared += [member for member in group if member not in self.cleared]
        return tuple(known.get(group, False) for group in groups)

    def partner(self, *but: str) -> str | None:
        return next((member for member in self.cleared if member not in but), None)


def find_slow(members: Sequence[str], expected: float, measure: Measure) -> FoundLinks:
    """Slow cards and links among members. `expected`: the rate of a group without a fault."""
    search = _LinkSearch(members, measure, expected)
    cards: list[str] = []
    links: list[tuple[str, str]] = []
    unclear: list[Group] = []
    waiting = [tuple(members)]
    while waiting:
        group = waiting.pop()
        if not search.slow(group)[0]:
            continue
        pairs = _narrowed(search, group)
        for a, b in pairs:
            if not _decide(search, a, b, cards, links):
                unclear.append((a, b))
        if not pairs:
            unclear.append(group)
            continue
        named = {*cards, *(link[0] for link in links), *(member for pair in unclear for member in pair)}
        rest = tuple(member for member in group if member not in named)
        if len(rest) >= 2:  # a second fault may hide behind the first
            waiting.append(rest)
    return FoundLinks(tuple(cards), tuple(links), tuple(unclear), search.measurements, search.rounds)


def _narrowed(search: _LinkSearch, group: Group) -> list[tuple[str, str]]:
    """The pairs to which the slowness of a group comes down; empty: it has gone."""
    if len(group) == 2:
        return [(group[0], group[1])]
    left, right = group[: len(group) // 2], group[len(group) // 2 :]
    slow_left, slow_right = search.slow(left, right)
    if not slow_left and not slow_right:
        crossing = _crossing(search, left, right)
        return [] if crossing is None else [crossing]
    return [
        pair
        for half, is_slow in ((left, slow_left), (right, slow_right))
        if is_slow
        for pair in _narrowed(search, half)
    ]


def _crossing(search: _LinkSearch, left: Group, right: Group) -> tuple[str, str] | None:
    """The two members, one of each side, between which it is slow; both sides are fast in themselves."""
    while len(left) > 1 or len(right) > 1:
        (a, b), (c, d) = _halves(left), _halves(right)
        straight = search.slow(a + c, b + d)
        if straight[0]:
            left, right = a, c
        elif straight[1]:
            left, right = b, d
        else:
            crossed = search.slow(a + d, b + c)
            if crossed[0]:
                left, right = a, d
            elif crossed[1]:
                left, right = b, c
            else:
                return None
        if not left or not right:
            return None
    return left[0], right[0]


def _halves(group: Group) -> tuple[Group, Group]:
    middle = (len(group) + 1) // 2
    return group[:middle], group[middle:]


def _decide(search: _LinkSearch, a: str, b: str, cards: list[str], links: list[tuple[str, str]]) -> bool:
    """A slow pair: one of the two, both, or their link. False: it can be any of them."""
    first = search.partner(a, b)
    if first is None:  # with a partner that may be slow itself, only a fast pair says something
        other = next((member for member in search.members if member not in (a, b)), None)
        if other is None or all(search.slow((member, other))[0] for member in (a, b)):
            return False
        first = other
    second = search.partner(a, b, first)
    if second is None:
        slow_a, slow_b = search.slow((a, first))[0], search.slow((b, first))[0]
    else:
        slow_a, slow_b = search.slow((a, first), (b, second))
    slow = [member for member, is_slow in ((a, slow_a), (b, slow_b)) if is_slow]
    cards += [member for member in slow if member not in cards]
    if not slow:
        links.append((a, b))
    return True


# --- where all pairs were measured anyway ---


def from_pairs(rates: Mapping[tuple[str, str], float]) -> FoundLinks:
    """Slow cards and links from the rates of pairs: a card where most of its pairs are slow, otherwise a link.

    The expected rate is the median of the pairs. One pair alone can only be called a link.
    """
    usable = {pair: rate for pair, rate in rates.items() if rate > 0}
    if not usable:
        return FoundLinks(unclear=tuple(rates), measurements=len(rates))
    limit = SLOW_BELOW * float(np.median(list(usable.values())))
    slow = {pair for pair, rate in rates.items() if not rate >= limit}
    cards: list[str] = []
    while True:
        partners: defaultdict[str, list[bool]] = defaultdict(list)
        for pair in rates:
            if not set(pair) & set(cards):
                for member in pair:
                    partners[member].append(pair in slow)
        shares = {member: sum(found) / len(found) for member, found in partners.items() if len(found) >= 2}
        worst = max(shares, key=lambda member: shares[member], default=None)
        if worst is None or shares[worst] <= 0.5:
            break
        cards.append(worst)
    links = tuple(pair for pair in rates if pair in slow and not set(pair) & set(cards))
    return FoundLinks(tuple(cards), links, (), len(rates), 1)
