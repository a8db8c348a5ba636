"""`devexplorer bench matmul`: measures matrix products, live on the terminal or as one JSON document. Ctrl-C keeps what was measured."""

from __future__ import annotations

import argparse
from collections.abc import Callable
from contextlib import ExitStack
from typing import TypeVar

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeRemainingColumn

from devexplorer.core.benchmark.documents import run_document
from devexplorer.core.benchmark.spec import parse_seconds, parse_shape
from devexplorer.core.cli.arguments import BENCHMARKS
from devexplorer.core.cli.output import console, document, table
from devexplorer.core.dtypes import parse_dtype
from devexplorer.core.errors import BadInput
from devexplorer.core.formats import number_text, shape_text
from devexplorer.core.records.benchmark import BenchPoint, BenchResult, BenchSpec
from devexplorer.core.records.messages import Answer, BenchEnded, StartBenchmark, StopBenchmark

T = TypeVar("T")
DEFAULT_SECONDS = 5.0


def specs(arguments: argparse.Namespace) -> list[BenchSpec]:
    """What the arguments ask for, one specification per device; every mistake in one `BadInput`."""
    findings: list[str] = []

    def checked(parse: Callable[[str], T], text: str, fallback: T) -> T:
        try:
            return parse(text)
        except BadInput as error:
            findings.extend(error.findings)
            return fallback

    if arguments.benchmark not in BENCHMARKS:
        findings.append(f"there is no benchmark '{arguments.benchmark}' in this version; there is {', '.join(BENCHMARKS)}")
    if arguments.mode != "live":
        findings.append(f"there is no mode '{arguments.mode}' in this version; there is live")
    m, n, k = checked(parse_shape, arguments.size, (1, 1, 1))
    dtype = checked(lambda text: parse_dtype(text, tf32=True), arguments.dtype, "float32")
    iterations = None if arguments.iterations is None else checked(_count, arguments.iterations, 1)
    seconds: float | None
    if arguments.seconds is not None:
        seconds = checked(parse_seconds, arguments.seconds, 1.0)
    else:
        seconds = DEFAULT_SECONDS if iterations is None else None
    if findings:
        raise BadInput(*findings)
    devices = [name for group in arguments.device or [["cpu"]] for name in group]
    return [BenchSpec(device=name, dtype=dtype, m=m, n=n, k=k, seconds=seconds, iterations=iterations) for name in dict.fromkeys(devices)]


def _count(text: str) -> int:
    if not text.strip().isdigit() or int(text) < 1:
        raise BadInput(f"--iterations {text} is not a whole number above 0")
    return int(text)


def bench(arguments: argparse.Namespace) -> int:
    """Run the benchmarks one device after the other and print what was measured."""
    wanted = specs(arguments)
    from devexplorer.core.engine.local import LocalEngine

    results: list[BenchResult] = []
    with LocalEngine(arguments.virtual) as engine:
        for spec in wanted:
            engine.engine.fleet.choose(spec.device)  # every name is checked before the first minute is spent
        with ExitStack() as stack:
            progress = None if arguments.json else stack.enter_context(_progress(console()))
            for spec in wanted:
                results.append(_measure(engine, spec, progress))
                if results[-1].stopped:
                    break
    if arguments.json:
        print(document(benchmark=arguments.benchmark, runs=[run_document(result) for result in results]))
        return 0
    listing = table("device", "dtype", "shape", ">TFLOP/s median", ">p20", ">p80", ">iterations", ">seconds", "")
    for result in results:
        spec = result.spec
        listing.add_row(
            spec.device, spec.dtype, shape_text((spec.m, spec.n, spec.k)),
            *map(number_text, (result.tflops.median, result.tflops.p20, result.tflops.p80)),
            f"{result.iterations:,}", number_text(result.seconds), "simulated" if result.simulated else "",
        )  # fmt: skip
    console().print(listing)
    return 0


def _measure(engine: object, spec: BenchSpec, progress: Progress | None) -> BenchResult:
    from devexplorer.core.engine.local import LocalEngine

    assert isinstance(engine, LocalEngine)
    request = engine.send(StartBenchmark(spec=spec))
    task = None if progress is None else progress.add_task(f"{spec.device} {spec.dtype}", total=spec.seconds, speed="warming up")
    ended: BenchEnded | None = None
    events = engine.events(request)
    while True:
        try:
            event = next(events, None)
        except KeyboardInterrupt:  # the generator is spent; what was measured comes after the stop
            engine.send(StopBenchmark(run=request))
            events = engine.events(request)
            continue
        if event is None:
            break
        match event:
            case BenchPoint():
                _show(progress, task, event)
            case BenchEnded():
                ended = event
            case Answer(failed=True, words=words, request=answered) if answered == request:
                raise BadInput(words)
    if ended is None or ended.result is None:
        raise BadInput(ended.reason if ended is not None and ended.reason else f"nothing was measured on {spec.device}")
    return ended.result


def _show(progress: Progress | None, task: TaskID | None, point: BenchPoint) -> None:
    if progress is not None and task is not None:
        unit = "TFLOP/s simulated" if point.simulated else "TFLOP/s"
        progress.update(task, advance=point.seconds, speed=f"{number_text(point.tflops)} {unit}")


def _progress(out: Console) -> Progress:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn(), TextColumn("{task.fields[speed]}"))
    return Progress(*columns, console=out, transient=True)
