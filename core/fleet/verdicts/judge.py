"""The verdict on every card of a check, from what was measured of all of them. Pure functions, any thread.

Cards are equal when name, memory (in GiB), default power limit and whether they are simulated agree; they are compared
by kind and dtype of measurement. Each card has up to two scores for each kind:

- against the median of equal cards (`scores.score`); at least three equal cards, itself among them;
- against its own history (`scores.changes`). Where three or more equal cards have one, the changes are compared with
  each other and the card itself has to be slower than it was: what changed for all is said of the group.

Two cards that differ, without a history: unknown, since either may be the slow one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
from typing import NamedTuple

import numpy as np
from msgspec.structs import replace

from devexplorer.core.fleet.records import (
    Basis,
    CardMeasurement,
    CardVerdict,
    FleetVerdict,
    GroupCase,
    GroupFinding,
    LoadReadings,
    MeasuredKind,
    RateComparison,
    Rates,
    Verdict,
    WhyUnknown,
)
from devexplorer.core.fleet.verdicts.causes import likely_causes
from devexplorer.core.fleet.verdicts.scores import (
    FAMILY_WISE,
    FEWEST,
    FLOOR,
    OF_MEDIAN,
    PARTS,
    Bools,
    Floats,
    Prior,
    Scores,
    alone,
    centre_and_error,
    changes,
    critical,
    score,
    shrunk,
    slow,
    t_quantile,
)

TOGETHER = frozenset({MeasuredKind.PEER, MeasuredKind.ALLREDUCE})
"""Measured by several cards together: where it fails, it may be the fault of another."""
_SPREADS = {MeasuredKind.MATMUL: 0.015, MeasuredKind.MEMORY: 0.015, MeasuredKind.MODEL: 0.02}
PRIORS = {kind: Prior(_SPREADS.get(kind, 0.03), 4.0) for kind in MeasuredKind}
"""Spread between healthy equal cards. Assumptions, which matter in small groups only: no source gives a spread of
healthy cards alone."""
PRIOR_RUNS = Prior(0.01, 4.0)
"""Spread of one healthy card from run to run."""
FLOOR_OF_PAIRS = 0.1
"""Least slowness of a card in what two cards do together: the best of two pairs is never faster than the card and
depends on its neighbours, so that healthy cards are skewed to the slow side."""
ABSURD = 1.5
"""A ratio to equal cards above which a measurement is not believed."""
TENTH = 0.9
"""A card at this share of its equals should be told."""
MARGIN = 2.0
"""For what is not known exactly of the time that would tell it."""
MANY = 200.0
"""Degrees of freedom with which the number of cards would be no reason."""


class _Card(NamedTuple):
    """One card's figures of one kind."""

    row: int
    """Which of the cards."""
    centre: float
    error: float
    """NaN: not known."""
    former: Floats
    """Logarithms."""
    seconds: float
    """For how long it was measured; NaN: not known."""


EqualsKey = tuple[str, int | None, int | None, bool]
_Key = tuple[EqualsKey, MeasuredKind, str]


def equals_key(card: CardMeasurement) -> EqualsKey:
    """What equal cards have in common."""
    memory, power = card.memory_total_bytes, card.power_limit_default_w
    return (
        card.name,
        None if memory is None else round(memory / 2**30),
        None if power is None else round(power),
        card.simulated,
    )


def usable_blocks(rates: Rates) -> Floats:
    """Its positive blocks; none where it failed, or where half of the blocks or more are no positive number."""
    blocks = np.array(rates.blocks, dtype=np.float64)
    good = blocks[np.isfinite(blocks) & (blocks > 0)]
    return good if rates.failure is None and not rates.wrong_values and len(good) * 2 > len(blocks) else good[:0]


def judge(cards: Sequence[CardMeasurement]) -> FleetVerdict:
    """The verdict on each of the cards, in their order."""
    groups = _groups(cards)
    number = 0
    for group in groups.values():
        histories = sum(bool(len(card.former)) for card in group)
        number += (len(group) if len(group) >= FEWEST else 0) + histories + (histories >= FEWEST)
    compared: defaultdict[int, list[RateComparison]] = defaultdict(list)
    findings: list[GroupFinding] = []
    coarse: list[GroupFinding] = []
    noisy: set[int] = set()
    for (equals, kind, dtype), group in groups.items():
        check = _Check(equals[0], kind, dtype, group, number)
        scores, beside_equals = check.with_equals(findings)
        beside_itself = check.with_history(findings)
        for row, comparison in (*beside_equals, *beside_itself):
            compared[row].append(comparison)
        if scores is not None:
            coarse += check.told_little(scores, beside_equals, beside_itself)
        noisy.update(card.row for card in group if card.error > FLOOR)
    verdicts = []
    for row, card in enumerate(cards):
        comparisons = tuple(compared[row])
        verdict, why = _decided(card, comparisons, row in noisy, groups.keys())
        verdicts.append(
            CardVerdict(
                machine=card.machine,
                device=card.device,
                name=card.name,
                verdict=verdict,
                why=why,
                worst=min(comparisons, key=_margin, default=None),
                comparisons=comparisons,
                simulated=card.simulated,
            )
        )
    return FleetVerdict(
        cards=tuple(_with_causes(cards, verdicts)),
        groups=(*findings, *coarse),
        comparisons=number,
        family_wise=FAMILY_WISE,
    )


