"""The verdict on every card of a check, from what was measured of all of them. Pure functions, any thread.

Cards are equal when name, memory (in GiB), default power limit and whether they are simulated agree; they are compared
by kind and dtype of measurement. Each card has up to two scores for each kind:

- against the median of equal cards (`scores.score`); at least three equal cards, itself among them;
- against its own history (`scores.changes`). Where three or more equal cards have one, the changes are compared with
  each other and the card itself has to be slower than it was: what changed for all is said of the group.

Only where a card has neither, it is compared with a published figure, with wide margins and marked so. Two cards that
differ, without a history: unknown, since either may be the slow one.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
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
    PARTS,
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
    t_tail,
)

_FREEDOM = 4.0
PRIORS = {
    MeasuredKind.MATMUL: Prior(0.015, _FREEDOM),
    MeasuredKind.MEMORY: Prior(0.015, _FREEDOM),
    MeasuredKind.MODEL: Prior(0.02, _FREEDOM),
    MeasuredKind.COPIES: Prior(0.03, _FREEDOM),
    MeasuredKind.PEER: Prior(0.03, _FREEDOM),
    MeasuredKind.ALLREDUCE: Prior(0.03, _FREEDOM),
}
"""Spread between healthy equal cards. Assumptions, which matter in small groups only: no source gives a spread of
healthy cards alone."""
TOGETHER = frozenset({MeasuredKind.PEER, MeasuredKind.ALLREDUCE})
"""Measured by several cards together: where it fails, it may be the fault of another."""
FLOOR_OF_PAIRS = 0.1
"""Least slowness of a card in what two cards do together: the best of two pairs is never faster than the card and
depends on its neighbours, so that healthy cards are skewed to the slow side."""
PRIOR_RUNS = Prior(0.01, _FREEDOM)
"""Spread of one healthy card from run to run."""
ABSURD = 1.5
"""A ratio to equal cards above which a measurement is not believed."""
PUBLISHED_SLOW, PUBLISHED_NORMAL = 0.8, 0.9
"""Ratios to a published figure: below the one slow, from the other on normal."""


class _Card(NamedTuple):
    """One card's figures of one kind."""

    row: int
    """Which of the cards."""
    centre: float
    error: float
    """NaN: not known."""
    former: tuple[float, ...]
    published: float | None
    seconds: float
    """For how long it was measured."""


class _Compared(NamedTuple):
    row: int
    comparison: RateComparison


def judge(cards: Sequence[CardMeasurement], family_wise: float = FAMILY_WISE) -> FleetVerdict:
    """The verdict on each of the cards, in their order."""
    groups = _groups(cards)
    number = sum(_number_of_comparisons(group) for group in groups.values())
    compared: defaultdict[int, list[RateComparison]] = defaultdict(list)
    findings: list[GroupFinding] = []
    limits: list[GroupFinding | None] = []
    for (name, _, _, _, kind, dtype), group in groups.items():
        check = _Check(name, kind, dtype, number, family_wise)
        for results, finding in (check.with_equals(group), check.with_history(group)):
            for row, comparison in results:
                compared[row].append(comparison)
            if finding is not None:
                findings.append(finding)
        limits.append(check.told_little(group, compared))
        for card in group:
            published = check.with_published(card) if not compared[card.row] else None
            if published is not None:
                compared[card.row].append(published)
    noisy = {
        card.row for group in groups.values() for card in group if math.isfinite(card.error) and card.error > FLOOR
    }
    verdicts = [_verdict(card, tuple(compared[row]), row in noisy, groups.keys()) for row, card in enumerate(cards)]
    return FleetVerdict(
        cards=tuple(_with_causes(cards, verdicts)),
        groups=(*findings, *(limit for limit in limits if limit is not None)),
        comparisons=number,
        family_wise=family_wise,
    )


_Key = tuple[str, int | None, int | None, bool, MeasuredKind, str]


