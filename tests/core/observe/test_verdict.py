"""Verdicts on steps that look alike: what is small or large beside the rest decides. No script is run."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest

from devexplorer.core.observe.phases import (
    BACKWARD,
    COPIES,
    EVALUATION,
    FORWARD,
    INPUT,
    OPTIMIZER,
    READ,
    REST,
    Crossing,
    StepTimes,
    place_of,
)
from devexplorer.core.observe.places import AFTER, BEFORE, BETWEEN, WAITING, Within
from devexplorer.core.observe.records import ObservedModel
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


def times(between: int = 0, **phases: int) -> StepTimes:
    made = StepTimes()
    made.steps = 10
    numbers = {"forward": FORWARD, "backward": BACKWARD, "optimizer": OPTIMIZER, "evaluation": EVALUATION}
    numbers |= {"rest": REST, "read": READ}
    for name, value in phases.items():
        made.counted[numbers[name]] = value
    made.rests[EVALUATION, EVALUATION] = between
    return made


def model(name: str, device: str, calls: int) -> ObservedModel:
    return ObservedModel(
        name=name,
        place=f"{name}.py, line 1",
        calls=calls,
        bytes_by_device={device: 4},
        bytes_by_dtype={},
        gradient_bytes={},
        optimizer_bytes={},
    )


COMPUTING = {"forward": 20, "backward": 70, "optimizer": 10}
SMALL, LARGE = {"launches": 3.0}, {"launches": 0.3}
PLAYING = {"forward": 10, "backward": 30, "evaluation": 25, "rest": 35}
TEACHING = {"forward": 10, "backward": 20, "evaluation": 70}
VALIDATING = {"forward": 16, "backward": 44, "evaluation": 40}
VALIDATED = Counter({Within(EVALUATION, "main.py, line 7", True): 9, Within(FORWARD, "main.py, line 3", False): 20})
OWN_STEP = Counter({Within(OPTIMIZER, "main.py, line 3", True): 9, Within(OPTIMIZER, "", False): 8})
LOOPS = Counter({Within(FORWARD, "main.py, line 5", True): 9, Within(FORWARD, "", False): 3})
TEACHER, STUDENT = model("Teacher", "cpu", 10), model("Student", "cuda:0", 10)


@pytest.mark.parametrize(
    ("phases", "others", "kind", "says"),
    [
        (times(**COMPUTING), {}, "compute-bound", "backward 70 %"),
        (times(**COMPUTING), LARGE, "compute-bound", "backward 70 %"),
        (times(**COMPUTING), SMALL, "launch-bound", "3.0 times as long"),
        (times(forward=15, backward=75, optimizer=10), LARGE, "backward-bound", "forward 15 %"),
        (times(forward=15, backward=75, optimizer=10), {"launches": 1.5}, "compute-bound", "backward 75 %"),
        (times(forward=10, backward=30, optimizer=60), SMALL, "optimizer-bound", "60 %"),
        (times(forward=10, backward=30, optimizer=10, rest=60), SMALL, "rest-bound", "55 %"),
        (times(forward=80, backward=20), SMALL | {"own": 0.7}, "host-bound", "for 70 % of a step the card waits"),
        (times(forward=40, backward=20, rest=20), SMALL | {"own": 0.4}, "launch-bound", "3.0 times as long"),
        (times(between=30, **PLAYING), {}, "evaluation-bound", "55 % of a step"),
        (times(between=5, **PLAYING), {}, "compute-bound", "evaluation is 25 %"),
        (times(**VALIDATING), SMALL, "evaluation-bound", "40 % of a step"),
        (times(forward=10, backward=42, rest=48), SMALL, "rest-bound", "48 % of a step"),
        (times(**VALIDATING), {"phases": VALIDATED}, "evaluation-bound", "at main.py, line 7"),
        (times(forward=15, backward=37, read=32, rest=16), {}, "read-back-bound", "32 % of a step"),
        (times(forward=80, backward=20), {"phases": LOOPS}, "compute-bound", "loop at main.py, line 5."),
        (times(forward=10, optimizer=90), {"phases": OWN_STEP}, "optimizer-bound", "most often at main.py, line 3"),
        (times(**TEACHING), {}, "evaluation-bound", "or another model"),
        (times(**TEACHING), {"models": (TEACHER, STUDENT)}, "evaluation-bound", "Teacher at Teacher.py, line 1 is on"),
        (times(**TEACHING), {"models": (TEACHER,)}, "evaluation-bound", "or another model"),
        (times(**TEACHING), {"models": (model("Teacher", "cpu", 2), STUDENT)}, "evaluation-bound", "or another model"),
    ],
)
def test_what_takes_the_time_is_named(phases: StepTimes, others: dict[str, Any], kind: str, says: str) -> None:
    verdict = judge(RunEvidence(times=phases, steps=10, **others))
    assert verdict.kind == kind
    assert says in verdict.text


@pytest.mark.parametrize(("samples", "said"), [(40, "40 % of forward, most often at main.py, line 5"), (20, "")])
def test_lines_in_a_loop_are_named_beside_a_model_that_computes(samples: int, said: str) -> None:
    phases = Counter({Within(FORWARD, "main.py, line 5", True): samples, Within(FORWARD, "", False): 100 - samples})
    phases[Within(BACKWARD, "", False)] = 200
    verdict = judge(RunEvidence(times=times(**COMPUTING), steps=10, phases=phases))
    assert verdict.kind == "compute-bound"
    assert len(verdict.evidence) == bool(said)
    assert said in "".join(verdict.evidence)


def test_where_the_model_takes_less_than_the_rest_it_is_not_called_large() -> None:
    phases = times(forward=3, backward=19, optimizer=18, rest=47)
    phases.rests[FORWARD, BACKWARD], phases.rests[OPTIMIZER, FORWARD] = 7, 40
    assert judge(RunEvidence(times=phases, steps=10)).kind == "rest-bound"


def test_what_the_model_copies_is_named_though_nothing_takes_much_more() -> None:
    phases = times(forward=20, backward=10, rest=30)
    phases.counted[[COPIES, INPUT]] = 15, 25
    phases.rests[OPTIMIZER, FORWARD] = 30
    phases.crossings[Crossing(".to()", True, "device", True, False, times.__code__, 0)] = 10
    verdict = judge(RunEvidence(times=phases, steps=10))
    assert verdict.kind == "not-sure"
    assert any("The model copies to the device in every step (.to() 1 times)" in words for words in verdict.evidence)


@pytest.mark.parametrize(("copies", "said"), [(23, True), (8, False)])
def test_batches_that_are_copied_are_named_beside_a_model_that_computes(copies: int, *, said: bool) -> None:
    phases = times(forward=25, backward=52)
    phases.counted[COPIES] = copies
    phases.crossings[Crossing(".to()", True, "device", False, False, times.__code__, 0)] = 20
    verdict = judge(RunEvidence(times=phases, steps=10))
    assert verdict.kind == "compute-bound"
    assert any("of a step (.to() 2 times), most often at" in words for words in verdict.evidence) == said


def test_of_a_few_samples_those_count_that_agree_with_the_marks() -> None:
    phases = times(forward=10, backward=20, rest=70)
    phases.rests[OPTIMIZER, FORWARD] = 70
    rests = Counter({(BETWEEN, "main.py, line 3"): 9, (AFTER, "main.py, line 8"): 5})
    verdict = judge(RunEvidence(times=phases, steps=10, rests=rests))
    assert "after optimizer, most often at main.py, line 8" in verdict.text


READING = Crossing(".item()", False, "host", False, False, times.__code__, 0)


@pytest.mark.parametrize(("reads", "count", "said"), [(20, 1, True), (2, 8, True), (2, 1, False)])
def test_what_is_read_back_is_named_beside_what_takes_longer(reads: int, count: int, *, said: bool) -> None:
    phases = times(forward=20, backward=50, optimizer=10)
    phases.counted[READ] = reads
    phases.crossings[READING] = 10 * count
    verdict = judge(RunEvidence(times=phases, steps=10, launches=3.0))
    assert verdict.kind == "launch-bound"
    line = place_of(READING)
    assert any(f"(.item() {count} times a step), most often at {line}" in words for words in verdict.evidence) == said


@pytest.mark.parametrize(("rest", "said"), [(40, True), (10, False)])
def test_the_line_of_the_rest_is_named_where_the_model_takes_longer(rest: int, *, said: bool) -> None:
    phases = times(forward=15, backward=45, rest=rest)
    phases.rests[FORWARD, BACKWARD] = rest
    verdict = judge(RunEvidence(times=phases, steps=10, rests=Counter({(BETWEEN, "main.py, line 194"): 20})))
    assert verdict.kind == "compute-bound"
    assert any("most often at main.py, line 194" in words for words in verdict.evidence) == said


@pytest.mark.parametrize(
    ("line", "where", "kind", "says"),
    [
        (
            place_of(READING),
            BETWEEN,
            "read-back-bound",
            "65 % of a step is working out and waiting for values (.item() 8",
        ),
        ("main.py, line 9", BETWEEN, "rest-bound", "45 % of a step is the script's own lines between"),
        ("main.py, line 9", BEFORE, "rest-bound", "45 % of a step is the script's own lines before forward"),
        ("main.py, line 9", WAITING, "input-bound", "waiting for another thread or process before forward"),
    ],
)
def test_what_the_script_itself_does_is_told_by_its_lines(line: str, where: str, kind: str, says: str) -> None:
    phases = times(forward=10, backward=25, rest=45)
    phases.counted[READ] = 20
    phases.crossings[READING] = 80
    verdict = judge(RunEvidence(times=phases, steps=10, rests=Counter({(where, line): 20})))
    assert verdict.kind == kind
    assert says in verdict.text
