"""A run of a script as a run of the history: what it is listed as, exported, imported and compared by. Any thread; no
torch."""

from __future__ import annotations

import argparse
import os
import platform
from collections.abc import Sequence
from typing import Any

import msgspec

import devexplorer
from devexplorer.core.base import BadInput, Findings
from devexplorer.core.benchmark.kind import BenchmarkKind, Entry, Figure, Headline, exact, write
from devexplorer.core.benchmark.statistics import noise, spread
from devexplorer.core.observe.closing import LEAST_SHARE, report_lines
from devexplorer.core.observe.records import RunReport
from devexplorer.core.records import BaseResult, BaseSpec, Conditions

STEP = "a step"
CPU = "cpu"
LONGEST_SUBJECT = 120


class ScriptSpec(BaseSpec, tag="script"):
    """What was run."""

    device: str
    """The one that had most in its memory; `cpu`: there was no other."""
    script: str
    arguments: tuple[str, ...] = ()
    rank: int | None = None
    ranks: int | None = None


class ScriptResult(BaseResult, tag="script"):
    """A run that is over."""

    spec: ScriptSpec
    report: RunReport
    """Without its parameters."""


class ScriptEntry(Entry, kw_only=True):
    """The same in a document."""

    report: RunReport


def result_of(report: RunReport) -> ScriptResult:
    """As the history keeps it."""
    use = max((use for use in report.memory if use.device != CPU), key=_peak, default=None)
    return ScriptResult(
        run=0,
        stopped=False,
        simulated=report.clock == "simulated" or bool(use and use.simulated),
        seconds=report.seconds,
        iterations=report.steps_counted,
        torch_version=report.torch,
        spec=ScriptSpec(
            device=CPU if use is None else use.device,
            script=report.script,
            arguments=report.arguments,
            rank=report.rank,
            ranks=report.ranks,
        ),
        report=msgspec.structs.replace(report, parameters=()),
    )


def conditions_of(report: RunReport, *, here: bool) -> Conditions:
    """`here`: it was seen on this machine; a file can be from anywhere."""
    result = result_of(report)
    names = {use.device: use.name for use in report.memory}
    return Conditions(
        started_unix_s=report.started_unix_s,
        ended_unix_s=report.started_unix_s + report.seconds,
        host=platform.node() if here else "",
        device=result.spec.device,
        device_name=names.get(result.spec.device, ""),
        simulated=result.simulated,
        torch_version=report.torch,
        python_version=report.python,
        devexplorer_version=devexplorer.__version__ if here else None,
    )


class ScriptKind(BenchmarkKind[ScriptSpec, ScriptResult]):
    """Runs of scripts of the user's. None is started as a benchmark."""

    spec, result, entry = ScriptSpec, ScriptResult, ScriptEntry
    title, about, meaning = "Runs of scripts", "run a script", "A script that devexplorer run has started"
    columns = ("device", "script", ">steps", ">a step, s", "")
    rate_name = "a step"

    def specs(self, arguments: argparse.Namespace, findings: Findings) -> list[ScriptSpec]:
        return []

    def check(self, spec: ScriptSpec, registry: Any) -> ScriptSpec:
        raise BadInput("a script is run by 'devexplorer run', not as a benchmark")

    def caption(self, spec: ScriptSpec) -> str:
        return f"script {_subject(spec)}"

    def figures(self, result: ScriptResult) -> tuple[Figure, ...]:
        """The step, its phases, the largest first, and peaks of memory: the process has the values of virtual GPUs."""
        report, clock = result.report, result.report.clock == "simulated"
        found = []
        phases = sorted(report.phases, key=lambda phase: -phase.share)
        known = [(phase.name, phase.parts) for phase in phases if phase.share >= LEAST_SHARE]
        for name, parts in ((STEP, report.step_parts), *known):
            if not parts or min(parts) <= 0:  # not in every step
                continue
            figure = Figure((name,), "seconds", spread(parts), parts, noise(parts), clock, whole=name == STEP)
            found.append(figure._replace(iterations=report.steps_counted, seconds=report.seconds))
        for use in report.memory:
            if use.peak_allocated_bytes:
                name = "process" if use.device == CPU else use.device
                peak = exact(use.peak_allocated_bytes / (1 << 20))
                found.append(Figure((f"peak memory, {name}",), "mib", peak, simulated=result.simulated))
        return tuple(found)

    def headline(self, result: ScriptResult) -> Headline:
        parts = result.report.step_parts
        return Headline(spread(parts) if parts else None, "s", noise(parts))

    def subject(self, result: ScriptResult) -> str:
        return _subject(result.spec)

    def subject_tip(self, result: ScriptResult) -> str:
        return "\n".join(report_lines(result.report))

    def remark(self, result: ScriptResult) -> str:
        kind = result.report.verdict.kind
        return "" if kind == "not-sure" else kind

    def rows(self, result: ScriptResult, conditions: Conditions) -> list[tuple[str, ...]]:
        report, step = result.report, result.report.step_median_seconds
        each = "" if step is None else f"{step:.4g}"
        return [(result.spec.device, _subject(result.spec), str(report.steps), each, report.verdict.text)]

    def entries(self, result: ScriptResult, conditions: Conditions | None) -> list[Entry]:
        return [write(ScriptEntry, result, result.spec)]

    def read(self, entries: Sequence[Any]) -> ScriptResult:
        (entry,) = entries
        return result_of(entry.report)

    def incomparable(self, results: Sequence[ScriptResult]) -> str:
        clocks = list(dict.fromkeys(result.report.clock for result in results))
        if len(clocks) > 1:
            return f"their times are on different clocks ({', '.join(clocks)})"
        return ""


def _peak(use: Any) -> int:
    return use.peak_allocated_bytes or 0


def _subject(spec: ScriptSpec) -> str:
    """`train.py --lr 3e-4, rank 2 of 4`."""
    name = spec.script if spec.script.startswith("-m ") else os.path.basename(spec.script)
    words = " ".join((name, *spec.arguments))
    if len(words) > LONGEST_SUBJECT:
        words = f"{words[:LONGEST_SUBJECT]}…"
    return words if spec.rank is None else f"{words}, rank {spec.rank} of {spec.ranks}"