def _groups(cards: Sequence[CardMeasurement]) -> dict[_Key, list[_Card]]:
    """Those that could be measured, by kind among equals."""
    groups: dict[_Key, list[_Card]] = {}
    for row, card in enumerate(cards):
        if card.lost:
            continue
        for rates in card.rates:
            blocks = usable_blocks(rates)
            if len(blocks):
                former = np.array([value for value in rates.former if math.isfinite(value) and value > 0])
                seconds = len(rates.blocks) * (rates.block_s or math.nan)
                centre, error = centre_and_error(blocks)
                found = _Card(row, float(centre), float(error), np.log(former), seconds)
                groups.setdefault((equals_key(card), rates.kind, rates.dtype), []).append(found)
    return groups


_Compared = tuple[int, RateComparison]
"""Which of the cards, and its comparison."""


class _Check(NamedTuple):
    """One kind of measurement of one group of equal cards."""

    name: str
    kind: MeasuredKind
    dtype: str
    group: Sequence[_Card]
    comparisons: int

    @property
    def floor(self) -> float:
        """Slower by less is not called slow, however sure it is."""
        return FLOOR_OF_PAIRS if self.kind in TOGETHER else FLOOR

    def with_equals(self, findings: list[GroupFinding]) -> tuple[Scores | None, list[_Compared]]:
        group = self.group
        if len(group) < FEWEST:
            if concerned := sum(not len(card.former) for card in group):
                findings.append(self._finding(GroupCase.TOO_FEW, len(group), concerned))
            return None, []
        scores = score(_centres(group), _errors(group), PRIORS[self.kind], self.comparisons)
        flagged = slow(scores, self.comparisons, self.floor)
        number = int(flagged.sum())
        if number >= max(2, len(group) / 4):
            ratio = math.exp(float(np.median(scores.difference[flagged])))
            findings.append(self._finding(GroupCase.TWO_SPEEDS, len(group), number, ratio))
        return scores, self._compared(Basis.EQUAL_CARDS, group, scores, flagged)

    def with_history(self, findings: list[GroupFinding]) -> list[_Compared]:
        group = [card for card in self.group if len(card.former)]
        if not group:
            return []
        former, errors = [card.former for card in group], _errors(group)
        change, error = changes(_centres(group), former, errors, PRIOR_RUNS)
        if len(group) < FEWEST:
            scores = alone(change, former, errors, PRIOR_RUNS)
            return self._compared(Basis.OWN_HISTORY, group, scores, slow(scores, self.comparisons, self.floor))
        scores = score(change, error, PRIOR_RUNS, self.comparisons)
        common = float(np.median(change))
        changed = self._is_significant(common, scores)
        if changed:
            scores = scores._replace(difference=change)
        flagged = slow(scores, self.comparisons, self.floor) & (change < math.log1p(-self.floor))
        if changed:
            concerned = int(flagged.sum())
            findings.append(self._finding(GroupCase.ALL_CHANGED, len(group), concerned, math.exp(common)))
        return self._compared(Basis.OWN_HISTORY, group, scores._replace(difference=change), flagged)

    def _is_significant(self, common: float, scores: Scores) -> bool:
        """Whether the group as a whole is slower than it was, by this median change."""
        freedom = len(scores.spread) - 1
        variance = shrunk(float(np.median(scores.spread)) ** 2, freedom, PRIOR_RUNS)
        limit = t_quantile(FAMILY_WISE / self.comparisons, freedom + PRIOR_RUNS.freedom) * np.sqrt(
            variance * OF_MEDIAN / len(scores.spread)
        )
        return common < min(-float(limit), math.log1p(-self.floor))

    def _compared(self, basis: Basis, group: Sequence[_Card], scores: Scores, flagged: Bools) -> list[_Compared]:
        limits = np.exp(np.minimum(critical(scores, self.comparisons), math.log1p(-self.floor)))
        found = []
        for at, card in enumerate(group):
            if math.isfinite(scores.difference[at]):
                comparison = RateComparison(
                    kind=self.kind,
                    dtype=self.dtype,
                    basis=basis,
                    ratio=math.exp(scores.difference[at]),
                    slow=bool(flagged[at]),
                    slow_below=float(limits[at]),
                    others=int(scores.others[at]) if basis is Basis.EQUAL_CARDS else len(card.former),
                )
                found.append((card.row, comparison))
        return found

    def told_little(
        self, scores: Scores, equals: Sequence[_Compared], histories: Sequence[_Compared]
    ) -> list[GroupFinding]:
        """What is to be said where a card that is a tenth slower than its equals could not be told, and its own history
        does not tell it either: what keeps the check from it, and what would help."""
        told = sum(one.slow_below >= TENTH for _, one in histories)
        slow_below = float(np.median([one.slow_below for _, one in equals]))
        if self.kind in TOGETHER or told == len(self.group) or slow_below >= TENTH:
            return []
        finding = self._finding(GroupCase.FEW, len(self.group), len(self.group) - told, slow_below)
        spread = float(np.nanmedian(scores.spread))
        error = math.sqrt(OF_MEDIAN) * float(np.median(_errors(self.group)))
        seconds = float(np.median([card.seconds for card in self.group]))
        if all(math.isnan(card.error) for card in self.group):
            return [replace(finding, case=GroupCase.UNCERTAIN, seconds=rounded(seconds * PARTS))]
        if error**2 > spread**2 / 2:
            longer = MARGIN * (math.log(slow_below) / math.log(TENTH)) ** 2
            return [replace(finding, case=GroupCase.UNCERTAIN, share=error, seconds=rounded(seconds * longer))]
        of_many = float(t_quantile(FAMILY_WISE / self.comparisons, MANY))
        if of_many * spread > -math.log(TENTH):
            return [replace(finding, case=GroupCase.DIFFER, share=spread)]
        return [finding]

    def _finding(self, case: GroupCase, cards: int, concerned: int, ratio: float | None = None) -> GroupFinding:
        return GroupFinding(
            name=self.name, kind=self.kind, dtype=self.dtype, case=case, cards=cards, concerned=concerned, ratio=ratio
        )


