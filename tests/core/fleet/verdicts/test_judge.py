"""The verdict on every card of a check: normal, slow, failed or unknown, with its basis, its cause and one line."""

from __future__ import annotations

import numpy as np
import pytest
from fakes.fleet_measurements import Defect, DefectKind, measured
from msgspec.structs import replace

from devexplorer.core.fleet.records import (
    Basis,
    CardMeasurement,
    CauseId,
    FleetVerdict,
    GroupCase,
    MeasuredKind,
    Rates,
    Verdict,
    WhyUnknown,
)
from devexplorer.core.fleet.report.document import group_line, line
from devexplorer.core.fleet.verdicts.judge import judge


def fleet(cards: int, *slow: int, factor: float = 0.8, former_runs: int = 0, seed: int = 1) -> list[CardMeasurement]:
    defects = {index: Defect(DefectKind.SLOW, factor) for index in slow}
    return list(measured(np.random.default_rng(seed), cards, defects, former_runs=former_runs))


def verdicts(judged: FleetVerdict) -> list[str]:
    return [card.verdict.value for card in judged.cards]


def rates(value: float, **fields: object) -> Rates:
    blocks = value * np.exp(np.random.default_rng(int(value)).normal(0, 0.01, 30))
    return Rates(kind=MeasuredKind.MATMUL, dtype="bfloat16", blocks=tuple(blocks.tolist()), **fields)  # type: ignore[arg-type]


def card(*measurements: Rates, device: str = "cuda:0") -> CardMeasurement:
    return CardMeasurement(machine="a", device=device, name="H100", rates=measurements)


def test_the_slow_card_is_named_and_no_other() -> None:
    judged = judge(fleet(16, 11))
    assert [(found.machine, found.device) for found in judged.slow] == [("node1", "vgpu:3")]
    found = judged.slow[0]
    assert found.worst is not None
    assert found.worst.basis is Basis.EQUAL_CARDS
    assert 0.76 < found.worst.ratio < 0.84
    assert found.worst.ratio < found.worst.slow_below
    assert found.simulated
    assert verdicts(judged).count("normal") == 15


@pytest.mark.parametrize("cards", [1, 2])
def test_too_few_cards_without_a_history_are_unknown(cards: int) -> None:
    judged = judge(fleet(cards, 0))
    assert {found.why for found in judged.cards} == {WhyUnknown.TOO_FEW_EQUAL}
    assert verdicts(judged) == ["unknown"] * cards
    assert {finding.case for finding in judged.groups} == {GroupCase.TOO_FEW}


@pytest.mark.parametrize("cards", [1, 2, 3, 8])
def test_with_a_history_of_its_own_one_card_is_enough(cards: int) -> None:
    judged = judge(fleet(cards, 0, factor=0.85, former_runs=5))
    assert verdicts(judged) == ["slow"] + ["normal"] * (cards - 1)
    assert any(one.basis is Basis.OWN_HISTORY and one.slow for one in judged.cards[0].comparisons)


@pytest.mark.parametrize("other", [{"name": "A100"}, {"power_limit_default_w": 310.0}, {"simulated": False}])
def test_cards_of_another_kind_are_no_equals(other: dict[str, object]) -> None:
    cards = [replace(one, **other) if index < 2 else one for index, one in enumerate(fleet(8, 0, 1))]
    assert verdicts(judge(cards))[:2] == ["unknown"] * 2


def test_half_a_fleet_that_is_slow_is_two_speeds_and_the_faster_half_is_normal() -> None:
    judged = judge(fleet(16, *range(8)))
    assert verdicts(judged) == ["slow"] * 8 + ["normal"] * 8
    cases = {finding.kind: finding for finding in judged.groups}
    assert cases[MeasuredKind.MATMUL].case is GroupCase.TWO_SPEEDS
    assert cases[MeasuredKind.MATMUL].concerned == 8
    assert "8 of 16 cards run at" in group_line(cases[MeasuredKind.MATMUL])


def faster(card: CardMeasurement, factor: float) -> CardMeasurement:
    rates = [replace(one, blocks=tuple(block * factor for block in one.blocks)) for one in card.rates]
    return replace(card, rates=tuple(rates))


def test_all_cards_slower_than_they_were_are_said_as_one() -> None:
    judged = judge([faster(one, 0.9) for one in fleet(16, former_runs=5)])
    assert {finding.case for finding in judged.groups} == {GroupCase.ALL_CHANGED}
    assert set(verdicts(judged)) == {"slow"}
    assert all(found.worst is not None and found.worst.basis is Basis.OWN_HISTORY for found in judged.cards)


def test_a_card_that_did_not_gain_what_the_others_gained_is_not_called_slower_than_it_was() -> None:
    first, *others = fleet(16, former_runs=5)
    assert verdicts(judge([first, *(faster(one, 1.04) for one in others)]))[0] == "normal"


