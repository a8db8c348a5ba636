"""A plot with one curve per device: readings as a line, bins as their mean and the band from lowest to highest. Main
thread only."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import numpy as np
from PySide6.QtGui import QBrush, QColor, QPen

from devexplorer.core.session import Device, State
from devexplorer.core.telemetry.history import History
from devexplorer.core.telemetry.metrics import Metric
from devexplorer.gui.plots.curves import AreaItem, Floats, LiveCurve, LiveCurves, corners, highest, thin, to_edges
from devexplorer.gui.plots.legend import LegendLine
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.timeline_plot import Drawn, TimelinePlot, TimelineSeries
from devexplorer.gui.widgets import EmptyState, device_colour, device_pen

PIXELS_PER_POINT = 0.5
"""More than two readings a pixel are thinned to the lowest and highest of each pixel."""
BAND_ALPHA = 0.22


@dataclass
class DeviceCurve:
    """What is drawn of one device."""

    band: AreaItem
    line: LiveCurve = field(default_factory=LiveCurve)
    drawn: Drawn = field(default_factory=Drawn)
    times: Floats = field(default_factory=lambda: np.empty(0))
    values: Floats = field(default_factory=lambda: np.empty(0))
    tops: Floats = field(default_factory=lambda: np.empty(0))


class DevicePlot(TimelinePlot):
    """Base of the plots of a metric and of throughput."""

    def __init__(self, metric: Metric, state: State, axis: TimeAxis, empty: EmptyState) -> None:
        super().__init__(metric, state, axis, empty)
        self.curves: dict[str, DeviceCurve] = {}
        self._live = LiveCurves(self._group)
        self._live.setZValue(1)  # above the bands

    # What subclasses say

    def _history(self, device: Device) -> History:
        """Where the metric of a device is."""
        return device.history

    def _listed(self, device: Device) -> bool:
        """Whether the device has a curve here."""
        return True

    def _decides(self, device: Device) -> bool:
        """Whether the scale makes room for its curve."""
        return True

    def _entry(self, device: Device) -> LegendLine:
        return LegendLine(device.info.id, device.colour, device.info.simulated)

    # TimelinePlot's questions

    def _recolour(self) -> None:
        super()._recolour()
        for name, curve in self.curves.items():
            if name in self._state.devices:
                self._colour(curve, self._state.devices[name])
        self._live.update()

    def _shown_devices(self) -> list[Device]:
        return [d for d in self._state.devices.values() if self._listed(d) and self.legend.shows(d.info.id)]

    def _series(self) -> list[TimelineSeries]:
        return [
            TimelineSeries(d.info.id, device_colour(d.colour), d.info.simulated, self._history(d), self._metric.id)
            for d in self._shown_devices()
        ]

    def _entries(self) -> list[LegendLine]:
        return [
            self._entry(device)._replace(idle=device.info.id in self.curves and not self._rises(device.info.id))
            for device in self._state.devices.values()
            if self._listed(device)
        ]

    def _rises(self, device: str) -> bool:
        """Whether any of the device's curve is above zero."""
        return highest(self.curves[device].tops) > 0

    def _highest_shown(self) -> float:
        tops = []
        for name, curve in self.curves.items():
            if curve.line.is_shown and self._decides(self._state.devices[name]):
                first = np.searchsorted(curve.times, self._axis.left_unix_s, side="left")
                last = np.searchsorted(curve.times, self._axis.right_unix_s, side="right")
                tops.append(highest(curve.tops[first:last]))
        return max(tops, default=0.0)

    # Drawing

    def _pen(self, device: Device) -> QPen:
        pen = device_pen(device.colour, simulated=device.info.simulated)
        pen.setCosmetic(True)
        return pen

    def _colour(self, curve: DeviceCurve, device: Device) -> None:
        curve.line.pen = self._pen(device)
        shade = QColor(device_colour(device.colour))
        shade.setAlphaF(BAND_ALPHA)
        curve.band.set_brushes([QBrush(shade)])

    def _forget_drawn(self) -> None:
        for curve in self.curves.values():
            curve.drawn = Drawn()

    def _draw(self) -> bool:
        shown = {device.info.id: device for device in self._shown_devices()}
        changed = False
        for name in self.curves.keys() - shown.keys():
            curve = self.curves[name]
            changed |= curve.line.is_shown
            curve.line.is_shown = False
            curve.band.hide()
            if name not in self._state.devices:
                self.canvas.scene().removeItem(curve.band)
                del self.curves[name]
        for name, device in shown.items():
            if name not in self.curves:
                self.curves[name] = DeviceCurve(AreaItem(self._group))
                self._colour(self.curves[name], device)
            curve = self.curves[name]
            if not curve.line.is_shown:
                curve.line.is_shown = True
                curve.drawn = Drawn()  # and its band, where it has one
                changed = True
            changed |= self._draw_curve(curve, self._history(device))
        if changed:
            self._live.show_curves(curve.line for curve in self.curves.values())
        return changed

    def _draw_curve(self, curve: DeviceCurve, history: History) -> bool:
        """Hand the visible part of the history to its curve if that part changed; returns whether it did."""
        axis, pixel_s = self._axis, self._pixel_s
        key = (self._metric.id, history.version[0], pixel_s)
        if self._is_drawn(curve.drawn, key, history.version, curve.times):
            return False
        # While live the left end stays for a quarter of a span longer than it must: a dash pattern starts with the
        # curve's first point, and one that starts elsewhere on every tick would crawl.
        left_s = curve.drawn.left_s
        may_stay = axis.left_unix_s - axis.width_s / 4 <= left_s <= axis.left_unix_s
        if not may_stay or curve.drawn.key != key:
            left_s = axis.left_unix_s
        newest_s = history.latest_unix_s
        right_s = self._latest_s(history)
        window = history.window(self._metric.id, left_s, right_s, pixel_s)
        if window.seconds:
            rows = np.stack((window.low, window.mean, window.high))
            curve.times, rows = to_edges(window.times, rows, window.seconds / 2, newest_s)
            low, curve.values, curve.tops = rows
        else:
            few = len(window.times) * PIXELS_PER_POINT <= axis.width_s / pixel_s
            points = (window.times, window.mean) if few else thin(window.times, window.mean, pixel_s)
            curve.times, curve.values = points[0].copy(), points[1].copy()
            low = curve.tops = curve.values
        kept_to_s = axis.right_unix_s if newest_s > right_s else math.inf
        curve.drawn = Drawn(key, history.version, left_s, kept_to_s, axis.clock_unix_s)
        x = curve.times - (self._epoch_s or 0.0)
        curve.line.set_points(*corners(x, curve.values))
        curve.band.setVisible(bool(window.seconds))
        if window.seconds:
            curve.band.set_data(x, low, curve.tops)
        return True
