"""Runs benchmarks one after the other and follows them: progress on a terminal, Ctrl-C, what came out of each. Main thread.

The first Ctrl-C stops the run after its block and keeps what was measured, the second ends the command at once.
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

from devexplorer.core.benchmark.figures import title
from devexplorer.core.cli.bench_beside import Beside
from devexplorer.core.formats import number_text
from devexplorer.core.records.benchmark import BenchPoint, BenchResult, BenchSpec, Conditions, MatmulSpec
from devexplorer.core.records.messages import Answer, BenchEnded, StartBenchmark, StopBenchmark

if TYPE_CHECKING:
    from devexplorer.core.engine.local import LocalEngine


class Finished(NamedTuple):
    """A run that measured something."""

    result: BenchResult
    conditions: Conditions


class Outcome(NamedTuple):
    """Of all runs."""

    finished: list[Finished]
    failures: list[str]
    """One line per run that ended before its time, where it was not the user who stopped it."""
    interrupted: bool


def run_all(
    engine: LocalEngine, specs: Sequence[BenchSpec], beside: Beside, keep: Callable[[Finished], None], terminal: Console | None
) -> Outcome:
    """Run them; `keep` gets each as soon as it has ended, `terminal` shows progress."""
    outcome = Outcome([], [], False)
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
                return outcome._replace(interrupted=True)
    return outcome


def _follow(
    engine: LocalEngine, request: int, spec: BenchSpec, beside: Beside, progress: Progress | None
) -> tuple[Finished | None, str | None]:
    """The run's result, and why it ended when that was not its time."""
    name = f"{spec.device}  {title(spec)}"
    task = None if progress is None else progress.add_task(name, total=1.0 if _ends(spec) else None, now="warming up")
    spent = 0.0
    finished, reason = None, None
    for event in engine.events(request):
        beside.see(event)
        match event:
            case BenchPoint():
                spent += event.seconds
                _show(progress, task, event, _share_done(spec, event, spent))
            case BenchEnded(result=result):
                if result is not None:
                    finished = Finished(result, beside.conditions(result, event.time_unix_s))
                why = event.reason or (None if result is None else result.failure)
                reason = None if why is None else f"{spec.device}: {why}"
            case Answer(failed=True, words=words, request=answered) if answered == request:
                reason = words
    return finished, reason


def _ends(spec: BenchSpec) -> bool:
    """Whether it is known from the beginning when the run will have ended."""
    return not isinstance(spec, MatmulSpec) or spec.seconds is not None or spec.iterations is not None


def _share_done(spec: BenchSpec, point: BenchPoint, spent: float) -> float | None:
    """0 to 1; None where nobody knows."""
    if point.done is not None:
        return point.done
    if isinstance(spec, MatmulSpec) and spec.seconds is not None:
        return min(spent / spec.seconds, 1.0)
    return None


def _show(progress: Progress | None, task: TaskID | None, point: BenchPoint, share_done: float | None) -> None:
    if progress is None or task is None:
        return
    rates = ((point.tflops, "TFLOP/s"), (point.gb_per_s, "GB/s"), (point.samples_per_s, "samples/s"))
    rate = next((f"{number_text(value)} {unit}" for value, unit in rates if value is not None), "")
    now = "  ".join(filter(None, (point.text, rate, "simulated" if point.simulated else "")))
    progress.update(task, completed=share_done, now=now)


def _progress(terminal: Console) -> Progress:
    name, now = TextColumn("{task.description}", markup=False), TextColumn("{task.fields[now]}", markup=False)
    return Progress(name, BarColumn(), TimeRemainingColumn(), now, console=terminal, transient=True)


@contextmanager
def _stopped_by_interrupt(stop: Callable[[], object]) -> Iterator[Callable[[], bool]]:
    """The first Ctrl-C calls `stop`, a second one raises `KeyboardInterrupt`; gives a question whether there was one."""
    came = False

    def first(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        came = True
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop()

    before = signal.signal(signal.SIGINT, first)
    try:
        yield lambda: came
    finally:
        signal.signal(signal.SIGINT, before)
