"""The plot of a metric: one curve per device that reports it, memory used at first. Main thread only."""

from __future__ import annotations

from PySide6.QtWidgets import QToolButton

from devexplorer.core.session import Device, State
from devexplorer.core.telemetry.history import BY_ID
from devexplorer.gui.plots.curves import axis_units
from devexplorer.gui.plots.device_plot import DevicePlot
from devexplorer.gui.plots.limits import MEMORY
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.widgets import EmptyState, Role, font

FIRST = "memory_used_bytes"
"""What is shown until something else is chosen: the one thing that every device has."""
SHOW_FIRST = "Show memory used"
"""The button of an empty plot."""


class ScaleButton(QToolButton):
    """Chooses between fitting the scale to what is shown and showing the whole capacity; checked: capacity."""

    def __init__(self, plot: TimelinePlot) -> None:
        super().__init__()
        self.setProperty("look", "quiet")
        self.setFont(font(Role.LABEL))
        self.setCheckable(True)
        self.setText("scale: fit")
        self.setAccessibleName("Scale to capacity")
        self.setToolTip("0 to the memory in use (fit), or 0 to the largest capacity")
        self._plot = plot
        self.toggled.connect(self._on_toggled)
        plot.add_to_header(self)  # before it is shown, or it would be a separate window for a moment

    def _on_toggled(self, to_capacity: bool) -> None:
        self.setText("scale: capacity" if to_capacity else "scale: fit")
        self._plot.rescale()


class MetricPlot(DevicePlot):
    """One line per device, from 0 to the metric's natural end, or to what is shown; memory at the click of a button to
    its capacity.

    Fitting is the default: a model of 500 MiB on a card of 80 GiB would be a flat line otherwise, and seeing the step
    that a move makes is what this plot is for. Limits are dotted lines wherever they are in range.
    """

    def __init__(self, state: State, time_axis: TimeAxis, metric: str = FIRST) -> None:
        super().__init__(BY_ID[metric], state, time_axis, EmptyState("", SHOW_FIRST))
        self.scale_button = ScaleButton(self)
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
        if self.scale_button.isChecked() and self.metric_id in MEMORY:
            capacity = max((device.total_bytes or 0 for device in self._shown_devices()), default=0)
            if capacity:
                return self._scale.set_top(float(capacity))
        return super()._rescale(highest_shown)

    def _guides(self) -> list[tuple[float, str, str]]:
        return self._limit_guides(self.metric_id, self._shown_devices())
