"""`devexplorer bench matmul`: measures matrix products, live on the terminal or as one JSON document.

The first Ctrl-C stops the run after its block and keeps what was measured (exit code 130), the second ends the command at once.
"""

from __future__ import annotations

import argparse
import signal
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from types import FrameType
from typing import TYPE_CHECKING

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from devexplorer.core.benchmark.documents import run_document
from devexplorer.core.benchmark.spec import check_product, parse_count, parse_seconds, parse_shape
from devexplorer.core.cli.arguments import BENCHMARKS
from devexplorer.core.cli.findings import Findings
from devexplorer.core.cli.output import console, print_document, table
from devexplorer.core.cli.run import INTERRUPTED, refuse
from devexplorer.core.dtypes import parse_dtype
from devexplorer.core.formats import number_text, shape_text
from devexplorer.core.records.benchmark import BenchPoint, MatmulResult, MatmulSpec
from devexplorer.core.records.messages import Answer, BenchEnded, StartBenchmark, StopBenchmark

if TYPE_CHECKING:
    from devexplorer.core.engine.local import LocalEngine

DEFAULT_SECONDS = 5.0


def bench(arguments: argparse.Namespace) -> int:
    """Run the benchmarks one device after the other and print what was measured."""
    from devexplorer.core.engine.local import LocalEngine

    findings = Findings()
    wanted = _specs(arguments, findings)
    if not findings.check_virtual(arguments.virtual):  # nobody knows which devices there would be
        findings.demand_none()
    results: list[MatmulResult] = []
    failures: list[str] = []
    with LocalEngine(arguments.virtual) as engine:
        # every device is checked before the first minute is spent
        checked = [findings.checked(partial(engine.engine.benchmarks.check, spec), spec) for spec in wanted]
        findings.demand_none()
        runs = {spec.device: spec for spec in checked}
        interrupted = _run_all(engine, list(runs.values()), results, failures, progress=not arguments.json)
    if results:
        _print(arguments, results)
    for failure in failures:
        refuse(failure)
    if interrupted:
        return INTERRUPTED
    return 2 if failures else 0


def _specs(arguments: argparse.Namespace, findings: Findings) -> list[MatmulSpec]:
    """What the arguments ask for, one specification per device; harmless values where something is wrong."""
    if arguments.benchmark not in BENCHMARKS:
        findings.add(f"there is no benchmark '{arguments.benchmark}' in this version; there is {', '.join(BENCHMARKS)}")
    if arguments.mode != "live":
        findings.add(f"there is no mode '{arguments.mode}' in this version; there is live")
    m, n, k = findings.checked(partial(parse_shape, arguments.size), (1, 1, 1))
    dtype = findings.checked(lambda: check_product(parse_dtype(arguments.dtype, tf32=True)), "float32")
    iterations = seconds = None
    if arguments.iterations is not None:
        iterations = findings.checked(partial(parse_count, arguments.iterations, "--iterations"), None)
    if arguments.seconds is not None:
        seconds = findings.checked(partial(parse_seconds, arguments.seconds, "--seconds"), None)
    elif arguments.iterations is None:
        seconds = DEFAULT_SECONDS
    devices = [name for group in arguments.device or [["cpu"]] for name in group]
    return [MatmulSpec(device=name, dtype=dtype, m=m, n=n, k=k, seconds=seconds, iterations=iterations) for name in devices]


def _run_all(engine: LocalEngine, specs: list[MatmulSpec], results: list[MatmulResult], failures: list[str], *, progress: bool) -> bool:
    """Run one after the other; returns whether Ctrl-C ended it."""
    with ExitStack() as stack:
        bar = stack.enter_context(_progress(console())) if progress and console().is_terminal else None
        for spec in specs:
            request = engine.send(StartBenchmark(spec=spec))
            with _stopped_by_interrupt(partial(engine.send, StopBenchmark(run=request))) as interrupted:
                result, reason = _follow(engine, request, spec, bar)
            if result is not None:
                results.append(result)
            if reason is not None:
                failures.append(reason)
            if interrupted():
                return True
    return False


def _follow(engine: LocalEngine, request: int, spec: MatmulSpec, progress: Progress | None) -> tuple[MatmulResult | None, str | None]:
    """The run's result, and why it ended when that was not its time."""
    task = None if progress is None else progress.add_task(f"{spec.device} {spec.dtype}", total=spec.seconds, speed="warming up")
    result, reason = None, None
    for event in engine.events(request):
        match event:
            case BenchPoint():
                _show(progress, task, event)
            case BenchEnded():
                result = event.result
                reason = None if event.reason is None else f"{spec.device}: {event.reason}"
            case Answer(failed=True, words=words, request=answered) if answered == request:
                reason = words
    return result, reason


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


def _print(arguments: argparse.Namespace, results: list[MatmulResult]) -> None:
    if arguments.json:
        print_document(benchmark=arguments.benchmark, runs=[run_document(result) for result in results])
        return
    listing = table("device", "dtype", ">shape", ">TFLOP/s median", ">p20", ">p80", ">iterations", ">seconds", "")
    for result in results:
        spec = result.spec
        listing.add_row(
            spec.device, spec.dtype, shape_text((spec.m, spec.n, spec.k)),
            *map(number_text, (result.tflops.median, result.tflops.p20, result.tflops.p80)),
            f"{result.iterations:,}", number_text(result.seconds), "simulated" if result.simulated else "",
        )  # fmt: skip
    console().print(listing)


def _show(progress: Progress | None, task: TaskID | None, point: BenchPoint) -> None:
    if progress is not None and task is not None:
        unit = "TFLOP/s simulated" if point.simulated else "TFLOP/s"
        progress.update(task, advance=point.seconds, speed=f"{number_text(point.tflops)} {unit}")


def _progress(out: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[speed]}"))
    return Progress(*columns, console=out, transient=True)