def _centres(group: Sequence[_Card]) -> Floats:
    return np.array([card.centre for card in group])


def _errors(group: Sequence[_Card]) -> Floats:
    """Too few blocks to know it: that of the others."""
    errors = np.array([card.error for card in group])
    known = errors[np.isfinite(errors)]
    return np.where(np.isfinite(errors), errors, np.median(known) if len(known) else 0.0)


def rounded(seconds: float) -> float | None:
    """Up to a duration that a person would write; None for none."""
    if math.isnan(seconds):
        return None
    step = 60.0
    if seconds < 10:
        step = 1.0
    elif seconds < 120:
        step = 10.0
    return math.ceil(seconds / step) * step


# --- one card


def _margin(comparison: RateComparison) -> tuple[bool, float]:
    """Slow ones first, then by how far beyond the threshold."""
    return not comparison.slow, comparison.ratio / comparison.slow_below


def _decided(
    card: CardMeasurement, comparisons: Sequence[RateComparison], noisy: bool, measured: Collection[_Key]
) -> tuple[Verdict, WhyUnknown | None]:
    """`measured`: what could be measured of any card."""
    failed = [rates for rates in card.rates if not len(usable_blocks(rates))]
    could = [rates for rates in failed if (equals_key(card), rates.kind, rates.dtype) in measured]
    if card.lost:
        return Verdict.FAILED, WhyUnknown.LOST
    if any(rates.wrong_values for rates in card.rates):
        return Verdict.FAILED, WhyUnknown.WRONG_VALUES
    if any(rates.kind not in TOGETHER for rates in could):
        return Verdict.FAILED, WhyUnknown.NOT_MEASURED
    if any(comparison.slow for comparison in comparisons):
        return Verdict.SLOW, None
    if len(failed) == len(card.rates):
        return Verdict.UNKNOWN, WhyUnknown.NOT_MEASURED
    if not comparisons:
        return Verdict.UNKNOWN, WhyUnknown.TOO_FEW_EQUAL
    if any(one.basis is Basis.EQUAL_CARDS and one.ratio > ABSURD for one in comparisons):
        return Verdict.UNKNOWN, WhyUnknown.ABSURD
    if noisy:
        return Verdict.UNKNOWN, WhyUnknown.NOISY
    return Verdict.NORMAL, None


def _with_causes(cards: Sequence[CardMeasurement], verdicts: Sequence[CardVerdict]) -> list[CardVerdict]:
    """Slow cards with their likely causes: their readings beside those of equal cards that are not slow."""
    usual: defaultdict[EqualsKey, list[LoadReadings]] = defaultdict(list)
    for card, verdict in zip(cards, verdicts, strict=True):
        if verdict.verdict is Verdict.NORMAL and card.readings is not None:
            usual[equals_key(card)].append(card.readings)
    found = []
    for card, verdict in zip(cards, verdicts, strict=True):
        if verdict.verdict is Verdict.SLOW:
            kinds = frozenset(one.kind for one in verdict.comparisons if one.slow)
            normal = frozenset(one.kind for one in verdict.comparisons) - kinds
            causes = likely_causes(card.readings, usual[equals_key(card)], kinds, normal)
            found.append(replace(verdict, causes=causes))
        else:
            found.append(verdict)
    return found
