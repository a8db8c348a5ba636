"""The benchmark tab: what to measure, start and stop, and the runs of this session. Main thread.

Bad input is answered here, in one line, before anything is sent; the engine checks again.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import TypeVar

from PySide6.QtCore import Qt, Signal
from PySide6.QtGui import QGuiApplication, QIcon
from PySide6.QtWidgets import (
    QHBoxLayout,
    QLineEdit,
    QMenu,
    QPushButton,
    QSizePolicy,
    QStackedLayout,
    QVBoxLayout,
    QWidget,
)

from devexplorer.core.benchmark.spec import check_fits, operand_bytes, parse_seconds, parse_shape
from devexplorer.core.dtypes import parse_dtype
from devexplorer.core.errors import BadInput
from devexplorer.core.formats import bytes_text, number_text
from devexplorer.core.records.benchmark import MatmulSpec
from devexplorer.core.state import Run, State
from devexplorer.gui.icons import icon
from devexplorer.gui.item_models.rows import RowsModel
from devexplorer.gui.item_models.runs import RUN_COLUMNS, run_row, runs_document
from devexplorer.gui.panels.device_choice import DeviceChoice
from devexplorer.gui.panels.panel import EDGE_PX, label
from devexplorer.gui.panels.rows_table import RowsTable
from devexplorer.gui.theme import Role, Theme

G = TypeVar("G")
T = TypeVar("T")

DTYPES = ("float32", "tf32", "float16", "bfloat16", "float64", "float8_e4m3fn", "int8")
"""Offered; others can be typed."""
COLUMN_PX = [150, 112, 150, 80, 70, 70, 104, 84, 74, 200]


class BenchmarkPanel(QWidget):
    """`start_requested` carries a `tuple[MatmulSpec, ...]`, one per device; `stop_requested` a run or None (all)."""

    start_requested = Signal(object)
    stop_requested = Signal(object)

    def __init__(self, state: State, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._state, self._theme = state, theme
        self._refused = False
        self.devices = DeviceChoice(state)
        self.dtype_edit = _edit("float32", "dtype", "dtype", 130)
        self._dtypes = QMenu(self.dtype_edit)
        for name in DTYPES:
            self._dtypes.addAction(name, functools.partial(self.dtype_edit.setText, name))
        self._show_dtypes = self.dtype_edit.addAction(QIcon(), QLineEdit.ActionPosition.TrailingPosition)
        self._show_dtypes.setText("Choose a dtype")
        self.size_edit = _edit("1024", "N or M×N×K", "Size", 120)
        self.seconds_edit = _edit("10", "until stopped", "Seconds", 88)
        self.start_button = QPushButton("Start")
        self.start_button.setProperty("look", "primary")
        self.stop_button = QPushButton("Stop")
        self.hint = label(role=Role.LABEL, words="dim")
        self.hint.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Preferred)  # never widens the window
        self.hint.setAccessibleName("What would be measured")
        self.message = label(words="error", wrap=True)
        self.message.setAccessibleName("What is wrong")
        self.message.setContentsMargins(EDGE_PX, 0, EDGE_PX, 0)
        self.message.hide()
        self.copy_button = QPushButton("Copy as JSON")
        self.copy_button.setProperty("look", "quiet")
        self.model = RowsModel(RUN_COLUMNS, self)
        self.table = RowsTable(self.model, "Benchmark runs of this session", COLUMN_PX)
        self._lay_out()
        self._connect()
        self.set_theme(theme)
        self._check()

    def _lay_out(self) -> None:
        form = QHBoxLayout()
        form.setContentsMargins(EDGE_PX, 8, EDGE_PX, 4)
        form.setSpacing(8)
        fields = {
            "measure": self.devices,
            "dtype": self.dtype_edit,
            "size": self.size_edit,
            "seconds": self.seconds_edit,
        }
        for words, field in fields.items():
            name = label(words, Role.LABEL, "dim")
            name.setBuddy(field)
            form.addWidget(name)
            form.addWidget(field)
        form.addWidget(self.start_button)
        form.addWidget(self.stop_button)
        form.addWidget(self.hint, 1)
        form.addWidget(self.copy_button)
        self.nothing = label("No benchmark has run in this session. Start measures what stands above.", words="dim")
        self.nothing.setAlignment(Qt.AlignmentFlag.AlignCenter)
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 4)
        layout.setSpacing(4)
        layout.addLayout(form)
        layout.addWidget(self.message)
        self._stack = QStackedLayout()
        layout.addLayout(self._stack, 1)  # before its widgets: one that has no parent yet would be shown as a window
        self._stack.addWidget(self.table)
        self._stack.addWidget(self.nothing)

    def _connect(self) -> None:
        self.devices.changed.connect(self._check)
        for edit in (self.dtype_edit, self.size_edit, self.seconds_edit):
            edit.textChanged.connect(self._check)
            edit.returnPressed.connect(self.start)
        self._show_dtypes.triggered.connect(self._open_dtypes)
        self.start_button.clicked.connect(self.start)
        self.stop_button.clicked.connect(self.stop)
        self.copy_button.clicked.connect(self.copy_json)
        self.table.selectionModel().selectionChanged.connect(self._show_buttons)

    # What the window calls

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._theme = theme
        self._show_dtypes.setIcon(icon("chevron", theme.dim))
        self.refresh()

    def refresh(self) -> None:
        """Show devices and runs as they are now."""
        self.devices.refresh()
        runs = sorted(self._state.runs.values(), key=lambda run: -run.run)
        self.model.set_rows([run_row(run, self._state, self._theme) for run in runs])
        self._stack.setCurrentWidget(self.table if runs else self.nothing)
        if self._refused:  # a run that ended, or memory that was freed, may have put it right
            self._check()
        self._show_buttons()

    def specs(self) -> tuple[MatmulSpec, ...]:
        """What the form asks for, one specification per device. Raises one `BadInput` with everything that is wrong."""
        findings: list[str] = []

        def checked(parse: Callable[[G], T], given: G) -> T | None:
            try:
                return parse(given)
            except BadInput as error:
                findings.extend(error.findings)
                return None

        if not self.devices.chosen:
            findings.append("no device is chosen; choose at least one")
        dtype = checked(lambda text: parse_dtype(text, tf32=True), self.dtype_edit.text())
        shape = checked(parse_shape, self.size_edit.text())
        limit = self.seconds_edit.text().strip()
        seconds = checked(parse_seconds, limit) if limit else None
        if findings or dtype is None or shape is None:
            raise BadInput(*findings)
        m, n, k = shape
        specs = tuple(MatmulSpec(device=d, dtype=dtype, m=m, n=n, k=k, seconds=seconds) for d in self.devices.chosen)
        for spec in specs:
            parts = self._state.devices[spec.device].parts
            # The engine's own cache is given to new tensors, so it counts as free.
            free = None if parts.free is None else parts.free + (parts.cached or 0)
            checked(functools.partial(check_fits, spec), free)
        if findings:
            raise BadInput(*findings)
        return specs

    def start(self) -> None:
        """Ask for what the form says, or say what is wrong with it."""
        try:
            specs = self.specs()
        except BadInput as error:
            self._say(str(error), refused=True)
            return
        busy = [spec.device for spec in specs if any(run.spec.device == spec.device for run in self._state.active_runs)]
        if busy:
            # Only asked here: while a run goes on there is nothing wrong with what the form says.
            words = f"a benchmark is running on {', '.join(busy)} already; stop it first, or choose another device"
            self._say(words, refused=True)
            return
        self.start_requested.emit(specs)

    def stop(self) -> None:
        """Ask to stop the selected run, or all of them when none that runs is selected."""
        run = self._selected_active
        self.stop_requested.emit(run.run if run is not None else None)

    def copy_json(self) -> None:
        """Put the finished runs of this session on the clipboard, as the command line prints them."""
        results = [run.result for run in self._state.runs.values() if run.result is not None]
        QGuiApplication.clipboard().setText(runs_document(results))

    # Inside

    def _check(self) -> None:
        if not self._state.usable_devices:  # the engine has not named them yet, which is nobody's mistake
            self._say("", refused=False)
            return
        try:
            specs = self.specs()
        except BadInput as error:
            self._say(str(error), refused=True)
            return
        spec = specs[0]
        needed = sum(operand_bytes(spec.m, spec.n, spec.k, spec.dtype))
        each = " on each device" if len(specs) > 1 else ""
        self._say(f"{bytes_text(needed)}{each}, {number_text(spec.flop / 1e9)} GFLOP per product", refused=False)

    def _say(self, text: str, *, refused: bool) -> None:
        self._refused = refused
        self.message.setVisible(refused)
        self.message.setText(f"✕ {text}" if refused else "")  # never colour alone
        self.hint.setText("" if refused else text)

    def _open_dtypes(self) -> None:
        self._dtypes.popup(self.dtype_edit.mapToGlobal(self.dtype_edit.rect().bottomLeft()))

    @property
    def _selected_active(self) -> Run | None:
        key = self.table.selected_key
        return next((run for run in self._state.active_runs if run.run == key), None)

    def _show_buttons(self) -> None:
        active, chosen = self._state.active_runs, self._selected_active
        self.stop_button.setEnabled(bool(active))
        self.stop_button.setText(f"Stop {chosen.spec.device}" if chosen else "Stop all" if len(active) > 1 else "Stop")
        self.stop_button.setToolTip("" if active else "No benchmark is running.")
        finished = any(run.result is not None for run in self._state.runs.values())
        self.copy_button.setEnabled(finished)
        self.copy_button.setToolTip("" if finished else "No run has ended yet.")


def _edit(text: str, placeholder: str, name: str, width_px: int) -> QLineEdit:
    edit = QLineEdit(text)
    edit.setPlaceholderText(placeholder)
    edit.setAccessibleName(name)
    edit.setFixedWidth(width_px)
    return edit
