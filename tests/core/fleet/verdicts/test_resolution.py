"""What a check could not tell, why, and whether what it advises helps."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.fleet_measurements import Noise, measured
from msgspec.structs import replace

from devexplorer.core.fleet.records import CardMeasurement, FleetVerdict, GroupCase, GroupFinding, MeasuredKind
from devexplorer.core.fleet.report.document import group_line
from devexplorer.core.fleet.verdicts.judge import judge, rounded

COARSE = (GroupCase.UNCERTAIN, GroupCase.DIFFER, GroupCase.FEW)


def checked(cards: int, noise: Noise, *, blocks: int = 30, former_runs: int = 0, seed: int = 5) -> FleetVerdict:
    made = measured(
        np.random.default_rng(seed), cards, {}, noise, kinds=(MeasuredKind.MATMUL, MeasuredKind.MEMORY),
        blocks=blocks, former_runs=former_runs,
    )  # fmt: skip
    return judge(made)


def coarse(judged: FleetVerdict) -> list[GroupFinding]:
    return [finding for finding in judged.groups if finding.case in COARSE]


def test_a_check_that_tells_a_tenth_says_nothing_of_it() -> None:
    assert coarse(checked(64, Noise())) == []


def test_healthy_cards_that_differ_much_are_said_and_longer_measurements_are_not_advised() -> None:
    found = coarse(checked(64, Noise(cards=0.03)))
    assert [finding.case for finding in found] == [GroupCase.DIFFER] * 2
    assert all(0.8 < (finding.ratio or 0) < 0.9 for finding in found)
    assert all(finding.share == pytest.approx(0.03, rel=0.25) for finding in found)
    text = group_line(found[0])
    assert "(matmul) slower cannot be told, because equal cards differ by" in text
    assert text.endswith("check again later: each card is then compared with its own earlier runs too.")


def test_a_history_that_tells_it_is_enough() -> None:
    assert coarse(checked(64, Noise(cards=0.03), former_runs=5)) == []


def test_few_equal_cards_are_said() -> None:
    found = coarse(checked(4, Noise(cards=0.018)))
    assert {finding.case for finding in found} == {GroupCase.FEW}
    assert "because 4 equal cards are few" in group_line(found[0])


@pytest.mark.parametrize("seed", range(4))
def test_the_time_that_is_advised_for_uncertain_figures_is_enough(seed: int) -> None:
    noise = Noise(cards=0.01, blocks=0.25)
    found = coarse(checked(64, noise, seed=seed))
    assert {finding.case for finding in found} == {GroupCase.UNCERTAIN}
    seconds = max(finding.seconds or 0.0 for finding in found)
    assert 30 < seconds < 600
    assert any(
        group_line(finding).endswith(f"; measure for {seconds:g} s (--seconds {seconds:g}).") for finding in found
    )
    again = checked(64, noise, blocks=int(seconds), seed=seed + 100)  # of a second each
    assert coarse(again) == []


def test_too_few_blocks_ask_for_as_many_as_it_takes() -> None:
    def short(card: CardMeasurement) -> CardMeasurement:
        return replace(card, rates=tuple(replace(rates, blocks=rates.blocks[:2]) for rates in card.rates))

    made = measured(np.random.default_rng(1), 16, {}, Noise(blocks=0.1), kinds=(MeasuredKind.MATMUL,))
    (finding,) = coarse(judge(list(map(short, made))))
    assert (finding.case, finding.share, finding.seconds) == (GroupCase.UNCERTAIN, None, 20.0)
    assert "measure for 20 s" in group_line(finding)


@pytest.mark.parametrize(
    ("seconds", "shown"), [(0.3, 1.0), (7.2, 8.0), (31.0, 40.0), (130.0, 180.0), (float("nan"), None)]
)
def test_times_are_those_that_people_write(seconds: float, shown: float | None) -> None:
    assert rounded(seconds) == shown
