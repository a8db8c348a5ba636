"""The Benchmark tab: a page for each kind of benchmark. Main thread.

Bad input is answered here, in one line, before anything is sent; the engine checks again.
"""

from __future__ import annotations

import functools
import math
import time
from collections.abc import Callable, Sequence
from pkgutil import resolve_name
from typing import Any

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QShowEvent

from devexplorer.core.base import (
    MISSING,
    Clock,
    bytes_text,
    flops_cell_text,
    flops_text,
    joined,
    number_text,
    rate_texts,
)
from devexplorer.core.benchmark.kind import kind_name
from devexplorer.core.benchmark.matmul_kind import product_text, product_tip
from devexplorer.core.benchmark.published import best, verdict
from devexplorer.core.benchmark.spec import check_fits, check_matmul, operand_bytes, parse_shape
from devexplorer.core.benchmark.statistics import noise_verdict
from devexplorer.core.feature import offered_kinds
from devexplorer.core.records import MatmulResult, MatmulSpec
from devexplorer.core.session import Device, Run, State
from devexplorer.core.session.running import Seen, see_throttling
from devexplorer.gui.actions import WindowContext
from devexplorer.gui.benchmark.base_page import (
    BenchPage,
    DtypeEdit,
    TablePage,
    device_cell,
    seconds_cell,
    state_cell,
)
from devexplorer.gui.forms.page import FormPages
from devexplorer.gui.widgets import Cell, Choice, Column, TableRow, line_edit, menu_button, numbers


class BenchmarkPanel(FormPages[BenchPage[Any]]):
    """`start_requested` carries a `tuple[BenchSpec, ...]`; `stop_requested` a run or None (all)."""

    start_requested = Signal(object)
    stop_requested = Signal(object)

    def __init__(self, state: State, clock: Clock = time.time) -> None:
        self._state, self._clock = state, clock
        self._age: Callable[[], str] = str
        self._device: str | None = None
        self._context: WindowContext | None = None
        super().__init__(
            {name: (kind.brief or name.capitalize(), kind.meaning) for name, kind in offered_kinds().items()},
            self._new_page,
        )
        self.refresh()

    def _new_page(self, kind: str) -> BenchPage[Any]:
        page: BenchPage[Any] = resolve_name(offered_kinds()[kind].page)(self._state, self._clock)
        page.start_requested.connect(self.start_requested)
        page.stop_requested.connect(self.stop_requested)
        if self._context is not None:
            page.follow(self._context)
        page.devices.prefer(self._device)
        page.set_moment(self._clock, self._age)
        return page

    @property
    def matmul(self) -> MatmulPage:
        """Products of one shape."""
        page = self.pages[MatmulPage.kind]
        assert isinstance(page, MatmulPage)
        return page

    def set_moment(self, clock: Clock, age: Callable[[], str]) -> None:
        """`clock` gives the moment of what is shown; `age` how old that is, where it is not of now."""
        self._clock, self._age = clock, age
        for page in self.pages.values():
            page.set_moment(clock, age)

    def set_device(self, device: str | None) -> None:
        """The card of this device is selected: it is what is measured until the user picks others."""
        self._device = device
        for page in self.pages.values():
            page.devices.prefer(device)

    def follow(self, context: WindowContext) -> None:
        """It is in this window from now on."""
        self._context = context
        for page in self.pages.values():
            page.follow(context)

    def refresh(self) -> None:
        """Show devices and runs as they are now. A page that is not shown is brought up to date when it is."""
        self.matmul.watch()
        self.page.refresh()
        self.rail.mark({kind_name(run.spec) for run in self._state.active_runs})  # the kinds that are measured now

    def prepare(self) -> None:
        """Enter starts what the form says."""
        self.page.start_button.setFocus(Qt.FocusReason.OtherFocusReason)

    def showEvent(self, event: QShowEvent) -> None:
        super().showEvent(event)
        self.refresh()


# The Matmul page of the Benchmark tab: products of one shape on one or several devices, and a table of the runs.

