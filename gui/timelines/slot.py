"""The plots over time: a metric of every device, the memory parts of one, throughput; and the place for a plot, whose
title is a menu that chooses between them. Main thread.

The areas of the memory parts look like the segments of the memory bar: tensors of the workspace in the device's colour,
other allocations paler, what the allocator keeps hatched, context and other processes grey.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar, cast

import numpy as np
from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QAction, QBrush
from PySide6.QtWidgets import QMenu, QStackedLayout, QToolButton, QWidget

from devexplorer.core.base import MISSING, flops_cell_text, flops_text, number_text
from devexplorer.core.session import Device, Run, State
from devexplorer.core.telemetry.history import ALLOCATOR_METRICS, BY_ID, PART_METRICS, THROUGHPUT, History
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS
from devexplorer.core.telemetry.metrics import METRICS, Metric
from devexplorer.gui.plots.curves import AreaItem, Floats, axis_units, highest, pooled, to_edges
from devexplorer.gui.plots.device_plot import DevicePlot
from devexplorer.gui.plots.legend import LegendLine
from devexplorer.gui.plots.markers import MARK, MEMORY
from devexplorer.gui.plots.time_axis import TimeAxis, TimeControl
from devexplorer.gui.plots.timeline_plot import USUAL, Drawn, TimelinePlot, TimelineSeries
from devexplorer.gui.widgets import (
    EmptyState,
    MenuLine,
    Role,
    colour_of,
    current_theme,
    font,
    part_brushes,
)

if TYPE_CHECKING:
    from devexplorer.core.benchmark.kind import BenchmarkKind

FIRST = "memory_used_bytes"
"""What is shown until something else is chosen: the one thing that every device has."""
SHOW_FIRST = "Show memory used"
"""The button of an empty plot."""
FIT, FIT_GPUS, CAPACITY = "fit", "fit GPUs", "capacity"
SCALES = {
    FIT: "0 to the memory in use", FIT_GPUS: "0 to what the GPUs use, whatever the CPU does",
    CAPACITY: "0 to the largest capacity",
}  # fmt: skip
"""What the scale of memory can be, and what that means."""
DATASHEET_REACH = 4.0
"""A datasheet figure up to so many times the measured one is in range; a farther one would press the curve flat."""
LEAST_IN_AXIS = 0.1
"""Less than that of the axis' unit is written with a prefix of its own."""
STACK = (*(part.id for part in PART_METRICS), FIRST)
"""What can be in it, from the bottom. Where the allocator was not asked, memory used takes the place of all of them."""
THROUGHPUT_CHOICE = THROUGHPUT.id
PARTS_PREFIX = "parts:"
P = TypeVar("P", bound=TimelinePlot)


class ScaleButton(QToolButton):
    """Each click takes the next of `SCALES`."""

    def __init__(self, plot: TimelinePlot, *scales: str) -> None:
        super().__init__()
        self.setProperty("look", "quiet")
        self.setFont(font(Role.LABEL))
        self.setToolTip("\n".join(f"{scale}: {SCALES[scale]}" for scale in scales))
        self._plot, self._scales = plot, scales
        self._show(scales[0])
        self.clicked.connect(self._next)
        plot.add_to_header(self)  # before it is shown, or it would be a separate window for a moment

    def _show(self, scale: str) -> None:
        self.scale = scale
        self.setText(f"scale: {scale}")
        self.setAccessibleName(self.text())

    def _next(self) -> None:
        self._show(self._scales[(self._scales.index(self.scale) + 1) % len(self._scales)])
        self._plot.rescale()


