"""The Matmul page of the Benchmark tab: products of one shape on one or several devices, and a table of the runs. Main
thread."""

from __future__ import annotations

import functools
from collections.abc import Sequence

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QMenu, QToolButton

from devexplorer.core.base import bytes_text, number_text, shape_text
from devexplorer.core.benchmark.spec import (
    check_fits,
    check_matmul,
    operand_bytes,
    parse_shape,
)
from devexplorer.core.records import MatmulSpec
from devexplorer.core.session import Run
from devexplorer.gui.benchmark.base_page import TablePage
from devexplorer.gui.benchmark.run_rows import RUN_COLUMNS, run_row
from devexplorer.gui.benchmark.runs import Seen, see_throttling
from devexplorer.gui.widgets import line_edit
from devexplorer.gui.widgets.form_fields import Choice, DtypeEdit, free_bytes
from devexplorer.gui.widgets.table import TableRow

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
COLUMN_PX = [150, 92, 136, 72, 64, 54, 54, 96, 78, 50, 44, 40, 72, 66, 100]
"""Together no more than Measure has in a window of 1366 pixels."""
P20, P80, MHZ, WATTS, CELSIUS, ITERATIONS, TAKEN, STATE = 5, 6, 9, 10, 11, 12, 13, 14


class MatmulPage(TablePage[MatmulSpec]):
    """One specification per chosen device."""

    kind = "matmul"
    nothing = "No matrix product was measured in this session."
    table_name, columns, widths_px, stretched = "Benchmark runs of this session", RUN_COLUMNS, COLUMN_PX, STATE
    gives_up = (ITERATIONS, TAKEN, MHZ, WATTS, CELSIUS, P20, P80)

    def build(self) -> None:
        self.dtype_edit = DtypeEdit()
        self.size_edit = line_edit("1024", "N or M×N×K", "Size", 120)
        self.batch_edit = line_edit("1", "1", "Products at once", 44, tip="How many products at once (a batch)")
        self.mode = Choice("mode", MODES)
        self.seconds_edit = line_edit(SECONDS["live"], "until stopped", "Seconds", 52)
        self.options = QToolButton(popupMode=QToolButton.ToolButtonPopupMode.InstantPopup)
        self.options.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        menu = QMenu(self.options, toolTipsVisible=True)
        for key, words, _, meaning in OPTIONS:
            action = menu.addAction(words)
            action.setData(key)
            action.setCheckable(True)
            action.setToolTip(meaning)
            action.toggled.connect(self._show_options)
        self.options.setMenu(menu)
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
        """Remember what holds clocks down; called also while the page is not on show."""
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
                findings.passes(functools.partial(check_fits, spec, free_bytes(device), device.info.kind))
        findings.demand_none()
        return specs

    def describe(self, specs: Sequence[MatmulSpec]) -> str:
        """The memory that the operands take, and the operations of one product."""
        spec = specs[0]
        needed = spec.batch * sum(operand_bytes(*spec.shape, spec.dtype))
        each = " on each device" if len(specs) > 1 else ""
        what = "product" if spec.batch == 1 else f"{spec.batch} products"
        return f"{bytes_text(needed)}{each}, {number_text(spec.flop / 1e9)} GFLOP per {what}"

    def offer(self, specs: Sequence[MatmulSpec]) -> str:
        """`Measure 1024×1024×1024 on vgpu:0`."""
        spec = specs[0]
        return f"Measure {shape_text(spec.shape)} on {', '.join(spec.device for spec in specs)}"

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
        """A run in the table."""
        return run_row(run, self._state, self._seen)
