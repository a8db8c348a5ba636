"""The words of a verdict on a script that trains without an optimizer."""

from __future__ import annotations

from collections import Counter

import pytest

from devexplorer.core.observe.phases import BACKWARD, FORWARD, REST, StepTimes
from devexplorer.core.observe.places import AFTER
from devexplorer.core.observe.verdict import RunEvidence, judge

LINES = Counter({(AFTER, "main.py, line 194"): 20})


@pytest.mark.parametrize(
    ("forward", "backward", "rest", "loss", "text"),
    [
        (30, 65, 5, 0, "Compute-bound: the model is 95 % of a call."),
        (20, 25, 55, 16, "Compute-bound: the model and its loss are 61 % of a call; rest is 39 %."),
        (
            10, 20, 70, 0,
            "Rest-bound: 70 % of a step is the script's own lines after the model, most often at main.py, line 194.",
        ),
    ],
)  # fmt: skip
def test_without_an_optimizer(forward: float, backward: float, rest: float, loss: float, text: str) -> None:
    times = StepTimes()
    times.counted[[FORWARD, BACKWARD, REST]] = forward, backward, rest
    times.rests[FORWARD, BACKWARD] = loss
    assert judge(RunEvidence(times=times, steps=20, rests=LINES, training=False)).text == text