class MetricPlot(DevicePlot):
    """One line per device, from 0 to the metric's natural end, or to what is shown; memory at the click of a button to
    its capacity.

    Fitting is the default: a model of 500 MiB on a card of 80 GiB would be a flat line otherwise, and seeing the step
    that a move makes is what this plot is for. Limits are dotted lines wherever they are in range.
    """

    def __init__(self, state: State, time_axis: TimeAxis, metric: str = FIRST) -> None:
        super().__init__(BY_ID[metric], state, time_axis, EmptyState("", SHOW_FIRST))
        self.scale_button = ScaleButton(self, *SCALES)
        self.scale_button.setVisible(metric in MEMORY)

    @property
    def metric_id(self) -> str:
        """Id of what is shown."""
        return self._metric.id

    def set_metric(self, metric: str) -> None:
        """Show another metric; a key of `core.telemetry.history.BY_ID`."""
        self._metric = BY_ID[metric]
        self._scale.set_units(axis_units(self._metric.unit))
        self.scale_button.setVisible(metric in MEMORY)
        self.set_title(self._metric.label)
        self.rescale()

    def refresh(self, now_unix_s: float) -> None:
        is_empty = self.metric_id != FIRST and not any(
            device.history.has(self.metric_id) for device in self._state.devices.values()
        )
        if is_empty != self.is_empty:
            self.show_empty(is_empty)
        if is_empty:
            self.empty.sentence.setText(f"No device reports: {self._metric.label}.")
        super().refresh(now_unix_s)

    def _listed(self, device: Device) -> bool:
        return self.metric_id == FIRST or device.history.has(self.metric_id)

    def _rescale(self, highest_shown: float) -> bool:
        if self.scale_button.scale == CAPACITY and self.metric_id in MEMORY:
            capacity = max((device.total_bytes or 0 for device in self._shown_devices()), default=0)
            if capacity:
                return self._scale.set_top(float(capacity))
        return super()._rescale(highest_shown)

    def _decides(self, device: Device) -> bool:
        by_all = self.scale_button.scale != FIT_GPUS or self.metric_id not in MEMORY
        return by_all or device.info.kind != "cpu"

    def _guides(self) -> list[tuple[float, str, str]]:
        return self._limit_guides(self.metric_id, self._shown_devices())


class ThroughputPlot(DevicePlot):
    """One line per device that was measured, its datasheet figure dotted; shape and current values in the header."""

    def __init__(self, state: State, time_axis: TimeAxis) -> None:
        empty = EmptyState("No benchmarks yet.", "")
        super().__init__(THROUGHPUT, state, time_axis, empty)
        self._runs: dict[str, Run] = {}
        self.show_empty(True)

    @property
    def is_measured(self) -> bool:
        """Whether a benchmark measured throughput, as far as is known here."""
        return bool(_latest(self._state.runs.values()))

    def refresh(self, now_unix_s: float) -> None:
        self._runs = _latest(self._state.runs.values())
        self.show_empty(not self._runs)
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

    def _entries(self) -> list[LegendLine]:
        """What was measured last comes first: it is in sight where there is no room for all. Real devices come before
        simulated ones, as everywhere."""
        return sorted(super()._entries(), key=lambda entry: (entry.simulated, -self._runs[entry.device].run))

    def _entry(self, device: Device) -> LegendLine:
        run = self._runs[device.info.id]
        if run.ended:
            spread = None if run.result is None else _kind(run).throughput(run.result)
            rate = None if spread is None else spread.median
            value = "" if rate is None else f"{_kind(run).rate_name} {self._rate_text(rate)}"
        else:
            rate = self._history(device).latest(THROUGHPUT.id)
            value = "warming up" if math.isnan(rate) else self._rate_text(rate)
        return LegendLine(device.info.id, device.colour, device.info.simulated, value)

    def _value_text(self, value: float) -> str:
        return MISSING if math.isnan(value) else flops_text(value)

    def _rate_text(self, rate: float) -> str:
        """In the axis' unit, as far as that has digits for it."""
        in_axis = rate / self._scale.unit.factor
        return number_text(in_axis) if in_axis >= LEAST_IN_AXIS else flops_cell_text(rate)

    def _subtitles(self) -> list[str]:
        runs = [run for run in self._runs.values() if not run.ended] or list(self._runs.values())
        unit = self._scale.unit.name
        texts = {_kind(run).curve_texts(run.spec) for run in runs}
        if len(texts) != 1:  # several at once: the table of the benchmark panel has them all
            return [unit]
        return [*(f"{unit}  {text}" for text in texts.pop()), unit]


def _kind(run: Run) -> BenchmarkKind[Any, Any]:
    from devexplorer.core.benchmark.kind import kind_of  # loaded with the first run: start-up does not wait for them

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


