"""What work concerns, and how it is called there."""

from __future__ import annotations

import pytest
from fakes import runs
from fakes.look_records import ENGINE

from devexplorer.core.benchmark.statistics import STOPPED_EARLY
from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import (
    Answer,
    BenchEnded,
    BenchPreparing,
    BenchResult,
    BuildModel,
    Check,
    Command,
    EngineLost,
    Forward,
    JobEnded,
    JobStarted,
    MatmulSpec,
    Move,
    NewTensor,
    Remove,
    StartBenchmark,
    Steps,
)
from devexplorer.core.session import Progress, device_of, objects_of, verb_of
from devexplorer.core.session.journal import LongJobs
from devexplorer.core.session.state import State

MOVE = Move(targets=("mlp:0", "x"), device="vgpu:0")
COPY = Move(targets=("x",), device="vgpu:1", copy=True)
MODEL = StartBenchmark(spec=ModelSpec(target="mlp", device="vgpu:0"))
MATMUL = StartBenchmark(spec=MatmulSpec(device="vgpu:0", m=8, n=8, k=8))


@pytest.mark.parametrize(
    ("command", "verb", "objects", "device"),
    [
        (MOVE, "moving", ["mlp", "x"], "vgpu:0"),
        (COPY, "copying", ["x"], "vgpu:1"),
        (Check(target="mlp", device="vgpu:0"), "checking", ["mlp"], None),
        (Steps(commands=(MOVE, Forward(target="mlp:0"))), "moving", ["mlp", "x", "mlp"], "vgpu:0"),
        (Steps(commands=(MOVE, Steps(commands=(COPY,)))), "copying", ["mlp", "x", "x"], None),
        (BuildModel(recipe="mlp", device="vgpu:0"), "building", [], "vgpu:0"),
        (MODEL, "measuring", ["mlp"], None),
        (MATMUL, "measuring", [], None),
        (NewTensor(), "working", [], "cpu"),
        (Remove(names=("x",)), "working", [], None),
    ],
)
def test_what_a_command_concerns(command: Command, verb: str, objects: list[str], device: str | None) -> None:
    if isinstance(command, Check):
        pytest.importorskip("devexplorer.core.doctor")
    assert verb_of(command) == verb
    assert list(objects_of(command)) == objects
    assert device_of(command) == device


def test_how_far_it_is_in_words() -> None:
    assert Progress("moving", 0.424, "moving mlp to vgpu:1").words == "moving 42 %"
    assert Progress("checking", None, "checking mlp").words == "checking"


NOW = 1_800_000_000.0


class Told:
    """A state, and what came to its end in it."""

    def __init__(self) -> None:
        self.now = NOW
        self.state = State()
        self.state.apply(ENGINE)
        self.jobs = LongJobs(self.state, clock=lambda: self.now)

    def start(self, request: int = 1, title: str = "checking mlp") -> None:
        self.state.apply(JobStarted(request=request, title=title, time_unix_s=self.now))
        assert self.jobs.ended() == []

    def end(self, request: int = 1, answer: Answer | None = None) -> list[str]:
        if answer is not None:
            self.state.apply(answer)
        self.state.apply(JobEnded(request=request, ok=answer is None, time_unix_s=self.now))
        return self.jobs.ended()


@pytest.fixture
def told() -> Told:
    return Told()


def test_work_of_a_minute_is_said_once_and_shorter_work_is_not(told: Told) -> None:
    told.start(1)
    told.start(2, "trying GPT-2 on every card")
    told.now += 59.9
    assert told.end(1) == []
    told.now += 0.1
    assert told.end(2) == ["trying GPT-2 on every card: finished after 1:00."]
    assert told.jobs.ended() == []


def test_a_long_command_that_failed_or_was_cancelled_says_so(told: Told) -> None:
    told.start()
    told.now += 125
    failed = Answer(request=1, title="Not checked", words="net.py has no class Net.\nMore.", failed=True)
    assert told.end(1, failed) == ["checking mlp: failed after 2:05: net.py has no class Net."]
    told.start(2)
    told.now += 3700
    cancelled = Answer(request=2, title="Cancelled", words="Nothing has changed.", failed=True, cancelled=True)
    assert told.end(2, cancelled) == ["checking mlp: cancelled after 1:01:40."]


@pytest.mark.parametrize(
    ("result", "reason", "line"),
    [
        (
            runs.matmul(median=50.0),
            None,
            "matmul 4096×4096×4096 bfloat16 burst on cuda:0: finished after 1:30, 50.0 TFLOP/s.",
        ),
        (runs.matmul(median=50.0, stopped=True), None, "stopped after 1:30, 50.0 TFLOP/s."),
        (runs.matmul(median=50.0), "the card is lost", "failed after 1:30, 50.0 TFLOP/s: the card is lost."),
        (None, STOPPED_EARLY, f"ended after 1:30 without a result: {STOPPED_EARLY}."),
    ],
)
def test_a_long_benchmark_says_what_it_measured(
    told: Told, result: BenchResult | None, reason: str | None, line: str
) -> None:
    told.start(7, "benchmark on cuda:0")
    told.state.apply(BenchPreparing(request=7, run=7, spec=runs.matmul(median=50.0).spec, simulated=False))
    told.now += 90
    told.state.apply(BenchEnded(request=7, run=7, time_unix_s=told.now, result=result, reason=reason))
    [said] = told.end(7)
    assert said.endswith(line)


def test_simulated_figures_are_marked(told: Told) -> None:
    told.start(7)
    told.state.apply(
        BenchPreparing(request=7, run=7, spec=runs.matmul(median=50.0, device="vgpu:0").spec, simulated=True)
    )
    told.now += 90
    told.state.apply(
        BenchEnded(request=7, run=7, time_unix_s=told.now, result=runs.matmul(median=50.0, device="vgpu:0"))
    )
    assert "on vgpu:0 (simulated): finished" in told.end(7)[0]


def test_work_that_an_engine_takes_along_is_said(told: Told) -> None:
    told.start(1)
    told.start(7)
    told.state.apply(BenchPreparing(request=7, run=7, spec=runs.matmul(median=50.0).spec, simulated=False))
    told.now += 61
    told.state.apply(EngineLost(reason="It was ended by SIGKILL.", will_restart=True, time_unix_s=told.now))
    first, second = told.jobs.ended()
    assert first == "checking mlp: the engine ended after 1:01."
    assert second.endswith("ended after 1:01 without a result: It was ended by SIGKILL.")