def equals_key(card: CardMeasurement) -> tuple[str, int | None, int | None, bool]:
    """What equal cards have in common."""
    memory = None if card.memory_total_bytes is None else round(card.memory_total_bytes / 2**30)
    power = None if card.power_limit_default_w is None else round(card.power_limit_default_w)
    return card.name, memory, power, card.simulated


def _groups(cards: Sequence[CardMeasurement]) -> dict[_Key, list[_Card]]:
    """Those that could be measured, by kind among equals."""
    groups: defaultdict[_Key, list[_Card]] = defaultdict(list)
    for row, card in enumerate(cards):
        for rates in () if card.lost else card.rates:
            blocks = usable_blocks(rates)
            if len(blocks):
                centre, error = centre_and_error(blocks)
                groups[(*equals_key(card), rates.kind, rates.dtype)].append(
                    _Card(
                        row,
                        float(centre),
                        float(error),
                        _positive(rates.former),
                        rates.published,
                        len(rates.blocks) * (rates.block_s or math.nan),
                    )
                )
    return dict(groups)


def usable_blocks(rates: Rates) -> Floats:
    """Its positive blocks; none where it failed, or where half of the blocks or more are no positive number."""
    blocks = np.array(rates.blocks, dtype=np.float64)
    good = blocks[np.isfinite(blocks) & (blocks > 0)]
    return good if rates.failure is None and not rates.wrong_values and len(good) * 2 > len(blocks) else good[:0]


def _positive(values: Iterable[float]) -> tuple[float, ...]:
    return tuple(value for value in values if math.isfinite(value) and value > 0)


def _number_of_comparisons(group: Sequence[_Card]) -> int:
    """The group as a whole counts too, where it can be compared with its history."""
    histories = sum(bool(card.former) for card in group)
    return (len(group) if len(group) >= FEWEST else 0) + histories + (histories >= FEWEST)