class StackPlot(TimelinePlot):
    """Areas on top of each other, of one history; a click on the legend takes one out of the stack."""

    def __init__(
        self, metric: Metric, state: State, time_axis: TimeAxis, empty: EmptyState, parts: Sequence[str]
    ) -> None:
        """`parts`: what can be in it, from the bottom."""
        super().__init__(metric, state, time_axis, empty)
        self._taken = Drawn()
        self._tops: Floats = np.empty(0)
        self.times: Floats = np.empty(0)
        """Unix seconds."""
        self.stacked: dict[str, Floats] = {}
        """What is drawn of each part, from the bottom; NaN is a gap."""
        self._areas = {part: AreaItem(self._group) for part in parts}

    # What subclasses say

    @property
    def _history(self) -> History | None:
        """Of all parts; None: there is nothing to show."""
        raise NotImplementedError

    def _parts(self) -> list[str]:
        """What the stack is made of now, from the bottom."""
        raise NotImplementedError

    def _label(self, part: str) -> str:
        """What it is called."""
        return part

    def _brushes(self, part: str) -> list[QBrush]:
        """Of its area."""
        raise NotImplementedError

    def _text_colour(self, part: str) -> str:
        """Of its name: `#RRGGBB`."""
        return current_theme().soft

    # TimelinePlot's questions

    def _recolour(self) -> None:
        super()._recolour()
        for part, area in self._areas.items():
            area.set_brushes(self._brushes(part))

    def _shown(self) -> list[str]:
        return [part for part in self._parts() if self.legend.shows(self._label(part))]

    def _series(self) -> list[TimelineSeries]:
        if (history := self._history) is None:
            return []
        return [
            TimelineSeries(self._label(part), self._text_colour(part), False, history, part)
            for part in reversed(self._shown())
        ]

    def _entries(self) -> list[LegendLine]:
        return [
            LegendLine(
                self._label(part),
                0,
                False,  # said once, behind the unit and over the readout
                brushes=tuple(self._brushes(part)),
                text_colour=self._text_colour(part),
            )
            for part in self._parts()
        ]

    def _highest_shown(self) -> float:
        first = np.searchsorted(self.times, self._axis.left_unix_s, side="left")
        last = np.searchsorted(self.times, self._axis.right_unix_s, side="right")
        return highest(self._tops[first:last])

    def _forget_drawn(self) -> None:
        self._taken = Drawn()

    def _draw(self) -> bool:
        axis, shown = self._axis, tuple(self._shown())
        version = (-1, -1) if self._history is None else self._history.version
        key = (shown, version[0], self._pixel_s)
        if self._is_drawn(self._taken, key, version, self.times):
            return False
        kept_to_s = axis.right_unix_s if axis.paused else math.inf
        self._taken = Drawn(key, version, axis.left_unix_s, kept_to_s, axis.clock_unix_s)
        self.times, rows = self._read(shown)
        self.stacked = dict(zip(shown, rows, strict=True))
        tops = np.cumsum(np.nan_to_num(rows), axis=0)
        tops[:, np.isnan(rows).all(axis=0)] = np.nan
        self._tops = tops[-1] if len(tops) else np.empty(0)
        x = self.times - (self._epoch_s or 0.0)
        for part, area in self._areas.items():
            if part in shown:
                at = shown.index(part)
                floor = tops[at - 1] if at else np.where(np.isnan(tops[0]), np.nan, 0.0)
                area.set_data(x, floor, tops[at])
            area.setVisible(part in shown)
        return True

    def _read(self, shown: tuple[str, ...]) -> tuple[Floats, Floats]:
        """Times and one row per part. All of one history, so that all have the same times."""
        axis, history = self._axis, self._history
        if history is None or not shown:
            return np.empty(0), np.empty((0, 0))
        newest_s = history.latest_unix_s
        right_s = self._latest_s(history)
        windows = [history.window(part, axis.left_unix_s, right_s) for part in shown]
        times, seconds = windows[0].times, windows[0].seconds
        rows = np.stack([window.mean for window in windows])
        known = ~np.isnan(rows).all(axis=0)
        rows = np.where(known, np.nan_to_num(rows), np.nan)  # a part that is not known takes no room; the others are
        if len(times) > axis.width_s / self._pixel_s:
            times, rows = pooled(times, rows, self._pixel_s)
        if seconds:
            times, rows = to_edges(times, rows, max(seconds, self._pixel_s) / 2, newest_s)
        return times.copy(), rows


