"""Benchmark runs in words and as rows of a table, and as the JSON document of the command line. No widgets; main thread."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from devexplorer.core.benchmark.documents import benchmark_document
from devexplorer.core.benchmark.runner import devices_of
from devexplorer.core.benchmark.statistics import noise_of_spread, noise_words
from devexplorer.core.formats import MISSING, bytes_text, number_text, seconds_text, shape_text
from devexplorer.core.records.benchmark import (
    BandwidthSpec,
    BenchResult,
    BenchSpec,
    MatmulResult,
    MatmulSpec,
    ModelResult,
    ModelSpec,
    ScalingSpec,
    Spread,
    SweepCell,
    SweepSpec,
)
from devexplorer.core.state import Device, Run, State
from devexplorer.core.telemetry.device_facts import held_down
from devexplorer.gui.item_models.rows import Cell, Column, TableRow
from devexplorer.gui.theme import Theme, device_colour

RUN_COLUMNS = (
    Column("device"),
    Column("dtype"),
    Column("shape", tip="M×N×K; in front of it how many at once, behind it what is read transposed"),
    Column("mode", tip="live: blocks until stopped; burst: cold L2, each iteration timed; sustained: one steady window in eight parts"),
    Column("TFLOP/s", is_number=True, tip="The median over the iterations; while it runs, that of the latest block"),
    Column("p20", is_number=True, tip="TFLOP/s that 20 % of the iterations stayed below"),
    Column("p80", is_number=True, tip="TFLOP/s that 80 % of the iterations stayed below"),
    Column("% of datasheet", is_number=True),
    Column("noise %", is_number=True, tip="Interquartile range over median: quiet below 1 %, noisy above 5 %"),
    Column("MHz", is_number=True, tip="SM clock, mean of the readings during the run"),
    Column("W", is_number=True, tip="Power, mean of the readings during the run"),
    Column("°C", is_number=True, tip="Temperature, the highest reading during the run"),
    Column("iterations", is_number=True),
    Column("seconds", is_number=True, tip="Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)
MODEL_COLUMNS = (
    Column("model"),
    Column("device"),
    Column("step", tip="What one step does, how many samples it takes, and with what"),
    Column("samples/s", is_number=True, tip="The median over the steps; while it runs, that of the latest block"),
    Column("p20", is_number=True, tip="Samples per second that 20 % of the steps stayed below"),
    Column("p80", is_number=True, tip="Samples per second that 80 % of the steps stayed below"),
    Column("ms per step", is_number=True, tip="Median"),
    Column("TFLOP/s", is_number=True, tip="Floating-point operations as torch.utils.flop_counter counts them, over the median step"),
    Column("peak MiB", is_number=True, tip="The most that was allocated on the device during the steps"),
    Column("steps", is_number=True),
    Column("seconds", is_number=True, tip="Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)

Seen = dict[int, set[str]]
"""Run -> what was seen to hold the clocks down while it ran."""


# --- any run --------------------------------------------------------------------------------------------------------------


def kind_of(spec: BenchSpec) -> str:
    """`matmul`, `sweep`, `bandwidth`, `scaling` or `model`."""
    return str(type(spec).__struct_config__.tag)


def where(spec: BenchSpec) -> str:
    """The devices of a run, in a few words."""
    devices = devices_of(spec)
    return ", ".join(devices) if len(devices) <= 2 else f"{len(devices)} devices"


def time_left(run: Run, now_unix_s: float) -> float | None:
    """Seconds until the run ends, where that can be known: by what is done of it, else by the time it was given."""
    if run.ended or run.started_unix_s is None:
        return None
    elapsed, done = now_unix_s - run.started_unix_s, run.latest.done if run.latest is not None else None
    if done is not None:
        begun = done_before(run.spec)
        if done > begun + 0.02 and elapsed > 0.5:
            return max(elapsed * (1 - done) / (done - begun), 0.0)
        return None
    match run.spec:
        case MatmulSpec(seconds=float() | int() as seconds) | ModelSpec(seconds=seconds):
            return max(run.started_unix_s + seconds - now_unix_s, 0.0)
    return None


def done_share(run: Run, now_unix_s: float) -> float | None:
    """0 to 1: how much of the run is over; None where nobody can know."""
    if run.latest is not None and run.latest.done is not None:
        return min(max(run.latest.done, 0.0), 1.0)
    left = time_left(run, now_unix_s)
    if left is None or run.started_unix_s is None:
        return None
    elapsed = now_unix_s - run.started_unix_s
    return elapsed / (elapsed + left) if elapsed + left > 0 else 0.0


def done_before(spec: BenchSpec) -> float:
    """0 to 1: what an earlier run had done of a sweep that is resumed."""
    return len(spec.done) / len(spec.shapes) if isinstance(spec, SweepSpec) and spec.shapes and spec.search_seconds is None else 0.0


def left_words(run: Run, now_unix_s: float) -> str:
    """`8 s left`, `warming up`, or nothing."""
    if run.started_unix_s is None:
        return "warming up"
    left = time_left(run, now_unix_s)
    if left is None:
        return ""
    return f"{left:.0f} s left" if left < 100 else f"{math.ceil(left / 60)} min left"


def cells_of(run: Run) -> tuple[SweepCell, ...]:
    """What a sweep has measured, an earlier run's part included."""
    if run.result is not None and run.result.spec is not None and hasattr(run.result, "cells"):
        return tuple(run.result.cells)
    done = run.spec.done if isinstance(run.spec, SweepSpec) else ()
    return (*done, *run.cells)


