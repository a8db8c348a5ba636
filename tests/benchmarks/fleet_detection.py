"""How often a slow card is found, and how often a healthy one is called slow, in simulated fleets with a known answer.

    python tests/benchmarks/fleet_detection.py [--trials 1000] [--healthy 20000] [--seed 16] [--table FILE.csv]

64 cards, 60 s of measuring: 30 blocks of one second of products and 30 of memory. Healthy cards differ by one factor
for both (σ 1.5 % or 3 %), blocks of one card by σ 1 %, runs of one card by σ 0.5 % unless noted; a history has 5
former runs. All normal in the logarithm, all from the seed. `--table` writes the curve (slowness against detection),
from which tests/pictures/fleet_detection.py draws. Intervals are Wilson's at 95 %. Nothing here is measured on a real
card."""

from __future__ import annotations

import argparse
import csv
import math
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.fleet.records import MeasuredKind, Verdict
from devexplorer.core.fleet.verdicts.causes import slow_in_pairs
from devexplorer.core.fleet.verdicts.judge import PRIOR_RUNS, PRIORS, judge
from devexplorer.core.fleet.verdicts.scores import centre_and_error, changes, score, slow

sys.path.insert(0, str(Path(__file__).parents[1]))
from fakes.fleet_measurements import Defect, DefectKind, Noise, block_noise, measured

CARDS, BLOCKS, FORMER = 64, 30, 5
KINDS = (MeasuredKind.MATMUL, MeasuredKind.MEMORY)
BATCH = 250
SLOWNESS = tuple(round(1 - step / 100, 2) for step in range(21))
Bools = npt.NDArray[np.bool_]
Floats = npt.NDArray[np.float64]


class Setting(NamedTuple):
    """What is simulated."""

    noise: Noise
    cards: int = CARDS
    factor: float = 1.0
    """Of card 0, on its healthy self."""
    history: bool = False
    independent: bool = False
    """Each kind has a factor of its own."""
    tails: bool = False
    """Cards differ by Student's distribution with 5 degrees of freedom instead of the normal one, with the same σ."""


class Fleet(NamedTuple):
    """One kind of measurement of a fleet; logarithms, a value a card."""

    now: Floats
    error: Floats
    former: Floats
    """One more axis."""


def fleets(rng: np.random.Generator, setting: Setting, count: int) -> Iterator[list[Fleet]]:
    """Each of `count` fleets, with each kind of measurement."""
    noise, shape = setting.noise, (count, setting.cards)
    common = factors(rng, setting, shape)
    made = []
    for _ in KINDS:
        own = factors(rng, setting, shape) if setting.independent else common
        blocks = (own + rng.normal(0.0, noise.runs, shape))[..., None] + block_noise(rng, (*shape, BLOCKS), noise)
        blocks[:, 0] += math.log(setting.factor)
        # of a former run only its median is kept: that of 30 blocks varies by 1.25 σ/√30
        former_noise = math.hypot(noise.runs, 1.2533 * noise.blocks / math.sqrt(BLOCKS))
        former = own[..., None] + rng.normal(0.0, former_noise, (*shape, FORMER if setting.history else 0))
        made.append((*centre_and_error(np.exp(blocks)), former))
    for number in range(count):
        yield [Fleet(*(array[number] for array in kind)) for kind in made]


def factors(rng: np.random.Generator, setting: Setting, shape: tuple[int, ...]) -> Floats:
    """What healthy cards differ by."""
    if setting.tails:
        return np.asarray(rng.standard_t(5, shape) * math.sqrt(3 / 5) * setting.noise.cards)
    return rng.normal(0.0, setting.noise.cards, shape)


def called_slow(fleet: list[Fleet], setting: Setting) -> Bools:
    """As `judge` does it."""
    number = len(KINDS) * (setting.cards * (2 if setting.history else 1) + setting.history)
    flagged = np.zeros(fleet[0].now.shape, dtype=np.bool_)
    for kind, (now, error, former) in zip(KINDS, fleet, strict=True):
        flagged |= slow(score(now, error, PRIORS[kind], number), number)
        if setting.history:
            change, change_error = changes(now, list(former), error, PRIOR_RUNS)
            scores = score(change, change_error, PRIOR_RUNS, number)
            flagged |= slow(scores, number) & (change < math.log(0.97))
    return flagged


Rule = Callable[[list[Fleet], Setting], Bools]


def below_median(share: float) -> Rule:
    """A fixed share of the median of all cards."""
    return lambda fleet, _: np.any(
        [kind.now - np.median(kind.now, axis=-1, keepdims=True) < math.log(share) for kind in fleet], axis=0
    )