class PartsPlot(StackPlot):
    """Where the memory of one device is."""

    def __init__(self, state: State, time_axis: TimeAxis) -> None:
        empty = EmptyState("This device is no longer available.", SHOW_FIRST)
        super().__init__(BY_ID[FIRST], state, time_axis, empty, STACK)
        self._device: Device | None = None
        self.scale_button = ScaleButton(self, FIT, CAPACITY)
        self._recolour()

    @property
    def device(self) -> str:
        """Id of the device that is shown; empty while there is none."""
        return "" if self._device is None else self._device.info.id

    def set_device(self, device: str) -> None:
        """Show the parts of that device."""
        self._device = self._state.devices.get(device)
        self._taken = Drawn()
        self._recolour()
        self.rescale()

    def refresh(self, now_unix_s: float) -> None:
        if self._device not in self._state.devices.values():
            self._device = None
        self.show_empty(self._device is None)
        title = f"Memory parts of {self.device}" if self._device is not None else "Memory parts"
        if title != self.title:
            self.set_title(title)
        super().refresh(now_unix_s)

    # StackPlot's questions

    @property
    def _history(self) -> History | None:
        return None if self._device is None else self._device.history

    @property
    def _colour(self) -> int:
        return 0 if self._device is None else self._device.colour

    def _brushes(self, part: str) -> list[QBrush]:
        """As in the memory bar."""
        return part_brushes(part.removesuffix("_bytes"), self._colour)

    def _text_colour(self, part: str) -> str:
        """A grey area would make a grey too weak for text."""
        return colour_of("dim" if part in ("context_bytes", "other_processes_bytes") else self._colour)

    def _parts(self) -> list[str]:
        """What the device's stack is made of, from the bottom."""
        if self._device is None:
            return []
        known = [part.id for part in PART_METRICS if self._device.history.has(part.id)]
        return known or [FIRST]

    def _label(self, part: str) -> str:
        """As the memory bar calls it."""
        if part == FIRST:
            return PART_TEXTS["used"].short
        if (
            part == "other_processes_bytes"
            and self._device is not None
            and not self._device.history.has("context_bytes")
        ):
            return PART_TEXTS["unsplit"].short
        return PART_TEXTS[part.removesuffix("_bytes")].short

    def _readout_titles(self) -> list[str]:
        if self._device is None:
            return []
        return [f"{self.device}{' simulated' if self._device.info.simulated else ''}"]

    def _subtitles(self) -> list[str]:
        simulated = self._device is not None and self._device.info.simulated
        return [f"{self._scale.unit.name}{' · simulated' if simulated else ''}"]

    def _rescale(self, highest_shown: float) -> bool:
        if self.scale_button.scale == CAPACITY and self._device is not None and self._device.total_bytes:
            return self._scale.set_top(max(float(self._device.total_bytes), highest_shown))
        return self._scale.fit(highest_shown)

    def _guides(self) -> list[tuple[float, str, str]]:
        return self._limit_guides(FIRST, [] if self._device is None else [self._device])