def state_cell(run: Run, theme: Theme, *more: str) -> Cell:
    """How a run stands; `more` are things to know about a result."""
    if not run.ended:
        return Cell("running" if run.started_unix_s is not None else "warming up", theme.text)
    if run.result is None:
        words = f"✕ failed: {run.reason or 'nothing was measured'}"
        return Cell(words, theme.error, words)
    if run.result.verified is False:
        words = "✕ values are wrong: they do not agree with a product in higher precision"
        return Cell(words, theme.error, words)
    if run.result.failure:
        words = f"▲ ended early: {run.result.failure}"
        return Cell(words, theme.warning, f"{words}\nWhat was measured until then is kept.")
    words = ", ".join(["stopped" if run.result.stopped else "done", *more])
    tip = "It was stopped before its time; what was measured until then is kept." if run.result.stopped else ""
    return Cell(words, theme.dim, "\n".join(filter(None, (*more, tip))))


def device_cell(run: Run, state: State, theme: Theme) -> Cell:
    """The device of a run in its colour, and that it is simulated."""
    device = state.devices.get(run.spec.device)
    return Cell(
        f"{where(run.spec)}  simulated" if is_simulated(run, state) else where(run.spec),
        theme.dim if device is None else device_colour(device.colour, theme),
    )


def is_simulated(run: Run, state: State) -> bool:
    """Whether any figure of the run comes from a simulated clock."""
    if run.simulated or (run.result is not None and run.result.simulated):
        return True
    return any(name in state.devices and state.devices[name].info.simulated for name in devices_of(run.spec))


def see_throttling(seen: Seen, state: State) -> None:
    """Remember what holds the clocks of the devices down that are measured now: a sample only says what it is at one moment."""
    for run in state.active_runs:
        for name in devices_of(run.spec):
            device = state.devices.get(name)
            if device is not None and device.sample is not None and run.started_unix_s is not None:
                seen.setdefault(run.run, set()).update(reason.partition(" (")[0] for reason in held_down(device.sample.throttle_reasons))


def runs_document(results: Iterable[BenchResult]) -> str:
    """Finished runs of one kind as `devexplorer bench KIND --json` prints them."""
    import json  # when it is copied, not when the window starts

    found: Sequence[tuple[BenchResult, None]] = [(result, None) for result in results]
    return json.dumps({"schema": 1, **benchmark_document(found)}, indent=2)


# --- tables ---------------------------------------------------------------------------------------------------------------