def below_best(share: float) -> Rule:
    """A fixed share of the best card."""
    return lambda fleet, _: np.any(
        [kind.now - kind.now.max(axis=-1, keepdims=True) < math.log(share) for kind in fleet], axis=0
    )


RULES: dict[str, Rule] = {
    "devexplorer": called_slow,
    "0.95 of the median": below_median(0.95),
    "1/1.1 of the median": below_median(1 / 1.1),
    "0.75 of the best": below_best(0.75),
}
"""The others are thresholds that are published (docs/fleet.md says by whom), applied to the same simulated rates."""


class Counted(NamedTuple):
    """Of so many fleets."""

    trials: int
    found: int
    """Card 0 was called slow."""
    wrong: int
    """Any other card was."""


def count(rng: np.random.Generator, setting: Setting, trials: int, rules: dict[str, Rule]) -> dict[str, Counted]:
    """By rule."""
    sums = {name: np.zeros(2, dtype=int) for name in rules}
    for begun in range(0, trials, BATCH):
        for fleet in fleets(rng, setting, min(BATCH, trials - begun)):
            for name, rule in rules.items():
                flagged = rule(fleet, setting)
                healthy = flagged if setting.factor == 1.0 else flagged[1:]
                sums[name] += (flagged[0], healthy.any())
    return {name: Counted(trials, int(found), int(wrong)) for name, (found, wrong) in sums.items()}


def interval(hits: int, trials: int) -> tuple[float, float]:
    """Wilson's, 95 %."""
    z, p = 1.96, hits / trials
    centre, half = p + z * z / 2 / trials, z * math.sqrt(p * (1 - p) / trials + z * z / 4 / trials**2)
    return (centre - half) / (1 + z * z / trials), (centre + half) / (1 + z * z / trials)


def share(hits: int, trials: int) -> str:
    """`99.6 % (98.9 to 99.9)`"""
    low, high = interval(hits, trials)
    return f"{100 * hits / trials:6.2f} % ({100 * low:.2f} to {100 * high:.2f}; {hits} of {trials})"


# --- parts ------------------------------------------------------------------------------------------------------------


def healthy(rng: np.random.Generator, trials: int) -> None:
    """Fleets without a slow card."""
    print("\nhealthy fleets in which any card is called slow")
    for spread in (0.015, 0.03):
        base = Noise(cards=spread)
        settings = {
            "one factor a card": Setting(base),
            "one factor, with history": Setting(base, history=True),
            "a factor for each kind": Setting(base, independent=True),
            "a factor for each kind, with history": Setting(base, independent=True, history=True),
            "heavy tails": Setting(base, tails=True),
            "heavy tails, with history": Setting(base, tails=True, history=True),
            "blocks that carry 0.9": Setting(Noise(cards=spread, carried=0.9), history=True),
            **{f"{cards} cards": Setting(base, cards=cards) for cards in (3, 4, 8, 16)},
        }
        for name, setting in settings.items():
            counted = count(rng, setting, trials, {"": called_slow})[""]
            print(f"  σ {100 * spread:.1f} %, {name:37} {share(counted.wrong, trials)}", flush=True)


def promised(rng: np.random.Generator, trials: int) -> None:
    """The figures that were asked for, with more trials than were asked for."""
    print("\none slow card among 64")
    for spread in (0.015, 0.03):
        for factor, history, runs in ((0.9, False, 0.0), (0.9, False, 0.005), (0.95, True, 0.0), (0.95, True, 0.005)):
            setting = Setting(Noise(cards=spread, runs=runs), factor=factor, history=history)
            counted = count(rng, setting, trials, {"": called_slow})[""]
            print(
                f"  σ {100 * spread:.1f} %, runs {100 * runs:.1f} %, at {factor:.2f}"
                f"{', history' if history else '         '}  {share(counted.found, trials)}",
                flush=True,
            )


def curve(rng: np.random.Generator, trials: int) -> list[dict[str, object]]:
    """Slowness against detection."""
    rows: list[dict[str, object]] = []
    for spread in (0.015, 0.03):
        for cards, history in ((CARDS, False), (CARDS, True), (8, False), (4, False)):
            rules = RULES if cards == CARDS and not history else {"devexplorer": called_slow}
            for factor in SLOWNESS:
                setting = Setting(Noise(cards=spread), cards=cards, factor=factor, history=history)
                for rule, counted in count(rng, setting, trials, rules).items():
                    rows.append(
                        {
                            "rule": rule,
                            "cards": cards,
                            "spread_percent": 100 * spread,
                            "history": history,
                            "factor": factor,
                            "fleets": trials,
                            "found": counted.found,
                            "others_called_slow": counted.wrong,
                        }
                    )
    return rows


