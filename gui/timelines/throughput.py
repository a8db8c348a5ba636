"""The throughput plot: TFLOP/s of running benchmarks over time, against the datasheet. Main thread only."""

from __future__ import annotations

import math
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from PySide6.QtCore import Signal

from devexplorer.core.base import number_text
from devexplorer.core.records import MatmulSpec
from devexplorer.core.session import Device, Run, State
from devexplorer.core.telemetry.history import THROUGHPUT, History
from devexplorer.gui.plots.device_plot import DevicePlot
from devexplorer.gui.plots.legend import Entry
from devexplorer.gui.plots.markers import MARK
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.widgets import EmptyState, current_theme

if TYPE_CHECKING:
    from devexplorer.core.benchmark.kinds.kind import BenchmarkKind

DATASHEET_REACH = 4.0
"""A datasheet figure up to so many times the measured one is in range; a farther one would press the curve flat."""
FIRST_SIZE = 1024
"""Size of the benchmark that the empty plot offers."""


class ThroughputPlot(DevicePlot):
    """One line per device that was measured, its datasheet figure dotted; shape and current values in the header.

    `start_requested` carries a `tuple[MatmulSpec, ...]`, as the benchmark panel's signal of that name does.
    """

    start_requested = Signal(object)

    def __init__(self, state: State, time_axis: TimeAxis) -> None:
        empty = EmptyState("No matrix products yet.", "Benchmark")
        super().__init__(THROUGHPUT, state, time_axis, empty)
        self._runs: dict[str, Run] = {}
        self._chosen = ""
        self.empty.chosen.connect(self._offer_taken)
        self.show_empty(True)

    def set_device(self, device: str) -> None:
        """The card that is selected: the empty plot offers to measure it."""
        self._chosen = device
        if not self._runs:
            self._show_offer()

    def _show_offer(self) -> None:
        self.empty.button.setText(f"Benchmark {FIRST_SIZE}³ on {self._first_device()}")
        self.empty.follow(self._state)

    def refresh(self, now_unix_s: float) -> None:
        self._runs = _latest(self._state.runs.values())
        self.show_empty(not self._runs)
        if not self._runs:
            self._show_offer()
        super().refresh(now_unix_s)

    def _history(self, device: Device) -> History:
        return device.throughput

    def _listed(self, device: Device) -> bool:
        return device.info.id in self._runs

    def _shown_runs(self) -> list[Run]:
        return [self._runs[device.info.id] for device in self._shown_devices()]

    def _rescale(self, highest_shown: float) -> bool:
        datasheets = [run.datasheet_tflops for run in self._shown_runs() if run.datasheet_tflops]
        within = [figure for figure in datasheets if figure <= DATASHEET_REACH * highest_shown]
        return self._scale.fit(max([highest_shown, *within]))

    def _guides(self) -> list[tuple[float, str, str]]:
        figures: dict[float, list[Run]] = {}
        for run in self._shown_runs():
            if run.datasheet_tflops:
                figures.setdefault(run.datasheet_tflops, []).append(run)
        guides = []
        for figure, runs in figures.items():
            out_of_range = figure > self._scale.top
            text = f"datasheet {number_text(figure / self._scale.unit.factor)}{' ↑' if out_of_range else ''}"
            if len(figures) > 1 or len(self._runs) > len(runs):
                text += f"  {', '.join(run.spec.device for run in runs)}"
            if any(run.simulated for run in runs):
                text += MARK
            # Out of range: no line, the label is at the top with an arrow. Nothing is hidden.
            guides.append((self._scale.top * 2 if out_of_range else figure, text, current_theme().dim))
        return guides

    def _entries(self) -> list[Entry]:
        """What was measured last comes first: it is in sight where there is no room for all. Real devices come before
        simulated ones, as everywhere."""
        return sorted(super()._entries(), key=lambda entry: (entry.simulated, -self._runs[entry.device].run))

    def _entry(self, device: Device) -> Entry:
        run, factor = self._runs[device.info.id], self._scale.unit.factor
        if run.ended:
            spread = None if run.result is None else _kind(run).throughput(run.result)
            rate = None if spread is None else spread.median
            value = "" if rate is None else f"{_kind(run).rate_name} {number_text(rate / factor)}"
        else:
            rate = self._history(device).latest(THROUGHPUT.id)
            value = "warming up" if math.isnan(rate) else number_text(rate / factor)
        return Entry(device.info.id, device.colour, device.info.simulated, value)

    def _subtitles(self) -> list[str]:
        runs = [run for run in self._runs.values() if not run.ended] or list(self._runs.values())
        unit = self._scale.unit.name
        texts = {_kind(run).curve_texts(run.spec) for run in runs}
        if len(texts) != 1:  # several at once: the table of the benchmark panel has them all
            return [unit]
        return [*(f"{unit}  {text}" for text in texts.pop()), unit]

    def _first_device(self) -> str:
        usable = self._state.usable_devices
        if self._chosen in usable:
            return self._chosen
        return next((name for name in usable if name != "cpu"), usable[0] if usable else "cpu")

    def _offer_taken(self) -> None:
        spec = MatmulSpec(device=self._first_device(), m=FIRST_SIZE, n=FIRST_SIZE, k=FIRST_SIZE)
        self.start_requested.emit((spec,))


def _kind(run: Run) -> BenchmarkKind[Any, Any]:
    from devexplorer.core.benchmark.kinds import kind_of  # loaded with the first run: start-up does not wait for them

    return kind_of(run.spec)


def _latest(runs: Iterable[Run]) -> dict[str, Run]:
    """The last run of each device that measured its throughput; runs that still warm up have the device's name already.

    A run that asks for something else (copies, how jobs share the devices) replaces none: it has no figure to
    show there.
    """
    result: dict[str, Run] = {}
    for run in runs:
        if _kind(run).measures_throughput:
            if run.points or not run.ended or run.result:
                result[run.spec.device] = run
        elif run.rated:
            result.setdefault(run.spec.device, run)
    return result
