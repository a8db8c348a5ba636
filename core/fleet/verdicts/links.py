"""Which member of a fleet slows down what several do together: a card, or the link between two. Pure, any thread.

An all-reduce or a copy is as slow as its slowest member or link, so one measurement clears everything in it. The search
halves: both halves of what was slow are measured at once. A slow half is searched on; where both halves are fast, the
slowness is between them, and halves of the halves are crossed until two members are left. These two are then measured
with a partner that was cleared: if one of them is slow there too, it is the card, otherwise the link between the two.

That takes about 2 log₂ n rounds for one fault among n, each a few measurements that can run at the same time, against
n (n − 1) / 2 for all pairs. Measured groups never overlap within a round. A fault that shows in some rounds only leaves
a contradiction, which is said rather than guessed.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np

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
