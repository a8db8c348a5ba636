"""Runs benchmarks one after the other and follows them: progress on a terminal, Ctrl-C, what came out of each. Main
thread.

The first Ctrl-C (or SIGTERM) stops the run after its block and keeps what was measured, the second ends the command at
once.
"""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING, NamedTuple

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from devexplorer.core.base import number_text
from devexplorer.core.benchmark.kind import kind_of, point_rate
from devexplorer.core.cli.bench.beside import Beside
from devexplorer.core.cli.terminal.stopping import SIGNALS
from devexplorer.core.records import (
    Answer,
    BenchEnded,
    BenchPoint,
    BenchResult,
    BenchSpec,
    Conditions,
    StartBenchmark,
    StopBenchmark,
)

if TYPE_CHECKING:
    from devexplorer.core.engine.local import LocalEngine


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