class _Check(NamedTuple):
    """One kind of measurement of one group of equal cards."""

    name: str
    kind: MeasuredKind
    dtype: str
    comparisons: int
    family_wise: float

    @property
    def floor(self) -> float:
        """Slower by less is not called slow, however sure it is."""
        return FLOOR_OF_PAIRS if self.kind in (MeasuredKind.PEER, MeasuredKind.ALLREDUCE) else FLOOR

    def with_equals(self, group: Sequence[_Card]) -> tuple[list[_Compared], GroupFinding | None]:
        if len(group) < FEWEST:
            concerned = sum(not card.former for card in group)
            return [], self._finding(GroupCase.TOO_FEW, group, concerned) if concerned else None
        scores = score(np.array([card.centre for card in group]), _errors(group), PRIORS[self.kind], self.comparisons)
        flagged = slow(scores, self.comparisons, self.family_wise, self.floor)
        results = self._results(Basis.EQUAL_CARDS, group, scores, np.exp(scores.difference), flagged)
        share = int(flagged.sum())
        if share < max(2, math.ceil(len(group) / 4)):
            return results, None
        ratio = math.exp(float(np.median(scores.difference[flagged])))
        return results, self._finding(GroupCase.TWO_SPEEDS, group, share, ratio)

    def told_little(
        self, group: Sequence[_Card], compared: Mapping[int, Sequence[RateComparison]]
    ) -> GroupFinding | None:
        """What is to be said where a card that is a tenth slower than its equals could not be told, and its own history
        does not tell it either."""
        found: dict[Basis, list[float]] = {Basis.EQUAL_CARDS: [], Basis.OWN_HISTORY: []}
        for one in (one for card in group for one in compared.get(card.row, ())):
            if (one.kind, one.dtype) == (self.kind, self.dtype) and one.slow_below is not None:
                found[one.basis].append(one.slow_below)
        concerned = len(group) - sum(limit >= TENTH for limit in found[Basis.OWN_HISTORY])
        limits = found[Basis.EQUAL_CARDS]
        if self.kind in TOGETHER or not concerned or not limits or float(np.median(limits)) >= TENTH:
            return None
        errors, seconds = (np.array([getattr(card, name) for card in group]) for name in ("error", "seconds"))
        scores = score(np.array([card.centre for card in group]), _errors(group), PRIORS[self.kind], self.comparisons)
        why = coarse(scores, errors, seconds, PRIORS[self.kind], self.comparisons, self.family_wise)
        finding = self._finding(why.case, group, concerned, why.slow_below)
        return replace(finding, share=why.share, seconds=why.seconds)

    def with_history(self, group: Sequence[_Card]) -> tuple[list[_Compared], GroupFinding | None]:
        group = [card for card in group if card.former]
        if not group:
            return [], None
        most = max(len(card.former) for card in group)
        former = np.log(np.array([card.former + (math.nan,) * (most - len(card.former)) for card in group]))
        own_error = _errors(group)
        change, error = changes(np.array([card.centre for card in group]), former, own_error, PRIOR_RUNS)
        if len(group) < FEWEST:
            results = []
            for index, card in enumerate(group):
                logarithms = former[index][: len(card.former)]
                scores = alone(float(change[index]), logarithms, float(own_error[index]), PRIOR_RUNS)
                flagged = slow(scores, self.comparisons, self.family_wise, self.floor)
                results += self._results(Basis.OWN_HISTORY, [card], scores, np.exp(change[index : index + 1]), flagged)
            return results, None
        scores = score(change, error, PRIOR_RUNS, self.comparisons)
        common = self._common_change(change, scores)
        if common is not None:
            scores = scores._replace(difference=change)
        flagged = slow(scores, self.comparisons, self.family_wise, self.floor) & (change < math.log1p(-self.floor))
        results = self._results(Basis.OWN_HISTORY, group, scores, np.exp(change), flagged)
        if common is None:
            return results, None
        return results, self._finding(GroupCase.ALL_CHANGED, group, int(flagged.sum()), math.exp(common))

    def _common_change(self, change: Floats, scores: Scores) -> float | None:
        """The median change, where the group as a whole is significantly slower than it was."""
        number = len(change)
        spread = float(np.nanmedian(scores.spread))
        variance = float(shrunk(np.array(spread**2), np.array(number - 1), PRIOR_RUNS))
        limit = t_quantile(self.family_wise / self.comparisons, np.array(number - 1 + PRIOR_RUNS.freedom))
        common = float(np.median(change))
        significant = common < -float(limit) * math.sqrt(variance * math.pi / 2 / number)
        return common if significant and common < math.log1p(-self.floor) else None

    def with_published(self, card: _Card) -> RateComparison | None:
        if card.published is None or not card.published > 0:
            return None
        ratio = math.exp(card.centre) / card.published
        return RateComparison(
            kind=self.kind,
            dtype=self.dtype,
            basis=Basis.PUBLISHED,
            ratio=ratio,
            slow=ratio < PUBLISHED_SLOW,
            slow_below=PUBLISHED_SLOW,
        )

    def _results(
        self, basis: Basis, group: Sequence[_Card], scores: Scores, ratios: Floats, flagged: Iterable[bool]
    ) -> list[_Compared]:
        limits = critical(scores, self.comparisons, self.family_wise)
        statistics = scores.statistic
        results = []
        for position, (card, is_slow) in enumerate(zip(group, flagged, strict=True)):
            statistic, limit = float(statistics[position]), float(limits[position])
            if not math.isfinite(statistic):
                continue
            tail = t_tail(-statistic, float(scores.freedom[position]))
            comparison = RateComparison(
                kind=self.kind,
                dtype=self.dtype,
                basis=basis,
                ratio=float(ratios[position]),
                slow=bool(is_slow),
                statistic=statistic,
                threshold=-limit,
                slow_below=min(math.exp(-limit * float(scores.scale[position])), 1 - self.floor),
                others=int(scores.others[position]) if basis is Basis.EQUAL_CARDS else len(card.former),
                confidence=1 - min(1.0, tail * self.comparisons),
            )
            results.append(_Compared(card.row, comparison))
        return results

    def _finding(
        self, case: GroupCase, group: Sequence[_Card], concerned: int, ratio: float | None = None
    ) -> GroupFinding:
        return GroupFinding(
            name=self.name,
            kind=self.kind,
            dtype=self.dtype,
            case=case,
            cards=len(group),
            concerned=concerned,
            ratio=ratio,
        )