class PlotSlot(QWidget):
    """Shows one plot of those that it has. A choice is a string to be remembered: the id of a metric, `tflops`, or
    `parts:DEVICE`."""

    choice_changed = Signal(str)

    def __init__(
        self,
        state: State,
        axis: TimeAxis,
        choice: str = FIRST,
        *,
        time_control: bool = False,
    ) -> None:
        """`time_control`: whether the time control is in the header. One slot of a window has it."""
        super().__init__()
        self._state, self._axis = state, axis
        self._time_controls: dict[TimelinePlot, TimeControl] = {}
        self._with_time = time_control
        self._plots: dict[object, TimelinePlot] = {}
        """By class."""
        self.choice = FIRST
        """What is shown, for the settings."""
        self.in_menu: list[MenuLine] = []
        """What every plot's context menu has below its own."""
        self.menu = QMenu(self)
        self._inside = QMenu(
            "Allocator and parts", self.menu
        )  # made once: `clear` forgets a submenu without deleting it
        self._parts_of = QMenu("Memory parts of", self.menu)
        self.menu.aboutToShow.connect(self._fill_menu)
        self._stack = QStackedLayout(self)
        self._stack.setContentsMargins(0, 0, 0, 0)
        self._show(choice if self._is_choice(choice) else FIRST)

    # What the window calls

    @property
    def plot(self) -> TimelinePlot:
        """The plot that is shown now."""
        shown = self._stack.currentWidget()
        assert isinstance(shown, TimelinePlot)
        return shown

    @property
    def has_curves(self) -> bool:
        """Whether it has something to show: a throughput that was never measured has not."""
        return not isinstance(self.plot, ThroughputPlot) or self.plot.is_measured

    @property
    def time_control(self) -> TimeControl:
        """The time control of the plot that is shown."""
        return self._time_controls[self.plot]

    def set_choice(self, choice: str) -> None:
        """Show something else; unknown choices are ignored."""
        if choice != self.choice and self._is_choice(choice):
            self._show(choice)
            self.choice_changed.emit(choice)

    def refresh(self, now_unix_s: float) -> None:
        """Draw what changed; up to 30 times a second."""
        plot = self.plot
        if isinstance(plot, PartsPlot) and not plot.device and self.choice != PARTS_PREFIX:
            plot.set_device(self.choice.removeprefix(PARTS_PREFIX))  # it was not there yet, or has come back
        plot.refresh(now_unix_s)

    def sizeHint(self) -> QSize:
        return USUAL  # asked a thousand times while the window is arranged: not by way of the plot

    def minimumSizeHint(self) -> QSize:
        return self.plot.minimumSizeHint()

    # Choosing

    @staticmethod
    def _is_choice(choice: str) -> bool:
        return choice in BY_ID or choice.startswith(PARTS_PREFIX)

    def _show(self, choice: str) -> None:
        self.choice = choice
        if choice == THROUGHPUT_CHOICE:
            plot: TimelinePlot = self._plot(ThroughputPlot)
        elif choice.startswith(PARTS_PREFIX):
            plot = parts = self._plot(PartsPlot)
            parts.set_device(choice.removeprefix(PARTS_PREFIX))
        else:
            plot = metric = self._plot(MetricPlot)
            if metric.metric_id != choice:
                metric.set_metric(choice)
        self._stack.setCurrentWidget(plot)
        if self._axis.clock_unix_s:
            self.refresh(self._axis.clock_unix_s)

    def _plot(self, kind: Callable[[State, TimeAxis], P]) -> P:
        """The plot of that kind, made when it is first chosen."""
        if kind not in self._plots:
            plot = kind(self._state, self._axis)
            plot.set_menu(self.menu)
            plot.in_menu = self.in_menu
            if not isinstance(plot, ThroughputPlot):
                plot.empty.chosen.connect(lambda: self.set_choice(FIRST))
            if self._with_time:
                self._time_controls[plot] = TimeControl(self._axis)
                plot.add_to_header(self._time_controls[plot])
            self._plots[kind] = plot
            self._stack.addWidget(plot)
        return cast("P", self._plots[kind])

    def _fill_menu(self) -> None:
        """Throughput, the metrics that some device reports, then the rarely used ones."""
        devices = self._state.devices.values()

        def reported(metrics: tuple[Metric, ...]) -> list[Metric]:
            return [
                metric
                for metric in metrics
                if metric.id == FIRST or any(device.history.has(metric.id) for device in devices)
            ]

        self.menu.clear()
        self._add(self.menu, THROUGHPUT_CHOICE, THROUGHPUT.label)
        self.menu.addSeparator()
        for metric in reported(METRICS):
            self._add(self.menu, metric.id, metric.label)
        self.menu.addSeparator()
        inside = reported((*PART_METRICS, *ALLOCATOR_METRICS))
        if inside:
            self.menu.addMenu(self._inside)
        self._inside.clear()
        for metric in inside:
            self._add(self._inside, metric.id, metric.label)
        self.menu.addMenu(self._parts_of)
        self._parts_of.clear()
        for device in devices:
            word = " (simulated)" if device.info.simulated else ""
            self._add(self._parts_of, f"{PARTS_PREFIX}{device.info.id}", f"{device.info.id}{word}")

    def _add(self, menu: QMenu, choice: str, words: str) -> None:
        action = QAction(words.replace("&", "&&"), menu, checkable=True, checked=choice == self.choice)
        action.setData(choice)
        action.triggered.connect(lambda _checked=False: self.set_choice(choice))
        menu.addAction(action)
