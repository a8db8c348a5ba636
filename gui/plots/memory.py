"""The memory plot: bytes in use on each device over time. Main thread only."""

from __future__ import annotations

import math

from PySide6.QtWidgets import QToolButton, QWidget

from devexplorer.core.formats import MISSING, bytes_text
from devexplorer.core.state import Device, State
from devexplorer.core.telemetry.timeline import Timeline
from devexplorer.gui.plots.curves import MEMORY_UNITS
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.theme import Role, font


class MemoryPlot(TimelinePlot):
    """One line per device, from 0 to what is shown or, at the click of a button, to the largest capacity.

    Fitting is the default: a model of 500 MiB on a card of 80 GiB would be a flat line otherwise, and seeing the step
    that a move makes is what this plot is for. Capacities are dotted lines wherever they are in range.
    """

    def __init__(self, state: State, time_axis: TimeAxis, parent: QWidget | None = None) -> None:
        super().__init__("Memory", MEMORY_UNITS, state, time_axis, parent)
        self._to_capacity = False
        self.scale_button = QToolButton()
        self.scale_button.setProperty("look", "quiet")
        self.scale_button.setFont(font(Role.LABEL))
        self.scale_button.setCheckable(True)
        self.scale_button.setText("scale: fit")
        self.scale_button.setAccessibleName("Scale to capacity")
        self.scale_button.setToolTip("0 to what is in use (fit), or 0 to the largest capacity")
        self.scale_button.toggled.connect(self.set_to_capacity)
        self.add_to_header(self.scale_button)

    def set_to_capacity(self, to_capacity: bool) -> None:
        """Scale to the largest capacity of the shown devices, or fit to what is shown."""
        self._to_capacity = to_capacity
        self.scale_button.setChecked(to_capacity)
        self.scale_button.setText("scale: capacity" if to_capacity else "scale: fit")
        self._scale.stale = True
        self._axis_is_stale = True
        self._refresh_now()

    def _timeline(self, device: Device) -> Timeline:
        return device.memory

    def _rescale(self, highest_shown: float) -> bool:
        capacity = max((device.total_bytes or 0 for device in self._shown_devices()), default=0)
        if self._to_capacity and capacity:
            return self._scale.set_top(float(capacity))
        return self._scale.fit(highest_shown)

    def _guides(self) -> list[tuple[float, str, str]]:
        capacities: dict[int, list[str]] = {}
        for device in self._shown_devices():
            total = device.total_bytes
            if total and total <= self._scale.top:
                capacities.setdefault(total, []).append(device.info.id)
        return [(float(total), f"capacity {_names(names)}", self._theme.dim) for total, names in capacities.items()]

    def _value_text(self, value: float) -> str:
        return MISSING if math.isnan(value) else bytes_text(value)


def _names(names: list[str]) -> str:
    return ", ".join(names) if len(names) <= 2 else f"{names[0]} … {names[-1]}"