def _errors(group: Sequence[_Card]) -> Floats:
    """Too few blocks to know it: that of the others."""
    errors = np.array([card.error for card in group])
    known = errors[np.isfinite(errors)]
    return np.where(np.isfinite(errors), errors, np.median(known) if len(known) else 0.0)


# --- one card ---------------------------------------------------------------------------------------------------------


def _verdict(
    card: CardMeasurement, comparisons: tuple[RateComparison, ...], noisy: bool, measured: Collection[_Key]
) -> CardVerdict:
    worst = min(comparisons, key=_margin, default=None)
    verdict, why = _decided(card, comparisons, noisy, measured)
    return CardVerdict(
        machine=card.machine,
        device=card.device,
        name=card.name,
        verdict=verdict,
        why=why,
        worst=worst,
        comparisons=comparisons,
        simulated=card.simulated,
    )


def _margin(comparison: RateComparison) -> tuple[bool, float]:
    """Slow ones first, then by how far beyond the threshold."""
    return not comparison.slow, math.log(comparison.ratio / (comparison.slow_below or 1.0))


def _failed(card: CardMeasurement, measured: Collection[_Key]) -> bool:
    """Something failed that needs no other card, and that an equal card could do. `measured`: what could be measured
    of any."""
    return any(
        rates.kind not in TOGETHER
        and not len(usable_blocks(rates))
        and (*equals_key(card), rates.kind, rates.dtype) in measured
        for rates in card.rates
    )


def _decided(
    card: CardMeasurement, comparisons: Sequence[RateComparison], noisy: bool, measured: Collection[_Key]
) -> tuple[Verdict, WhyUnknown | None]:
    if card.lost:
        return Verdict.FAILED, WhyUnknown.LOST
    if any(rates.wrong_values for rates in card.rates):
        return Verdict.FAILED, WhyUnknown.WRONG_VALUES
    if _failed(card, measured):
        return Verdict.FAILED, WhyUnknown.NOT_MEASURED
    if any(comparison.slow for comparison in comparisons):
        return Verdict.SLOW, None
    if not any(len(usable_blocks(rates)) for rates in card.rates):
        return Verdict.UNKNOWN, WhyUnknown.NOT_MEASURED
    if not comparisons:
        return Verdict.UNKNOWN, WhyUnknown.TOO_FEW_EQUAL
    if any(comparison.basis is Basis.EQUAL_CARDS and comparison.ratio > ABSURD for comparison in comparisons):
        return Verdict.UNKNOWN, WhyUnknown.ABSURD
    if noisy:
        return Verdict.UNKNOWN, WhyUnknown.NOISY
    if any(one.basis is Basis.PUBLISHED and one.ratio < PUBLISHED_NORMAL for one in comparisons):
        return Verdict.UNKNOWN, WhyUnknown.NEAR_PUBLISHED
    return Verdict.NORMAL, None


def _with_causes(cards: Sequence[CardMeasurement], verdicts: Sequence[CardVerdict]) -> Iterable[CardVerdict]:
    """Slow cards with their likely causes: their readings beside those of equal cards that are not slow."""
    usual: defaultdict[tuple[object, ...], list[LoadReadings]] = defaultdict(list)
    for card, verdict in zip(cards, verdicts, strict=True):
        if verdict.verdict is Verdict.NORMAL and card.readings is not None:
            usual[equals_key(card)].append(card.readings)
    for card, verdict in zip(cards, verdicts, strict=True):
        if verdict.verdict is not Verdict.SLOW:
            yield verdict
            continue
        kinds = frozenset(one.kind for one in verdict.comparisons if one.slow)
        normal = frozenset(one.kind for one in verdict.comparisons) - kinds
        causes = likely_causes(card.readings, usual[equals_key(card)], kinds, normal)
        yield replace(verdict, causes=causes)