def show(rows: list[dict[str, object]]) -> None:
    """The curve's most important points."""
    print("\none slow card: found, and fleets in which another card is called slow")
    for row in rows:
        if row["factor"] in (0.97, 0.95, 0.92, 0.9, 0.85, 0.8):
            name = f"{row['rule']}, {row['cards']} cards{', history' if row['history'] else ''}"
            trials, found, others = (int(str(row[key])) for key in ("fleets", "found", "others_called_slow"))
            print(
                f"  σ {row['spread_percent']:.1f} % at {row['factor']:.2f}  {name:31} {share(found, trials)}"
                f"  others {100 * others / trials:.1f} %"
            )


def named(rng: np.random.Generator, trials: int) -> None:
    """Causes, through `judge` as it is used: four kinds of measurement, readings with noise."""
    print("\ncauses, one defect of 10 % in 64 cards, all kinds in turn")
    kinds = [kind for kind in DefectKind if kind.cause is not None]
    for spread, former, decoys in ((0.015, 0, 0.0), (0.015, 0, 0.5), (0.03, 0, 0.5), (0.03, FORMER, 0.5)):
        found = right = wrong = 0
        by_kind: dict[str, list[bool]] = {kind.value: [] for kind in kinds}
        for trial in range(trials):
            kind, card = kinds[trial % len(kinds)], int(rng.integers(CARDS))
            cards = measured(
                rng, CARDS, {card: Defect(kind, 0.9)}, Noise(cards=spread), former_runs=former, decoys=decoys
            )
            judged = judge(cards)
            is_found = judged.cards[card].verdict is Verdict.SLOW
            found += is_found
            right += is_found and judged.cards[card].cause is kind.cause
            wrong += len(judged.slow) > is_found
            if is_found:
                by_kind[kind.value].append(judged.cards[card].cause is kind.cause)
        title = f"σ {100 * spread:.1f} %{', history' if former else ''}, decoys on {100 * decoys:.0f} % of the cards"
        print(f"  {title}: found {share(found, trials)}")
        print(f"    named right, of all     {share(right, trials)}\n    named right, of found   {share(right, found)}")
        print(f"    fleets in which another card is called slow {share(wrong, trials)}")
        print("    " + ", ".join(f"{name} {np.mean(seen):.3f}" for name, seen in by_kind.items() if seen), flush=True)


def linked(rng: np.random.Generator, trials: int) -> None:
    """A slow machine, or a slow way between two neighbours, among 64; measurements of pairs vary by 3 %."""
    ring = [(member, (member + 1) % CARDS) for member in range(CARDS)]
    print("\nmachine or link: one fault of 30 % among 64 machines, pairs of neighbours with σ 3 %")
    for what in ("machine", "link", "none"):
        right, measured = 0, 0
        for _ in range(trials):
            member = int(rng.integers(CARDS))
            fault = {"machine": {member}, "link": set(ring[member]), "none": {-1}}[what]

            def measure(pairs: Sequence[tuple[int, int]], fault: set[int] = fault) -> list[float | None]:
                nonlocal measured
                measured += len(pairs)
                return [(70.0 if fault <= set(pair) else 100.0) * math.exp(rng.normal(0, 0.03)) for pair in pairs]

            rates = {pair: rate or 0.0 for pair, rate in zip(ring, measure(ring), strict=True)}
            members, links = slow_in_pairs(rates, measure)
            expected = {"machine": ((member,), ()), "link": ((), (ring[member],)), "none": ((), ())}[what]
            right += (members, links) == expected
        print(f"  {what}: {share(right, trials)}, {measured / trials:.1f} measurements of {CARDS * (CARDS - 1) // 2}")


def main() -> None:
    """Simulate and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=1000)
    parser.add_argument("--healthy", type=int, default=20_000)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--table", type=Path)
    given = parser.parse_args()
    rng = np.random.default_rng(given.seed)
    started = time.perf_counter()
    print(f"seed {given.seed}, {CARDS} cards, {len(KINDS)} kinds of {BLOCKS} blocks of 1 s, all simulated")
    promised(rng, 10 * given.trials)
    rows = curve(rng, given.trials)
    show(rows)
    print(f"{time.perf_counter() - started:.0f} s")
    healthy(rng, given.healthy)
    print(f"{time.perf_counter() - started:.0f} s")
    named(rng, given.trials)
    linked(rng, given.trials)
    print(f"\n{time.perf_counter() - started:.0f} s")
    if given.table is not None:
        with given.table.open("w", newline="", encoding="utf-8") as file:
            writer = csv.DictWriter(file, rows[0].keys(), lineterminator="\n")
            writer.writeheader()
            writer.writerows(rows)


if __name__ == "__main__":
    main()