RUN_COLUMNS = (
    Column("device"),
    Column("dtype"),
    Column("shape", "M×N×K; before it the batch, after it the transposed operands"),
    Column(
        "mode",
        "live: blocks until stopped; burst: cold L2, each iteration timed; sustained: one steady window in eight parts",
    ),
    numbers("FLOP/s", "The median over the iterations; while it runs, that of the latest block"),
    numbers("p20", "FLOP/s that 20 % of the iterations stayed below"),
    numbers("p80", "FLOP/s that 80 % of the iterations stayed below"),
    numbers("% of datasheet"),
    numbers("noise %", "Interquartile range over median: quiet below 1 %, noisy above 5 %"),
    numbers("MHz", "SM clock, mean of the readings during the run"),
    numbers("W", "Power, mean of the readings during the run"),
    numbers("°C", "Temperature, the highest reading during the run"),
    numbers("iterations"),
    numbers("seconds", "Measured time on the device's own clock, warm-up left out"),
    Column("state"),
)
MODES = (
    ("live", "live", "Blocks of 50 ms until it is stopped or its seconds are over; the curve follows each of them."),
    ("burst", "burst", "Cold L2 cache, iterations timed one by one and queued: what one product takes at its best."),
    (
        "sustained",
        "sustained",
        "One steady window in eight parts, with its drift: what the device holds when it is warm.",
    ),
)
SECONDS = {"live": "10", "burst": "2", "sustained": "2"}
"""The field's content until the user types."""
OPTIONS = (
    ("transpose_a", "A transposed", "Aᵀ", "A is stored as K×M and read transposed"),
    ("transpose_b", "B transposed", "Bᵀ", "B is stored as N×K and read transposed, as the weight of a linear layer is"),
    ("flush_cache", "flush L2 between iterations", "flush", "Overwrite the device's L2 cache before each iteration"),
)
COLUMN_PX = [140, 84, 134, 76, 72, 68, 68, 92, 92, 56, 44, 40, 70, 62, 100]
"""Together no more than Measure has in a window of 1366 pixels."""
P20, P80, NOISE, MHZ, WATTS, CELSIUS, ITERATIONS, TAKEN, STATE = 5, 6, 8, 9, 10, 11, 12, 13, 14