# How slow a card has to be for a check to tell, and what would help where that is more than a tenth.

TENTH = 0.9
"""A card at this share of its equals should be told."""
MOST_LONGER = 60.0
"""Measurements that would have to take so many times as long are no advice."""
MARGIN = 1.5
"""For what is not known exactly."""
MANY = 200.0
"""Degrees of freedom with which the number of cards would be no reason."""
OF_MEDIAN = math.pi / 2
"""The variance of a median to that of a mean: a card's figure is the one, its error that of the other."""


class Coarse(NamedTuple):
    """What keeps a check from finding a card that is a tenth slower."""

    case: GroupCase
    slow_below: float
    """Share of the median of its equals from which on a card is called slow, of the card in the middle."""
    share: float | None = None
    """Of the rate: by how much healthy cards differ, or how uncertain one card's own figure is."""
    seconds: float | None = None
    """That each measurement should take."""


def coarse(scores: Scores, errors: Floats, seconds: Floats, prior: Prior, comparisons: int, alpha: float) -> Coarse:
    """Of scores that do not tell a tenth. `errors`: the standard error of each card's figure, NaN where it has too few
    blocks to know it; `seconds`: for how long each was measured. `alpha`: `FAMILY_WISE`."""
    limits = critical(scores, comparisons, alpha)
    slow_below = math.exp(-float(np.nanmedian(limits * scores.scale)))
    known = errors[np.isfinite(errors)]
    lasted = float(np.median(seconds))  # NaN where that is not known
    if not len(known):
        return Coarse(GroupCase.UNCERTAIN, slow_below, None, rounded(lasted * PARTS))
    others = float(np.median(scores.others))
    error2, spread2 = OF_MEDIAN * float(np.median(known)) ** 2, float(np.nanmedian(scores.spread)) ** 2
    healthy = max(spread2 - error2, 0.0)
    """Variance between healthy cards, without what is uncertain of each."""
    mostly = error2 > spread2 / 2
    if mostly:  # little can be known of it then
        healthy = min(healthy, prior.spread**2)
    enough = (math.log(TENTH) / float(np.nanmedian(limits))) ** 2 / (1 + math.pi / 2 / others)
    """Variance with which a tenth would just be told."""
    freedom = max(others - 1, 1.0)
    assumed = (enough * (prior.freedom + freedom) - prior.freedom * prior.spread**2) / freedom
    allowed = min(enough, assumed)
    """The same of the variance that is measured, to which the assumed one is added."""
    longer = error2 / (allowed - healthy) if allowed > healthy else math.inf
    if longer <= MOST_LONGER and (longer > 1.0 or mostly):
        wanted_s = rounded(lasted * max(longer, 1.0) * MARGIN)
        return Coarse(GroupCase.UNCERTAIN, slow_below, math.sqrt(error2), wanted_s)
    of_many = float(t_quantile(alpha / max(comparisons, 1), np.array(MANY)))
    if of_many * math.sqrt(healthy) <= -math.log(TENTH):
        return Coarse(GroupCase.FEW, slow_below)
    return Coarse(GroupCase.DIFFER, slow_below, math.sqrt(healthy))


def rounded(seconds: float) -> float | None:
    """Up to a duration that a person would write; None for none."""
    if not math.isfinite(seconds):
        return None
    if seconds < 10:
        step = 1.0
    elif seconds < 120:
        step = 10.0
    else:
        step = 60.0
    return math.ceil(seconds / step) * step
