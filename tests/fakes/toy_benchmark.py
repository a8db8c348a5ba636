"""A benchmark outside the product: counting. Its records, its runner and its kind, as for a new kind; its page is in
`toy_benchmark_page`."""

from __future__ import annotations

import argparse
from collections.abc import Callable, Sequence
from typing import Any

import msgspec
import pytest

from devexplorer.core.base import Findings
from devexplorer.core.benchmark.kind import (
    DEVICE,
    UNITS,
    BenchmarkKind,
    Entry,
    Figure,
    Headline,
    Option,
    RunInputs,
    exact,
    figure,
    named_devices,
    read_result,
    read_spec,
    write,
)
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.feature import benchmark_kinds
from devexplorer.core.records.benchmark import BaseResult, BaseSpec, BenchPoint, Conditions


class ToySpec(BaseSpec, tag="toy"):
    device: str
    rounds: int = 3


class ToyResult(BaseResult, tag="toy"):
    spec: ToySpec
    per_second: float


class ToyEntry(Entry, kw_only=True):
    rounds: int
    per_second: float


class ToyRunner:
    """A point for each round."""

    simulated = False

    def __init__(self, spec: ToySpec, run: int, clock: Callable[[], float]) -> None:
        self.spec, self.run, self.clock, self.rounds = spec, run, clock, 0

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        pass

    def step(self) -> BenchPoint | None:
        if self.rounds == self.spec.rounds:
            return None
        self.rounds += 1
        return BenchPoint(
            run=self.run, device=self.spec.device, time_unix_s=self.clock(), samples_per_s=7.0,
            done=self.rounds / self.spec.rounds,
        )  # fmt: skip

    def result(self, *, stopped: bool, failure: str | None = None) -> Any:
        return ToyResult(
            run=self.run, spec=self.spec, per_second=7.0, stopped=stopped, simulated=False, seconds=self.rounds / 7,
            iterations=self.rounds, failure=failure,
        )  # fmt: skip


class ToyKind(BenchmarkKind[ToySpec, ToyResult]):
    spec, result, entry = ToySpec, ToyResult, ToyEntry
    page = "fakes.toy_benchmark_page:ToyPage"
    title, about, meaning = "Toys", "count to a number", "Counting: how soon it is done"
    columns = ("device", ">rounds", ">per second")
    options = (DEVICE, Option("--rounds", "how far to count (default 3)", "N"))

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[ToySpec]:
        rounds = findings.count(arguments.rounds, "--rounds") or 3
        return [ToySpec(device=name, rounds=rounds) for name in named_devices(arguments)]

    def check(self, spec: ToySpec, registry: DeviceRegistry) -> ToySpec:
        return msgspec.structs.replace(spec, device=registry.choose(spec.device))

    def runner(self, spec: ToySpec, inputs: RunInputs) -> ToyRunner:
        return ToyRunner(spec, inputs.run, inputs.clock)

    def caption(self, spec: ToySpec) -> str:
        return f"toy to {spec.rounds}"

    def figures(self, result: ToyResult) -> tuple[Figure, ...]:
        return (figure((), "samples_per_s", exact(result.per_second), result, result.simulated),)

    def headline(self, result: ToyResult) -> Headline:
        return Headline(exact(result.per_second), UNITS["samples_per_s"])

    def subject(self, result: ToyResult) -> str:
        return f"to {result.spec.rounds}"

    def rows(self, result: ToyResult, conditions: Conditions) -> list[tuple[str, ...]]:
        return [(result.spec.device, str(result.spec.rounds), f"{result.per_second:g}")]

    def entries(self, result: ToyResult, conditions: Conditions | None) -> list[Entry]:
        return [write(ToyEntry, result, result.spec)]

    def read(self, entries: Sequence[Any]) -> ToyResult:
        return read_result(entries, ToyResult, spec=read_spec(entries[0], ToySpec))


def register(monkeypatch: pytest.MonkeyPatch) -> None:
    """Register the toy for one test."""
    monkeypatch.setitem(benchmark_kinds(), "toy", ToyKind())
