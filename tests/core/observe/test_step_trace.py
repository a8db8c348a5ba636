"""Fit of a running script: what a step takes, predicted from what it holds when its backward begins, beside what
virtual GPUs count."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from devexplorer.core.planner.messages import measured
from devexplorer.core.planner.observed import (
    MEASURED_MORE,
    NO_BATCH,
    NO_STATE,
    OF_PROCESS,
    STOPPED,
    ObservedDevice,
    ObservedStep,
    observed_answer,
)
from devexplorer.core.planner.trace import Trace

SCRIPT = Path(__file__).parent / "predicted_steps.py"
RUN = (sys.executable, "-m", "devexplorer.core.cli", "run", "--virtual", "Tesla T4")
GIB = 1 << 30


@pytest.fixture(scope="module")
def seen() -> list[dict[str, Any]]:
    """What the script has printed of each of its steps."""
    done = subprocess.run([*RUN, str(SCRIPT)], capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.splitlines()]


def test_the_peak_of_a_step_is_predicted(seen: list[dict[str, Any]]) -> None:
    assert [step["problems"] for step in seen] == [[]] * 6
    ratios = [step["predicted"] / step["counted"] for step in seen]
    assert ratios == pytest.approx([1.0] * 6, abs=0.02)
    assert [(step["optimizer"], step["batch"]) for step in seen] == [
        ("SGD", 64),
        ("AdamW", 64),
        ("AdamW", 64),
        ("SGD", 4096),
        ("SGD", 64),
        ("Adam", 16),
    ]
    assert seen[0]["device"] == ["cuda:0", "Tesla T4", True]
    assert seen[0]["parameters"] == 512 * 1024 + 1024 + 1024 * 1024 + 1024 + 1024 * 16 + 16
    fits = seen[-1]["fits"]
    assert all(fit for fit, _ in fits.values())
    assert 0 < fits["GeForce RTX 3070 Laptop GPU"][1] < fits["Tesla T4"][1] < fits["GeForce RTX 3090"][1]


def step(*devices: ObservedDevice, **more: Any) -> ObservedStep:
    known = {"batch": 8, "parameters": 1, "convolutions": False, "stopped": False, "lacks_state": False}
    return ObservedStep(script="train.py", optimizer="AdamW", devices=devices, **(known | more))


def device(name: str = "cuda:0", *, activations: int = 8 * GIB, peak: int | None = None) -> ObservedDevice:
    """2 GiB of parameters, and what the batch takes beside them."""
    trace = Trace(
        sizes=np.array([2 * GIB, activations]),
        events=np.array([0, 1, ~1]),
        kinds={0: "parameters"},
        work={},
        calls={},
        copies={},
    )
    return ObservedDevice(name, "Tesla T4", False, trace, trace, [1], 0, peak)


def test_the_largest_batch_grows_with_the_card_and_what_was_measured_counts() -> None:
    fits = {fit.gpu: fit for fit in step(device()).report().fits}
    assert [fits[name].largest_batch for name in ("Tesla T4", "GeForce RTX 3090")] == [12, 21]
    assert not fits["GeForce RTX 3070 Laptop GPU"].fits
    assert fits["GeForce RTX 3070 Laptop GPU"].reason.startswith("it needs 10.4")
    assert fits["GeForce RTX 3070 Laptop GPU"].largest_batch == 5
    more = step(device(peak=16 * GIB)).report()
    assert measured(more) == [("cuda:0", "10.00 GiB predicted, 16.00 GiB measured (-37.5 %)")]
    assert not {fit.gpu: fit for fit in more.fits}["Tesla T4"].fits
    assert MEASURED_MORE in more.assumptions


def test_of_two_devices_two_cards_of_a_kind_are_asked() -> None:
    report = step(device("cuda:0"), device("cuda:1", activations=GIB)).report()
    assert report.fits[0].gpu == "2x Tesla T4"
    assert [card.bytes.activations for card in report.fits[0].cards] == [8 * GIB, GIB]


@pytest.mark.parametrize(
    ("made", "words"),
    [
        (step(device(), batch=0), NO_BATCH),
        (step(device(), stopped=True), STOPPED),
        (step(device(), lacks_state=True), NO_STATE),
        (step(device("cpu", peak=GIB)), OF_PROCESS),
    ],
)
def test_what_the_prediction_rests_on_is_said(made: ObservedStep, words: str) -> None:
    report = made.report()
    assert words in report.assumptions
    answer = observed_answer(report)
    assert words in answer.words
    assert answer.title == f"train.py fits {sum(fit.fits for fit in report.fits)} of {len(report.fits)} cards"
    assert answer.facts[0].label == made.devices[0].device


def test_the_whole_process_is_not_compared_with_tensors() -> None:
    report = step(device("cpu", peak=GIB)).report()
    assert measured(report) == [("cpu", "10.00 GiB predicted, 1.00 GiB measured by the whole process")]
    assert report.measured[0].difference is None
