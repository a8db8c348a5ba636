"""Runs of matrix products and of model steps as rows of a table. No widgets; main thread."""

from __future__ import annotations

import math

from devexplorer.core.base import MISSING, bytes_text, number_text, seconds_text
from devexplorer.core.benchmark.kinds.matmul import product_text, product_tip
from devexplorer.core.benchmark.kinds.model import step_text
from devexplorer.core.benchmark.published import best, verdict
from devexplorer.core.benchmark.statistics import noise_verdict
from devexplorer.core.records import MatmulResult, MatmulSpec, ModelResult, ModelSpec, Spread
from devexplorer.core.session import Device, Run, State
from devexplorer.gui.benchmark.runs import Seen, device_cell, state_cell
from devexplorer.gui.widgets.table import Cell, Column, TableRow, numbers

RUN_COLUMNS = (
    Column("device"),
    Column("dtype"),
    Column("shape", "M×N×K; before it the batch, after it the transposed operands"),
    Column(
        "mode",
        "live: blocks until stopped; burst: cold L2, each iteration timed; sustained: one steady window in eight parts",
    ),
    numbers("TFLOP/s", "The median over the iterations; while it runs, that of the latest block"),
    numbers("p20", "TFLOP/s that 20 % of the iterations stayed below"),
    numbers("p80", "TFLOP/s that 80 % of the iterations stayed below"),
    numbers("% of datasheet"),
    numbers("noise %", "Interquartile range over median: quiet below 1 %, noisy above 5 %"),
    numbers("MHz", "SM clock, mean of the readings during the run"),
    numbers("W", "Power, mean of the readings during the run"),
    numbers("°C", "Temperature, the highest reading during the run"),
    numbers("iterations"),
    numbers("seconds", "Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)
MODEL_COLUMNS = (
    Column("model"),
    Column("device"),
    Column("step", "What one step does, how many samples it takes, and with what"),
    numbers("samples/s", "The median over the steps; while it runs, that of the latest block"),
    numbers("p20", "Samples per second that 20 % of the steps stayed below"),
    numbers("p80", "Samples per second that 80 % of the steps stayed below"),
    numbers("ms per step", "Median"),
    numbers("TFLOP/s", "Floating-point operations as torch.utils.flop_counter counts them, over the median step"),
    numbers("peak MiB", "The most that was allocated on the device during the steps"),
    numbers("steps"),
    numbers("seconds", "Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)

UNKNOWN_PEAK = "the memory of this device is not tracked"
UNCOUNTED = "torch.utils.flop_counter cannot count this model"


def run_row(run: Run, state: State, seen: Seen | None = None) -> TableRow:
    """One matmul run; a running one shows its latest block."""
    assert isinstance(run.spec, MatmulSpec)
    spec, result = run.spec, run.result if isinstance(run.result, MatmulResult) else None
    spread = result.tflops if result is not None else None
    measured = spread.median if spread else run.latest.tflops if run.latest and not run.ended else None
    share = None if measured is None or not run.datasheet_tflops else 100 * measured / run.datasheet_tflops
    noise = result.noise if result is not None and not result.simulated else None  # what is computed has none
    return TableRow(
        run.run,
        (
            device_cell(run, state),
            Cell(spec.dtype, "dim"),
            Cell(product_text(spec), "dim", product_tip(spec)),
            Cell(spec.mode, "dim"),
            Cell(number_text(measured), tip=_parts_tip(result)),
            Cell(number_text(spread.p20 if spread else None)),
            Cell(number_text(spread.p80 if spread else None)),
            Cell(f"{share:.0f}" if share is not None else MISSING, tip=_worth(run, result, state)),
            Cell(_noise_text(noise), "warning" if noise_verdict(noise) == "noisy" else ""),
            *_condition_cells(run, state),
            Cell(f"{result.iterations:,}" if result else MISSING),
            _seconds_cell(result.seconds if result else None),
            state_cell(run, *_remarks(run, result, seen)),
        ),
    )


def _worth(run: Run, result: MatmulResult | None, state: State) -> str:
    """The figures that the measured one is compared with."""
    sheet = (
        f"datasheet {number_text(run.datasheet_tflops)} TFLOP/s"
        if run.datasheet_tflops
        else "no datasheet figure is known"
    )
    device = state.devices.get(run.spec.device)
    if result is None or device is None:
        return sheet
    row = best(device.info.name, result.spec.dtype)
    return "\n".join(filter(None, (sheet, verdict(result.tflops.median, run.datasheet_tflops, row, result.spec.mode))))


def _noise_text(noise: float | None) -> str:
    words = noise_verdict(noise)
    return f"{words}  {100 * noise:.1f}" if noise is not None else MISSING


def _parts_tip(result: MatmulResult | None) -> str:
    if result is None or not result.parts_tflops:
        return ""
    return "Eight parts of the window: " + ", ".join(number_text(part) for part in result.parts_tflops) + " TFLOP/s"


def _remarks(run: Run, result: MatmulResult | None, seen: Seen | None) -> list[str]:
    held = sorted((seen or {}).get(run.run, ()))
    drift = result.drift if result is not None else None
    return [
        *([] if drift is None else [f"drift {100 * drift:+.1f} %".replace("-", "−")]),
        *([f"throttled by {', '.join(held)}"] if held else []),
    ]


def _condition_cells(run: Run, state: State) -> tuple[Cell, Cell, Cell]:
    """Clock, power and temperature of the run's span. A virtual GPU has none of them."""
    device = state.devices.get(run.spec.device)
    if device is None or run.started_unix_s is None or run.latest is None:
        return (Cell(MISSING),) * 3
    clock, power = (_mean(device, metric, run) for metric in ("sm_clock_mhz", "power_w"))
    hottest = device.history.span("temperature_c", run.started_unix_s, run.latest.time_unix_s).high
    why = "not modelled" if device.info.simulated else "the device does not tell"
    return tuple(  # type: ignore[return-value]
        Cell(MISSING if math.isnan(value) else f"{value:.0f}", tip=why if math.isnan(value) else "")
        for value in (clock, power, hottest)
    )


def _mean(device: Device, metric: str, run: Run) -> float:
    assert run.started_unix_s is not None
    assert run.latest is not None
    return device.history.span(metric, run.started_unix_s, run.latest.time_unix_s).mean


def _seconds_cell(seconds: float | None) -> Cell:
    return Cell(MISSING if seconds is None else f"{seconds:.2f}", tip=seconds_text(seconds))


def model_row(run: Run, state: State) -> TableRow:
    """One run of model steps; a running one shows its latest block."""
    assert isinstance(run.spec, ModelSpec)
    spec, result = run.spec, run.result if isinstance(run.result, ModelResult) else None
    rate: Spread | None = result.samples_per_s if result else None
    latest = run.latest if not run.ended else None
    tflops = (result.tflops.median if result.tflops else None) if result else latest.tflops if latest else None
    peak = result.peak_memory_bytes if result else None
    return TableRow(
        run.run,
        (
            Cell(spec.target),
            device_cell(run, state),
            Cell(step_text(spec), "dim"),
            Cell(number_text(rate.median if rate else latest.samples_per_s if latest else None)),
            Cell(number_text(rate.p20 if rate else None)),
            Cell(number_text(rate.p80 if rate else None)),
            Cell(number_text(1e3 * result.step_seconds.median) if result else MISSING),
            Cell(number_text(tflops), tip=UNCOUNTED if tflops is None and result is not None else ""),
            Cell(
                MISSING if peak is None else f"{peak / (1 << 20):,.1f}",
                tip=bytes_text(peak) if peak is not None else UNKNOWN_PEAK if result else "",
            ),
            Cell(f"{result.iterations:,}" if result else MISSING),
            _seconds_cell(result.seconds if result else None),
            state_cell(run),
        ),
    )