class MatmulPage(TablePage[MatmulSpec]):
    """One specification per chosen device."""

    kind = "matmul"
    nothing = "No matrix product has been measured in this session."
    table_name, columns, widths_px, stretched = "Benchmark runs of this session", RUN_COLUMNS, COLUMN_PX, STATE
    gives_up = (ITERATIONS, TAKEN, MHZ, WATTS, CELSIUS, P20, P80, NOISE)

    def build(self) -> None:
        self.dtype_edit = DtypeEdit()
        self.size_edit = line_edit("1024", "N or M×N×K", "Size", 120)
        self.batch_edit = line_edit("1", "1", "Products at once", 44, tip="How many products at once (a batch)")
        self.mode = Choice("mode", MODES)
        self.seconds_edit = line_edit(SECONDS["live"], "until stopped", "Seconds", 52)
        self.options = menu_button()
        for key, words, _, meaning in OPTIONS:
            action = self.options.menu().addAction(words)
            action.setData(key)
            action.setCheckable(True)
            action.setToolTip(meaning)
            action.toggled.connect(self._show_options)
        self.add_fields(
            ("", self.devices),
            ("dtype", self.dtype_edit),
            ("size", self.size_edit),
            ("batch", self.batch_edit),
            ("mode", self.mode),
            ("seconds", self.seconds_edit),
            ("", self.options),
        )
        self.add_table()
        self._seen: Seen = {}
        self._mode_before = "live"
        self.mode.currentIndexChanged.connect(self._new_mode)
        self._show_options()

    def watch(self) -> None:
        """Remember what holds clocks down; called also while the page is not shown."""
        see_throttling(self._seen, self._state)

    # the form

    def specs(self) -> tuple[MatmulSpec, ...]:
        """One per device. Raises one `BadInput` with everything that is wrong."""
        findings = self.checked()
        dtype = findings.checked(self.dtype_edit.parse)
        shape = findings.checked(lambda: parse_shape(self.size_edit.text()))
        batch = findings.count(self.batch_edit.text(), "batch")
        mode, limit = str(self.mode.value), self.seconds_edit.text().strip()
        seconds = findings.seconds(limit) if limit else None
        if not limit and mode != "live":
            findings.add(f"a {mode} run needs its seconds; write for example {SECONDS[mode]}")
        findings.demand_none()
        assert dtype is not None
        assert shape is not None
        m, n, k = shape
        a, b, flush = (action.isChecked() for action in self.options.menu().actions())
        specs = tuple(
            MatmulSpec(
                device=device, dtype=dtype, m=m, n=n, k=k, batch=batch or 1, transpose_a=a, transpose_b=b,
                flush_cache=flush, mode=mode,
                seconds=seconds,
            )
            for device in self.devices.chosen
        )  # fmt: skip
        for spec in specs:
            device = self._state.devices[spec.device]
            if findings.passes(functools.partial(check_matmul, spec, device.info)):
                findings.passes(functools.partial(check_fits, spec, device.free_bytes, device.info.kind))
        findings.demand_none()
        return specs

    def describe(self, specs: Sequence[MatmulSpec]) -> str:
        """The memory that the operands take, and the operations of one product."""
        spec = specs[0]
        needed = spec.batch * sum(operand_bytes(*spec.shape, spec.dtype))
        each = " on each device" if len(specs) > 1 else ""
        what = "product" if spec.batch == 1 else f"{spec.batch} products"
        words = f"{bytes_text(needed)}{each}, {number_text(spec.flop / 1e9)} GFLOP per {what}"
        return f"{words}; Parallel compares at once with in turn" if len(specs) > 1 else words

    def _new_mode(self) -> None:
        mode = str(self.mode.value)
        if self.seconds_edit.text().strip() in (SECONDS[self._mode_before], ""):
            self.seconds_edit.setText(SECONDS[mode])
        self._mode_before = mode
        self.check()

    def _show_options(self) -> None:
        chosen = [
            option for action, option in zip(self.options.menu().actions(), OPTIONS, strict=True) if action.isChecked()
        ]
        names = ", ".join(words for _, words, _, _ in chosen)
        self.options.setText(f"{' '.join(short for _, _, short, _ in chosen) or 'options'} ▾")
        self.options.setAccessibleName(f"Options: {names or 'none'}")
        self.options.setToolTip(names or "Operands that are read transposed, a cache that is flushed")
        self.check()

    # the runs

    def show_runs(self, runs: list[Run]) -> None:
        """A row for each."""
        self.watch()
        super().show_runs(runs)

    def row(self, run: Run) -> TableRow:
        """A running one shows its latest block."""
        assert isinstance(run.spec, MatmulSpec)
        spec, result = run.spec, run.result if isinstance(run.result, MatmulResult) else None
        spread = result.tflops if result is not None else None
        measured: float | None = None
        if spread:
            measured = spread.median
        elif run.latest and not run.ended:
            measured = run.latest.tflops
        share = None if measured is None or not run.datasheet_tflops else 100 * measured / run.datasheet_tflops
        noise = result.noise if result is not None and not result.simulated else None  # what is computed has none
        return TableRow(
            run.run,
            (
                device_cell(run, self._state),
                Cell(spec.dtype, "dim"),
                Cell(product_text(spec), "dim", product_tip(spec)),
                Cell(spec.mode, "dim"),
                Cell(flops_cell_text(measured), tip=_parts_tip(result)),
                Cell(flops_cell_text(spread.p20 if spread else None)),
                Cell(flops_cell_text(spread.p80 if spread else None)),
                Cell(f"{share:.0f}" if share is not None else MISSING, tip=_worth(run, result, self._state)),
                Cell(_noise_text(noise), "warning" if noise_verdict(noise) == "noisy" else ""),
                *_condition_cells(run, self._state),
                Cell(f"{result.iterations:,}" if result else MISSING),
                seconds_cell(result.seconds if result else None),
                state_cell(run, *_remarks(run, result, self._seen)),
            ),
        )


def _worth(run: Run, result: MatmulResult | None, state: State) -> str:
    """The figures that the measured one is compared with."""
    sheet = f"datasheet {flops_text(run.datasheet_tflops)}" if run.datasheet_tflops else "no datasheet figure is known"
    device = state.devices.get(run.spec.device)
    if result is None or device is None:
        return sheet
    row = best(device.info.name, result.spec.dtype)
    return joined("\n", sheet, verdict(result.tflops.median, run.datasheet_tflops, row, result.spec.mode))


def _noise_text(noise: float | None) -> str:
    words = noise_verdict(noise)
    return f"{words}  {100 * noise:.1f}" if noise is not None else MISSING


def _parts_tip(result: MatmulResult | None) -> str:
    if result is None or not result.parts_tflops:
        return ""
    *parts, unit = rate_texts("TFLOP/s", *result.parts_tflops)
    return f"Eight parts of the window: {', '.join(parts)} {unit}"


def _remarks(run: Run, result: MatmulResult | None, seen: Seen) -> list[str]:
    held = sorted(seen.get(run.run, ()))
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
        Cell(MISSING if math.isnan(value) else f"{value:,.0f}", tip=why if math.isnan(value) else "")
        for value in (clock, power, hottest)
    )


def _mean(device: Device, metric: str, run: Run) -> float:
    assert run.started_unix_s is not None
    assert run.latest is not None
    return device.history.span(metric, run.started_unix_s, run.latest.time_unix_s).mean
