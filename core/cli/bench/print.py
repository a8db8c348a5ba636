"""What benchmarks measured, as tables for people. Main thread."""

from __future__ import annotations

from collections.abc import Sequence

from rich.console import Console
from rich.table import Table

from devexplorer.core.base.formats import MISSING, bytes_text, number_text, seconds_text, shape_text
from devexplorer.core.benchmark.condition_rows import all_conditions
from devexplorer.core.benchmark.published import best, verdict
from devexplorer.core.benchmark.statistics import noise_words
from devexplorer.core.cli.bench.run import Finished
from devexplorer.core.cli.terminal.output import table
from devexplorer.core.records.benchmark import (
    BandwidthResult,
    BandwidthRow,
    Conditions,
    MatmulResult,
    ModelResult,
    ScalingResult,
    Spread,
    SweepResult,
)

READINGS = ("SM clock", "memory clock", "power", "power cap", "temperature", "clocks held down by", "other processes")
"""Conditions that are printed with a result, where they are known; `--json` has all."""


def print_results(out: Console, finished: Sequence[Finished]) -> None:
    """One table for all runs, then the conditions of each that has some."""
    matmuls = [(one.result, one.conditions) for one in finished if isinstance(one.result, MatmulResult)]
    models = [one.result for one in finished if isinstance(one.result, ModelResult)]
    if matmuls:
        out.print(_matmuls(matmuls))
    if models:
        out.print(_models(models))
    for one in finished:
        match one.result:
            case SweepResult() as sweep:
                out.print(_sweep(sweep))
                out.print(_best_of(sweep, one.conditions), markup=False)
            case BandwidthResult() as bandwidth:
                out.print(_copies(bandwidth))
            case ScalingResult() as scaling:
                out.print(_walls(scaling))
                out.print(_speedup(scaling), markup=False)
    for one in finished:
        if line := conditions_text(one.conditions):
            out.print(line, style="dim", markup=False)


def conditions_text(conditions: Conditions) -> str:
    """Readings of the run's span in one line; empty where there were none."""
    known = [
        f"{row.label} {row.value}"
        for row in all_conditions(conditions)
        if row.label in READINGS and row.value != MISSING
    ]
    return f"{conditions.device}: {', '.join(known)}" if known else ""


def _matmuls(runs: Sequence[tuple[MatmulResult, Conditions]]) -> Table:
    listing = table(
        "device", "dtype", ">shape", "mode", ">TFLOP/s median", ">p20", ">p80", ">iterations", ">seconds", ""
    )
    for result, conditions in runs:
        spec = result.spec
        batch = (spec.batch,) if spec.batch > 1 else ()
        listing.add_row(
            spec.device, spec.dtype, shape_text((*batch, spec.m, spec.n, spec.k)), spec.mode, *_spread(result.tflops),
            f"{result.iterations:,}", number_text(result.seconds), _remarks(result, conditions),
        )  # fmt: skip
    return listing


def _remarks(result: MatmulResult, conditions: Conditions) -> str:
    spec = result.spec
    share = verdict(result.tflops.median, result.datasheet_tflops, best(conditions.device_name, spec.dtype), spec.mode)
    drift = "" if result.drift is None else f"drift {100 * result.drift:+.1f} %"
    wrong = "wrong values" if result.verified is False else ""
    noise = "" if result.simulated else noise_words(result.noise)  # what is computed has none
    return _joined(result.simulated, result.stopped, wrong, share, noise, drift)


def _joined(simulated: bool, stopped: bool, *words: str) -> str:
    return ", ".join(filter(None, ("simulated" if simulated else "", *words, "stopped" if stopped else "")))


def _spread(spread: Spread | None) -> tuple[str, str, str]:
    return (
        (MISSING,) * 3
        if spread is None
        else (number_text(spread.median), number_text(spread.p20), number_text(spread.p80))
    )


def _sweep(result: SweepResult) -> Table:
    listing = table("device", "dtype", ">shape", ">TFLOP/s median", ">p20", ">p80", ">iterations", "")
    for cell in result.cells:
        listing.add_row(
            result.spec.device, result.spec.dtype, shape_text((cell.m, cell.n, cell.k)), *_spread(cell.tflops),
            f"{cell.iterations:,}", cell.reason or _joined(result.simulated, False),
        )  # fmt: skip
    return listing


def _best_of(result: SweepResult, conditions: Conditions) -> str:
    measured = [(cell.tflops.median, cell) for cell in result.cells if cell.tflops is not None]
    if not measured:
        return "No shape could be measured."
    median, cell = max(measured, key=lambda pair: pair[0])
    share = verdict(median, result.datasheet_tflops, best(conditions.device_name, result.spec.dtype))
    words = f"fastest: {shape_text((cell.m, cell.n, cell.k))} with {number_text(median)} TFLOP/s"
    return ", ".join(filter(None, (words, share, _joined(result.simulated, result.stopped))))


def _copies(result: BandwidthResult) -> Table:
    listing = table("from", "to", ">size", "host memory", ">GB/s median", ">p20", ">p80", ">one copy", "verified", "")
    for row in result.rows:
        listing.add_row(
            row.source, row.destination, bytes_text(row.bytes, 0), _kind(row), *_spread(row.gb_per_s),
            seconds_text(row.seconds.median if row.seconds is not None else None), _verified(row.verified),
            row.reason or _joined(row.simulated, False, "both ways" if row.both_ways else ""),
        )  # fmt: skip
    return listing


def _kind(row: BandwidthRow) -> str:
    return "" if row.pinned is None else "pinned" if row.pinned else "pageable"


def _verified(verified: bool | None) -> str:
    return MISSING if verified is None else "yes" if verified else "no: other bytes arrived"


def _walls(result: ScalingResult) -> Table:
    listing = table("device", "job", ">seconds", "")
    job = f"{result.spec.iterations:,} × {shape_text((result.spec.size,) * 3)} {result.spec.dtype}"
    for wall in result.walls:
        listing.add_row(wall.device, job, number_text(wall.seconds), _joined(result.simulated, False))
    return listing


def _speedup(result: ScalingResult) -> str:
    words = [
        f"at once {seconds_text(result.parallel_seconds)}",
        f"one after the other on {result.spec.device} {seconds_text(result.sequential_seconds)}",
    ]
    if result.speedup is not None and result.efficiency is not None:
        words.append(f"{number_text(result.speedup)} times as fast, {100 * result.efficiency:.0f} % per device")
    line = ", ".join(filter(None, (*words, _joined(result.simulated, result.stopped))))
    return line if result.unreliable is None else f"{line}\nUnreliable: {result.unreliable}"


def _models(results: Sequence[ModelResult]) -> Table:
    listing = table(
        "device", "model", "step", ">samples/s median", ">p20", ">p80", ">one step", ">TFLOP/s", ">peak memory", ""
    )
    for result in results:
        spec = result.spec
        step = f"training with {spec.optimizer}" if spec.train else "forward"
        how = _joined(False, False, f"batch {spec.batch}", spec.autocast or "", "compiled" if spec.compiled else "")
        listing.add_row(
            spec.device, spec.target, f"{step}, {how}", *_spread(result.samples_per_s),
            seconds_text(result.step_seconds.median),
            number_text(result.tflops.median if result.tflops is not None else None),
            bytes_text(result.peak_memory_bytes),
            _joined(result.simulated, result.stopped),
        )  # fmt: skip
    return listing
