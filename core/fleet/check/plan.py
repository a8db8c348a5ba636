"""What a check of a fleet measures, and in which order. Pure functions, any thread."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence

from msgspec.structs import replace

from devexplorer.core.base import BadInput, list_text
from devexplorer.core.fleet.events import CardKey
from devexplorer.core.fleet.records import MeasuredKind
from devexplorer.core.fleet.table import FleetCard
from devexplorer.core.records.base import Record

KINDS = tuple(MeasuredKind)
DEFAULT_KINDS = (MeasuredKind.MATMUL, MeasuredKind.MEMORY, MeasuredKind.COPIES, MeasuredKind.ALLREDUCE)
ALONE = (MeasuredKind.MATMUL, MeasuredKind.MEMORY, MeasuredKind.COPIES, MeasuredKind.MODEL)
"""Measured on each card by itself; the others need two or more."""
ONE_BY_ONE = (MeasuredKind.COPIES, MeasuredKind.PEER)
"""They keep the host or two cards busy: an engine has one such run at a time."""
OVERHEAD_S = 3.0
"""Of each measurement, about: to prepare, to warm up, to begin together."""
LEAST_S = 2.0
"""Of a measurement for which a budget is short."""
GPU_KINDS = ("cuda", "virtual", "xpu", "mps")


class CheckPlan(Record):
    """What to measure."""

    kinds: tuple[MeasuredKind, ...] = DEFAULT_KINDS
    dtypes: tuple[str, ...] = ("float16",)
    """Of products and models."""
    seconds: float = 20.0
    """Of each measurement, after warm-up; the check has one for each kind, and for each dtype of products."""
    in_turn: bool = False
    """One card of a machine after the other, rather than all of them at once."""
    soak_s: float = 0.0
    """Of products before those that are measured, so that the cards are as hot as they get."""
    budget_s: float | None = None
    """For all of it; what does not fit is left out."""


class CheckStep(Record):
    """One order of a check, but for its number."""

    kind: MeasuredKind
    dtype: str
    groups: tuple[tuple[CardKey, ...], ...]


def parse_kinds(text: str) -> tuple[MeasuredKind, ...]:
    """`matmul,memory`: the kinds, each once. Raises `BadInput`."""
    known = {kind.value: kind for kind in KINDS}
    words = [word.strip().lower() for word in text.split(",") if word.strip()]
    unknown = [word for word in words if word not in known]
    if unknown or not words:
        what = f"'{unknown[0]}' is not a kind of measurement" if unknown else "no kind of measurement is named"
        raise BadInput(f"--kind: {what}; write {list_text(list(known))}, with commas between them")
    return tuple(dict.fromkeys(known[word] for word in words))


def measured_cards(cards: Iterable[FleetCard]) -> list[FleetCard]:
    """Those that can be measured: no CPU, no part of another card that is listed too."""
    return [card for card in cards if card.info.kind in GPU_KINDS and card.info.usable]


def steps(plan: CheckPlan, cards: Sequence[FleetCard]) -> Iterator[CheckStep]:
    """The measurements in their order: those of single cards first."""
    for kind in sorted(plan.kinds, key=lambda kind: kind not in ALONE):
        dtypes = plan.dtypes if kind in (MeasuredKind.MATMUL, MeasuredKind.MODEL) else ("",)
        for dtype in dtypes:
            for groups in _rounds(kind, cards, in_turn=plan.in_turn):
                yield CheckStep(kind=kind, dtype=dtype, groups=groups)


def seconds_of(step: CheckStep, plan: CheckPlan, *, at_once: bool = False) -> float:
    """About how long a step takes. `at_once`: no engine has its groups wait for each other."""
    machines = Counter(group[0][0] for group in step.groups)
    turns = max(machines.values()) if step.kind in ONE_BY_ONE and not at_once else 1
    soak_s = plan.soak_s if step.kind is MeasuredKind.MATMUL else 0.0
    return soak_s + turns * (OVERHEAD_S + plan.seconds)


def within_budget(plan: CheckPlan, cards: Sequence[FleetCard]) -> CheckPlan:
    """The plan with fewer seconds for each measurement, if its budget is too short for those it has. Raises `BadInput`
    where not even `LEAST_S` of the first would fit."""
    planned = list(steps(plan, cards))
    budget_s = plan.budget_s
    if budget_s is None or not planned:
        return plan

    def needed_s(seconds: float) -> float:
        return sum(seconds_of(step, replace(plan, seconds=seconds)) for step in planned)

    each_s = needed_s(1.0) - needed_s(0.0)
    least = replace(plan, seconds=min(LEAST_S, plan.seconds))
    if (first_s := seconds_of(planned[0], least)) > budget_s:
        raise BadInput(f"a budget of {budget_s:g} s is too short: the first measurement alone takes {first_s:g} s")
    seconds = (budget_s - needed_s(0.0)) / each_s
    return replace(plan, seconds=max(min(plan.seconds, seconds), least.seconds))


def _rounds(
    kind: MeasuredKind, cards: Sequence[FleetCard], *, in_turn: bool
) -> Iterator[tuple[tuple[CardKey, ...], ...]]:
    machines: dict[str, list[CardKey]] = {}
    for card in cards:
        machines.setdefault(card.machine, []).append((card.machine, card.info.id))
    if kind in ALONE and not in_turn:
        yield tuple((key,) for keys in machines.values() for key in keys)
    elif kind in ALONE:
        for turn in range(max(map(len, machines.values()), default=0)):
            yield tuple((keys[turn],) for keys in machines.values() if turn < len(keys))
    else:
        yield from pair_rounds(list(machines.values()))
        whole = tuple(tuple(keys) for keys in machines.values() if len(keys) > 2)
        if kind is MeasuredKind.ALLREDUCE and whole:
            yield whole


def pair_rounds(rings: Sequence[Sequence[CardKey]]) -> Iterator[tuple[tuple[CardKey, CardKey], ...]]:
    """Each member of a ring with the next one, so that each is in two pairs; no member is twice in one round.

    A member that is slow with both of its neighbours is slow itself; a pair whose members are fast with their other
    neighbours has a slow link.
    """
    rounds: list[list[tuple[CardKey, CardKey]]] = [[], [], []]
    for ring in rings:
        pairs = list(zip(ring, (*ring[1:], ring[0]), strict=True))
        if len(ring) <= 2:
            del pairs[len(ring) - 1 :]
        for index, pair in enumerate(pairs):
            closes = index == len(pairs) - 1 and index % 2 == 0 and index > 0  # it meets the first pair again
            rounds[2 if closes else index % 2].append(pair)
    for pairs in rounds:
        if pairs:
            yield tuple(pairs)
