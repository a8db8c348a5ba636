"""The range of a calibrated card is no narrower than published steps allow, and the documents say the same."""

from __future__ import annotations

import math
from pathlib import Path

import pytest
from benchmarks import calibrated_range

from devexplorer.core.virtual.device.cost import CALIBRATED_SHARE, spread

PLANNER = Path(__file__).parents[3] / "docs" / "planner.md"


def test_published_steps_allow_it() -> None:
    steps = calibrated_range.published()
    card = calibrated_range.narrowed(steps, lambda step: step.card)
    precision = calibrated_range.narrowed(steps, lambda step: (step.card, step.unit))
    assert 150 < precision.steps < card.steps <= len(steps)
    assert card.share < precision.share <= CALIBRATED_SHARE
    text = f"inside {card.share:.2f} to {precision.share:.2f} of it"
    assert text in " ".join(PLANNER.read_text(encoding="utf-8").split())


@pytest.mark.parametrize("host", [0.0, 0.5, 3.0])
def test_the_share_is_one_of_logarithms(host: float) -> None:
    narrow, usual = spread(1.0, host, calibrated=True), spread(1.0, host)
    assert math.log(narrow) == pytest.approx(CALIBRATED_SHARE * math.log(usual))
