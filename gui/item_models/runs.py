"""Benchmark runs as rows of a table and as the JSON document of the command line. No widgets; main thread."""

from __future__ import annotations

from collections.abc import Iterable

from devexplorer.core.benchmark.documents import run_document
from devexplorer.core.formats import MISSING, number_text, seconds_text, shape_text
from devexplorer.core.records.benchmark import MatmulResult
from devexplorer.core.state import Run, State
from devexplorer.gui.item_models.rows import Cell, Column, TableRow
from devexplorer.gui.theme import Theme, device_colour

RUN_COLUMNS = (
    Column("device"),
    Column("dtype"),
    Column("shape", tip="M×N×K"),
    Column("TFLOP/s", is_number=True, tip="The median over the iterations; while it runs, that of the latest block"),
    Column("p20", is_number=True, tip="TFLOP/s that 20 % of the iterations stayed below"),
    Column("p80", is_number=True, tip="TFLOP/s that 80 % of the iterations stayed below"),
    Column("% of datasheet", is_number=True),
    Column("iterations", is_number=True),
    Column("seconds", is_number=True, tip="Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)


def run_row(run: Run, state: State, theme: Theme) -> TableRow:
    """One run; a running one shows its latest block."""
    spec, result, device = run.spec, run.result, state.devices.get(run.spec.device)
    measured = result.tflops.median if result else run.latest.tflops if run.latest and not run.ended else None
    datasheet = run.datasheet_tflops
    share = None if measured is None or not datasheet else 100 * measured / datasheet
    simulated = run.simulated or (device is not None and device.info.simulated)
    colour = theme.dim if device is None else device_colour(device.colour, theme)
    tip = "" if datasheet is None else f"datasheet {number_text(datasheet)} TFLOP/s"
    return TableRow(
        run.run,
        (
            Cell(f"{spec.device}  simulated" if simulated else spec.device, colour),
            Cell(spec.dtype, theme.dim),
            Cell(shape_text((spec.m, spec.n, spec.k)), theme.dim),
            Cell(number_text(measured)),
            Cell(number_text(result.tflops.p20 if result else None)),
            Cell(number_text(result.tflops.p80 if result else None)),
            Cell(f"{share:.0f}" if share is not None else MISSING, tip=tip or "no datasheet figure is known"),
            Cell(f"{result.iterations:,}" if result else MISSING),
            Cell(f"{result.seconds:.2f}" if result else MISSING, tip=seconds_text(result.seconds if result else None)),
            _state_cell(run, theme),
        ),
    )


def _state_cell(run: Run, theme: Theme) -> Cell:
    if not run.ended:
        return Cell("running" if run.started_unix_s is not None else "warming up", theme.text)
    if run.result is None:
        words = f"failed: {run.reason or 'nothing was measured'}"
        return Cell(words, theme.error, words)
    if run.result.stopped:
        return Cell("stopped", theme.dim, "It was stopped before its time; what was measured until then is kept.")
    return Cell("done", theme.dim)


def runs_document(results: Iterable[MatmulResult]) -> str:
    """The finished runs as `devexplorer bench matmul --json` prints them."""
    import json  # when it is copied, not when the window starts

    runs = [run_document(result) for result in results]
    return json.dumps({"schema": 1, "benchmark": "matmul", "runs": runs}, indent=2)
