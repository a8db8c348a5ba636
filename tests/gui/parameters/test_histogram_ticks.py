"""Ticks of the histogram are distinct round numbers."""

from __future__ import annotations

import pytest

from devexplorer.gui.parameters.page import ticks


@pytest.mark.parametrize(
    ("low", "high", "words"),
    [
        (-0.158, 1.0, ["0", "0.2", "0.4", "0.6", "0.8", "1.0"]),
        (-0.5, 0.5, ["−0.4", "−0.2", "0", "0.2", "0.4"]),
        (-3.0, 14_000.0, ["0", "5,000", "10,000"]),
        (-2e-9, 2e-9, ["−2e−09", "−1e−09", "0", "1e−09", "2e−09"]),
        (1.0, 1.0 + 1e-15, ["1", "1.0000000000000011"]),
    ],
)
def test_ticks_are_round_and_inside(low: float, high: float, words: list[str]):
    found = ticks(low, high, 6)
    assert [text for _, text in found] == words
    slack = (high - low) * 1e-9
    assert all(low - slack <= place <= high + slack for place, _ in found)


@pytest.mark.parametrize("most", [3, 4, 9])
def test_there_are_never_more_than_fit(most: int):
    assert all(len(ticks(0.0, 10.0**power * 1.7, most)) <= most + 1 for power in range(-12, 12))


@pytest.mark.parametrize("low", [0.0, 0.9, -0.7, -3.3, 4.99])
def test_a_narrow_one_has_three_at_least(low: float):
    assert all(len(ticks(low, low + span, 2)) >= 3 for span in (0.011, 0.3, 0.99, 1.0, 6.7, 41.0))
