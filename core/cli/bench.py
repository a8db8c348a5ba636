"""`devexplorer bench`: measures one benchmark after the other, shows progress on a terminal, prints tables or one JSON
document, and keeps every run in the history.

Main thread; the cards under test are read on the sampler's threads. The first Ctrl-C (or SIGTERM) stops the run after
its block and keeps what was measured (exit code 130; after SIGTERM 143), a second one ends all at once."""

from __future__ import annotations

import argparse
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from pkgutil import resolve_name
from types import FrameType
from typing import TYPE_CHECKING, Any, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from devexplorer.core.base import MISSING, number_text
from devexplorer.core.benchmark.conditions import RunConditions, all_conditions, here
from devexplorer.core.benchmark.kind import benchmark_document, devices_of, kind_of, point_rate
from devexplorer.core.cli.arguments import of_features
from devexplorer.core.cli.bench_options import specs
from devexplorer.core.cli.findings import TerminalFindings
from devexplorer.core.cli.startup import refuse
from devexplorer.core.cli.stopping import SIGNALS
from devexplorer.core.cli.terminal import console, print_document, quiet_stdout, table
from devexplorer.core.devices.catalog import join
from devexplorer.core.devices.cpu import CpuReader
from devexplorer.core.devices.nvml.library import Nvml
from devexplorer.core.records import (
    Answer,
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchResult,
    BenchSpec,
    Conditions,
    DeviceInfo,
    Event,
    StartBenchmark,
    StopBenchmark,
)
from devexplorer.core.telemetry.sampler import Sampler

if TYPE_CHECKING:
    from devexplorer.core.engine.engine import LocalEngine


CLOSE_S = 2.0
"""For a driver that does not answer."""


class Beside:
    """A context around benchmark runs, one after the other: shown every event, it knows the conditions of the run that
    ended last."""

    def __init__(self, infos: Sequence[DeviceInfo], specs: Iterable[BenchSpec], nvml: Nvml | None = None) -> None:
        """`infos`: every device as the engine lists them; `specs`: what will be measured. `nvml` replaces the real one
        in tests."""
        measured = {name for spec in specs for name in devices_of(spec)}
        self._infos = tuple(infos)
        self._cards_wanted = any(info.kind == "cuda" for info in infos if info.id in measured)
        self._nvml = nvml
        self._sampler: Sampler | None = None
        self._read: deque[Event] = deque()
        """Filled by the sampler's threads."""
        self._runs = RunConditions(here())
        self._runs.set_devices(infos)

    def __enter__(self) -> Beside:
        if not self._cards_wanted:
            return self
        nvml, cpu = self._nvml or Nvml(), CpuReader()
        try:
            nvml.start()
            catalog = join(cpu.info(), nvml.cards(), self._infos)
        except BaseException:
            nvml.close()
            raise
        self._runs.set_devices(catalog.devices)
        if not catalog.names:  # no driver, or no card that it knows
            nvml.close()
            return self
        self._sampler = Sampler(self._read.append, nvml, cpu)
        self._sampler.set_names(catalog.names)
        self._sampler.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._sampler is not None:
            self._sampler.stop(CLOSE_S)

    def see(self, event: Event) -> None:
        """Take note of an event of the engine."""
        if not isinstance(event, BenchPreparing):  # what was read before a run counts for it
            self._catch_up()
        self._runs.handle(event)
        self._catch_up()

    def _catch_up(self) -> None:
        while self._read:
            self._runs.handle(self._read.popleft())

    def conditions(self, result: BenchResult, ended_unix_s: float) -> Conditions:
        """Of the run that has just ended."""
        self._catch_up()
        return self._runs.conditions(result, ended_unix_s)


class Finished(NamedTuple):
    """A run that measured something."""

    result: BenchResult
    conditions: Conditions


class BenchOutcome(NamedTuple):
    """Of all runs."""

    finished: list[Finished]
    failures: list[str]
    """One line per run that ended before its time, where it was not the user who stopped it."""
    interrupted: int
    """128 and the number of the signal that stopped it, as shells have it; 0: none did."""


def run_all(
    engine: LocalEngine,
    specs: Sequence[BenchSpec],
    beside: Beside,
    keep: Callable[[Finished], None],
    terminal: Console | None,
) -> BenchOutcome:
    """Run them; `keep` gets each as soon as it has ended, `terminal` shows progress."""
    outcome = BenchOutcome([], [], 0)
    with ExitStack() as stack:
        bar = None if terminal is None else stack.enter_context(_progress(terminal))
        for spec in specs:
            request = engine.send(StartBenchmark(spec=spec))
            with _stopped_by_interrupt(partial(engine.send, StopBenchmark(run=request))) as interrupted:
                finished, reason = _follow(engine, request, spec, beside, bar)
            if finished is not None:
                outcome.finished.append(finished)
                keep(finished)
            if reason is not None:
                outcome.failures.append(reason)
            if interrupted():
                return outcome._replace(interrupted=interrupted())
    return outcome


def _follow(
    engine: LocalEngine, request: int, spec: BenchSpec, beside: Beside, progress: Progress | None
) -> tuple[Finished | None, str | None]:
    """The run's result, and why it ended when that was not its time."""
    kind = kind_of(spec)
    name, total = f"{spec.device}  {kind.caption(spec)}", 1.0 if kind.ends(spec) else None
    task = None if progress is None else progress.add_task(name, total=total, now="warming up")
    finished, reason = None, None
    for event in engine.events(request):
        beside.see(event)
        match event:
            case BenchPoint():
                _show(progress, task, event)
            case BenchEnded(result=result):
                if result is not None:
                    finished = Finished(result, beside.conditions(result, event.time_unix_s))
                why = event.reason or (None if result is None else result.failure)
                reason = None if why is None else f"{spec.device}: {why}"
            case Answer(failed=True, words=words, request=answered) if answered == request:
                reason = words
    return finished, reason