def run_row(run: Run, state: State, theme: Theme, seen: Seen | None = None) -> TableRow:
    """One matmul run; a running one shows its latest block."""
    assert isinstance(run.spec, MatmulSpec)
    spec, result = run.spec, run.result if isinstance(run.result, MatmulResult) else None
    spread = result.tflops if result is not None else None
    measured = spread.median if spread else run.latest.tflops if run.latest and not run.ended else None
    share = None if measured is None or not run.datasheet_tflops else 100 * measured / run.datasheet_tflops
    sheet = f"datasheet {number_text(run.datasheet_tflops)} TFLOP/s" if run.datasheet_tflops else "no datasheet figure is known"
    noise = (result.noise if result.noise is not None else noise_of_spread(result.tflops)) if result is not None else None
    return TableRow(
        run.run,
        (
            device_cell(run, state, theme),
            Cell(spec.dtype, theme.dim),
            Cell(product_text(spec), theme.dim, product_tip(spec)),
            Cell(spec.mode, theme.dim),
            Cell(number_text(measured), tip=_parts_tip(result)),
            Cell(number_text(spread.p20 if spread else None)),
            Cell(number_text(spread.p80 if spread else None)),
            Cell(f"{share:.0f}" if share is not None else MISSING, tip=sheet),
            Cell(_noise_text(noise), theme.warning if noise_words(noise) == "noisy" else ""),
            *_condition_cells(run, state),
            Cell(f"{result.iterations:,}" if result else MISSING),
            *_seconds_cell(result.seconds if result else None),
            state_cell(run, theme, *_remarks(run, result, seen)),
        ),
    )


def product_text(spec: MatmulSpec) -> str:
    """`8 × 512×512×64  Bᵀ  flushed`: what is multiplied."""
    batch = f"{spec.batch} × " if spec.batch > 1 else ""
    marks = [word for word, on in (("Aᵀ", spec.transpose_a), ("Bᵀ", spec.transpose_b), ("flushed", spec.flush_cache)) if on]
    return "  ".join([f"{batch}{shape_text((spec.m, spec.n, spec.k))}", *marks])


def product_tip(spec: MatmulSpec) -> str:
    """The same in words."""
    lines = [f"{spec.batch} products at once" if spec.batch > 1 else ""]
    lines += ["A is stored as K×M and read transposed" if spec.transpose_a else ""]
    lines += ["B is stored as N×K and read transposed" if spec.transpose_b else ""]
    lines += ["the L2 cache is overwritten between iterations" if spec.flush_cache else ""]
    return "\n".join(filter(None, lines))


def _noise_text(noise: float | None) -> str:
    words = noise_words(noise)
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
        *([f"clocks held down by {', '.join(held)}"] if held else []),
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
        Cell(MISSING if math.isnan(value) else f"{value:.0f}", tip=why if math.isnan(value) else "") for value in (clock, power, hottest)
    )


def _mean(device: Device, metric: str, run: Run) -> float:
    assert run.started_unix_s is not None
    assert run.latest is not None
    return device.history.span(metric, run.started_unix_s, run.latest.time_unix_s).mean


def _seconds_cell(seconds: float | None) -> tuple[Cell]:
    return (Cell(MISSING if seconds is None else f"{seconds:.2f}", tip=seconds_text(seconds)),)


def model_row(run: Run, state: State, theme: Theme) -> TableRow:
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
            device_cell(run, state, theme),
            Cell(step_text(spec), theme.dim),
            Cell(number_text(rate.median if rate else latest.samples_per_s if latest else None)),
            Cell(number_text(rate.p20 if rate else None)),
            Cell(number_text(rate.p80 if rate else None)),
            Cell(number_text(1e3 * result.step_seconds.median) if result else MISSING),
            Cell(number_text(tflops), tip="" if tflops is not None or result is None else "torch.utils.flop_counter cannot count this model"),
            Cell(MISSING if peak is None else f"{peak / (1 << 20):,.1f}", tip="" if peak is None else bytes_text(peak)),
            Cell(f"{result.iterations:,}" if result else MISSING),
            *_seconds_cell(result.seconds if result else None),
            state_cell(run, theme),
        ),
    )


def step_text(spec: ModelSpec) -> str:
    """`train with adamw, batch 8, autocast bfloat16, compiled`."""
    words = [f"train with {spec.optimizer}" if spec.train else "forward", f"batch {spec.batch}"]
    words += [f"autocast {spec.autocast}"] if spec.autocast else []
    return ", ".join([*words, *(["compiled"] if spec.compiled else [])])


def title(run: Run) -> str:
    """A run in a few words, for a list of runs of its kind."""
    spec = run.spec
    match spec:
        case SweepSpec():
            what = "search" if spec.search_seconds is not None else f"{len(spec.shapes)} shapes"
            return f"{spec.device} {spec.dtype}, {what}"
        case BandwidthSpec():
            return f"{where(spec)}, {len(spec.sizes)} sizes"
        case ScalingSpec():
            return f"{where(spec)}, {spec.size}³ × {spec.iterations:,} {spec.dtype}"
    return f"{kind_of(spec)} on {where(spec)}"