def test_lost_and_failed_and_wrong() -> None:
    cards = fleet(8)
    cards[0] = replace(cards[0], lost=True)
    cards[1] = replace(cards[1], rates=(replace(cards[1].rates[0], blocks=(), failure="out of memory"),))
    cards[2] = replace(cards[2], rates=(replace(cards[2].rates[0], wrong_values=True),))
    cards[3] = replace(cards[3], rates=())
    cards[4] = replace(cards[4], rates=(replace(cards[4].rates[0], blocks=(float("nan"),) * 20),))
    judged = judge(cards)
    assert [(found.verdict, found.why) for found in judged.cards[:5]] == [
        (Verdict.FAILED, WhyUnknown.LOST),
        (Verdict.FAILED, WhyUnknown.NOT_MEASURED),
        (Verdict.FAILED, WhyUnknown.WRONG_VALUES),
        (Verdict.UNKNOWN, WhyUnknown.NOT_MEASURED),
        (Verdict.FAILED, WhyUnknown.NOT_MEASURED),
    ]
    assert verdicts(judged)[5:] == ["normal"] * 3


def test_what_no_equal_card_can_do_or_needs_another_card_makes_no_card_failed() -> None:
    unsupported = Rates(kind=MeasuredKind.MATMUL, dtype="float8_e4m3fn", failure="no unit for it")
    cards = [replace(one, rates=(*one.rates, unsupported)) for one in fleet(8)]
    lonely = replace(cards[0].rates[3], blocks=(), failure="its partner was lost")
    assert lonely.kind is MeasuredKind.PEER
    cards[0] = replace(cards[0], rates=(*cards[0].rates[:3], lonely))
    assert verdicts(judge(cards)) == ["normal"] * 8
    (alone,) = judge([replace(cards[0], rates=(unsupported,))]).cards
    assert (alone.verdict, alone.why) == (Verdict.UNKNOWN, WhyUnknown.NOT_MEASURED)


def test_a_few_blocks_that_failed_are_left_out() -> None:
    cards = fleet(8)
    first = cards[0].rates[0]
    blocks = (0.0, float("nan"), -1.0, *first.blocks[3:])
    cards[0] = replace(cards[0], rates=(replace(first, blocks=blocks),))
    assert verdicts(judge(cards)) == ["normal"] * 8


def test_a_card_faster_than_its_kind_is_not_believed() -> None:
    cards = [card(rates(100.0 + index)) for index in range(6)] + [card(rates(900.0))]
    judged = judge(cards)
    assert judged.cards[-1].why is WhyUnknown.ABSURD
    assert verdicts(judged)[:-1] == ["normal"] * 6


def test_a_card_whose_blocks_jump_is_not_called_normal() -> None:
    blocks = (100.0,) * 15 + (130.0,) * 15
    jumping = Rates(kind=MeasuredKind.MATMUL, dtype="bfloat16", blocks=blocks)
    judged = judge([card(rates(100.0 + index)) for index in range(6)] + [card(jumping)])
    assert judged.cards[-1].why is WhyUnknown.NOISY


@pytest.mark.parametrize("kind", list(DefectKind))
def test_each_defect_is_found_with_its_cause(kind: DefectKind) -> None:
    (cards,) = [measured(np.random.default_rng(7), 16, {5: Defect(kind, 0.8)})]
    found = judge(cards).cards[5]
    assert found.verdict is (Verdict.FAILED if kind is DefectKind.LOST else Verdict.SLOW)
    assert found.cause is kind.cause


def test_lines() -> None:
    hot = measured(np.random.default_rng(7), 16, {5: Defect(DefectKind.HOT, 0.8)})
    text = line(judge(hot).cards[5])
    assert text.startswith("slow: m")
    assert "% of the median of equal cards; likely cause: too hot (8" in text
    assert text.endswith(" (simulated)")
    lost = replace(hot[5], lost=True, simulated=False)
    assert line(judge([lost]).cards[0]) == "failed: stopped answering"
    lanes = line(judge(measured(np.random.default_rng(7), 16, {5: Defect(DefectKind.PCIE, 0.5)})).cards[5])
    assert "fewer PCIe lanes (8, equal cards 16)" in lanes or "fewer PCIe lanes (4, equal cards 16)" in lanes


def test_a_card_that_always_was_slow_is_said_to_be() -> None:
    cards = fleet(16, 3, former_runs=5)
    assert "as in" not in line(judge(cards).cards[3])
    cards[3] = replace(
        cards[3],
        rates=tuple(replace(one, former=tuple(former * 0.8 for former in one.former)) for one in cards[3].rates[:2]),
    )
    judged = judge(cards).cards[3]
    assert judged.verdict is Verdict.SLOW
    assert "% of the median of equal cards, as in its earlier runs" in line(judged)
    assert "as in" not in line(judge(fleet(16, 3)).cards[3])


def test_every_reason_and_cause_has_its_words() -> None:
    one = judge(fleet(8, 2)).cards[2]
    for why in WhyUnknown:
        assert line(replace(one, why=why)) not in ("", "slow: ")
    for cause in CauseId:
        assert "likely cause: " in line(replace(one, causes=(replace(one.causes[0], cause=cause),)))