def _show(progress: Progress | None, task: TaskID | None, point: BenchPoint) -> None:
    if progress is None or task is None:
        return
    rate = point_rate(point)
    rate_text = "" if rate is None else f"{number_text(rate[0])} {rate[1]}"
    now = "  ".join(filter(None, (point.text, rate_text, "simulated" if point.simulated else "")))
    progress.update(task, completed=point.done, now=now)  # None while it is unknown, as while a speed settles


def _progress(terminal: Console) -> Progress:
    name, now = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[now]}", markup=False)
    return Progress(name, BarColumn(), TimeRemainingColumn(), now, console=terminal, transient=True)


@contextmanager
def _stopped_by_interrupt(stop: Callable[[], object]) -> Iterator[Callable[[], int]]:
    """The first Ctrl-C, or the system's request to end, calls `stop`; a second one ends the program the usual way.

    Gives a question: the exit code of what came, 0 for nothing.
    """
    came = 0

    def first(number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = 128 + number
        signal.signal(signal.SIGINT, signal.default_int_handler)
        signal.signal(signal.SIGTERM, signal.SIG_DFL)
        stop()

    before = {number: signal.signal(number, first) for number in SIGNALS}
    try:
        yield lambda: came
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


CANNOT_RUN, WRONG_VALUES = 2, 1
READINGS = ("SM clock", "memory clock", "power", "power cap", "temperature", "throttled by", "other processes")
"""Conditions that are printed with a result, where they are known; `--json` has all."""


def bench(arguments: argparse.Namespace, nvml: Nvml | None = None) -> int:
    """Run the benchmarks one device after the other and print what was measured; `nvml` replaces the real one in
    tests."""
    findings = TerminalFindings()
    wanted = specs(arguments, findings)
    keepers = [
        resolve_name(f"devexplorer.core.{keeper.run}")(arguments, findings) for keeper in of_features("BENCH_KEEPERS")
    ]
    if (
        not findings.check_virtual(arguments.virtual) or not wanted
    ):  # it is not known which devices there would be, or what to check
        findings.demand_none()
    outcome = _measured(arguments, wanted, findings, keepers, nvml)
    if outcome.finished:
        if arguments.json:
            print_document(**benchmark_document(outcome.finished))
        else:
            _print_results(console(), outcome.finished)
    for failure in outcome.failures:
        refuse(failure)
    if outcome.interrupted:
        return outcome.interrupted
    if outcome.failures:
        return CANNOT_RUN
    return WRONG_VALUES if any(finished.result.verified is False for finished in outcome.finished) else 0


def _measured(
    arguments: argparse.Namespace,
    wanted: Sequence[BenchSpec],
    findings: TerminalFindings,
    keepers: Sequence[Any],
    nvml: Nvml | None,
) -> BenchOutcome:
    from devexplorer.core.engine.benchmarks import model_copy
    from devexplorer.core.engine.engine import LocalEngine
    from devexplorer.core.models.guard import staying

    with ExitStack() as stack:
        if any(kind_of(spec).runs_own_code(spec) for spec in wanted):
            stack.enter_context(quiet_stdout())  # code of the user's may print at any time
            stack.enter_context(staying())
        engine = stack.enter_context(LocalEngine(arguments.virtual))
        # code that is named on the command line is meant to run
        engine.engine.benchmarks.resolve = partial(model_copy, engine.engine.workspace, own_code=True)
        infos = engine.engine.registry.infos()
        named = [findings.checked(partial(kind_of(spec).canonical, spec), spec) for spec in wanted]
        complete = [kind_of(spec).on_devices(spec, infos) for spec in named]
        # every device is checked before the first minute is spent
        checked = [findings.checked(partial(engine.engine.benchmarks.check, spec), spec) for spec in complete]
        findings.demand_none()
        for keeper in keepers:
            stack.callback(keeper.close)

        def keep(finished: Finished) -> None:
            if not arguments.no_store:
                for keeper in keepers:
                    keeper.keep(*finished)

        beside = stack.enter_context(Beside(infos, checked, nvml))
        terminal = console()
        return run_all(
            engine,
            list(dict.fromkeys(checked)),  # two names of one device are one run
            beside,
            keep,
            terminal=terminal if terminal.is_terminal and not arguments.json else None,
        )


def _print_results(out: Console, finished: Sequence[Finished]) -> None:
    """The tables of runs of one kind, then the conditions of each that has some."""
    kind = kind_of(finished[0].result)
    for runs in [finished] if kind.one_table else [[run] for run in finished]:
        listing = table(*kind.columns)
        for run in runs:
            for row in kind.rows(*run):
                listing.add_row(*row)
        out.print(listing)
        if summary := "\n".join(filter(None, (kind.summary(*run) for run in runs))):
            out.print(summary)
    for run in finished:
        if line := _conditions_text(run.conditions):
            out.print(line, style="dim")


def _conditions_text(conditions: Conditions) -> str:
    """Readings of the run's span in one line; empty where there were none."""
    known = [
        f"{row.label} {row.value}"
        for row in all_conditions(conditions)
        if row.label in READINGS and row.value != MISSING
    ]
    return f"{conditions.device}: {', '.join(known)}" if known else ""
