"""A place for a plot: its title is a menu that chooses between throughput, every metric, and the memory parts of a
device. Main thread."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

from PySide6.QtCore import QSize, Signal
from PySide6.QtGui import QAction
from PySide6.QtWidgets import QMenu, QStackedLayout, QWidget

from devexplorer.core.session import State
from devexplorer.core.telemetry.history import ALLOCATOR_METRICS, BY_ID, PART_METRICS, THROUGHPUT
from devexplorer.core.telemetry.metrics import METRICS, Metric
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.time_control import TimeControl
from devexplorer.gui.plots.timeline_plot import LEAST, USUAL, TimelinePlot
from devexplorer.gui.timelines.metric import FIRST, MetricPlot
from devexplorer.gui.timelines.parts import PartsPlot
from devexplorer.gui.timelines.throughput import ThroughputPlot
from devexplorer.gui.widgets import MenuLine, show_tables

THROUGHPUT_CHOICE = THROUGHPUT.id
PARTS_PREFIX = "parts:"
P = TypeVar("P", bound=TimelinePlot)


class PlotSlot(QWidget):
    """Shows one plot of those that it has. A choice is a string to be remembered: the id of a metric, `tflops`, or
    `parts:DEVICE`."""

    choice_changed = Signal(str)
    start_requested = Signal(object)
    """See `ThroughputPlot`."""
    export_requested = Signal(str)
    """See `TimeControl`."""

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
        self.in_menu: list[MenuLine] = [("Export readings as CSV…", lambda: self.export_requested.emit("csv"))]
        """What every plot's context menu has below its own."""
        self.menu = QMenu(self)
        self._inside = QMenu(
            "Allocator and parts", self.menu
        )  # made once: `clear` forgets a submenu without deleting it
        self._parts_of = QMenu("Memory parts of", self.menu)
        self.menu.aboutToShow.connect(self._fill_menu)
        self._device = ""
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
        return LEAST

    def set_device(self, device: str) -> None:
        """Another card is selected."""
        self._device = device
        for plot in self._plots.values():
            if isinstance(plot, ThroughputPlot):
                plot.set_device(device)

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
            if isinstance(plot, ThroughputPlot):
                plot.start_requested.connect(self.start_requested)
                plot.set_device(self._device)
            else:
                plot.empty.chosen.connect(lambda: self.set_choice(FIRST))
            if self._with_time:
                self._time_controls[plot] = TimeControl(self._axis)
                self._time_controls[plot].export_requested.connect(self.export_requested)
                plot.add_to_header(self._time_controls[plot])
            self._plots[kind] = plot
            self._stack.addWidget(plot)
        return cast(P, self._plots[kind])

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
        self.menu.addSeparator()
        table = self.menu.addAction("Show as table…", lambda: show_tables(self, [self.plot]))
        table.setEnabled(self.plot.figures() is not None)

    def _add(self, menu: QMenu, choice: str, words: str) -> None:
        action = QAction(words.replace("&", "&&"), menu, checkable=True, checked=choice == self.choice)
        action.setData(choice)
        action.triggered.connect(lambda _checked=False: self.set_choice(choice))
        menu.addAction(action)
