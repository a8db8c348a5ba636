"""Runs that are warm wait until they are told to begin, so that several engines begin at one moment."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

from devexplorer.core.engine import benchmarks
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.records import (
    BeginBenchmark,
    BenchEnded,
    BenchPoint,
    BenchReady,
    BenchStarted,
    BuildModel,
    Cancel,
    Command,
    Event,
    JobEnded,
    MatmulSpec,
    StartBenchmark,
    StopBenchmark,
)

WAIT_S = 60.0
DEVICES = pytest.mark.parametrize("device", ["cpu", "vgpu:0"])


@pytest.fixture
def engines() -> Iterator[tuple[LocalEngine, LocalEngine]]:
    with LocalEngine("Tesla T4") as first, LocalEngine("Tesla T4") as second:
        yield first, second


def waiting(device: str) -> StartBenchmark:
    return StartBenchmark(spec=MatmulSpec(device=device, m=32, n=32, k=32, iterations=3, seconds=None), waits=True)


def until(engine: LocalEngine, happened: Callable[[Event], bool]) -> list[Event]:
    seen: list[Event] = []
    for event in engine.events(-1, WAIT_S):
        seen.append(event)
        if happened(event):
            break
    return seen


def kinds(events: list[Event]) -> list[type]:
    known = (BenchReady, BenchStarted, BenchPoint, BenchEnded)
    return list(dict.fromkeys(type(event) for event in events if isinstance(event, known)))


@DEVICES
def test_two_engines_begin_not_before_they_are_told(engines: tuple[LocalEngine, LocalEngine], device: str) -> None:
    runs = [engine.send(waiting(device)) for engine in engines]
    for engine in engines:
        assert kinds(until(engine, lambda event: isinstance(event, BenchReady))) == [BenchReady]
        engine.run(BuildModel(recipe="mlp"), WAIT_S)  # meanwhile it does other work
    at = time.time() + 0.05
    for engine, run in zip(engines, runs, strict=True):
        engine.send(BeginBenchmark(run=run, at_unix_s=at))
    for engine in engines:
        seen = until(engine, lambda event: isinstance(event, BenchEnded))
        assert kinds(seen) == [BenchStarted, BenchPoint, BenchEnded]
        (started,) = (event for event in seen if isinstance(event, BenchStarted))
        assert started.time_unix_s >= at - 0.001
        until(engine, lambda event: isinstance(event, JobEnded))


@DEVICES
@pytest.mark.parametrize("command", [StopBenchmark(), StopBenchmark(run=1), Cancel(job=1)], ids=["all", "this", "job"])
def test_a_run_that_waits_can_be_stopped(device: str, command: Command) -> None:
    with LocalEngine("Tesla T4") as engine:
        assert engine.send(waiting(device)) == 1
        until(engine, lambda event: isinstance(event, BenchReady))
        engine.send(command)
        seen = until(engine, lambda event: isinstance(event, BenchEnded))
    assert kinds(seen) == [BenchEnded]


@DEVICES
def test_a_run_that_is_never_told_ends_with_a_reason(device: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(benchmarks, "BEGIN_S", 0.05)
    with LocalEngine("Tesla T4") as engine:
        engine.send(waiting(device))
        seen = until(engine, lambda event: isinstance(event, BenchEnded))
    ended = seen[-1]
    assert kinds(seen) == [BenchReady, BenchEnded]
    assert isinstance(ended, BenchEnded)
    assert ended.reason == "the run was not told to begin within 0 s"


def test_a_run_that_does_not_wait_is_not_told_to(engines: tuple[LocalEngine, LocalEngine]) -> None:
    engine, _ = engines
    engine.send(BeginBenchmark(run=77, at_unix_s=0.0))
    spec = MatmulSpec(device="cpu", m=32, n=32, k=32, iterations=3, seconds=None)
    assert kinds(engine.run(StartBenchmark(spec=spec), WAIT_S)) == [BenchStarted, BenchPoint, BenchEnded]
