"""A panel with one curve per device over the time that all plots share. Main thread; the heartbeat calls `refresh`.

What costs is done only when it must be: curves are made once and take arrays, while live the curves move as one group
and the axes stand still, markers are painted by one item, texts change twice a second. Pens are one pixel wide:
antialiased they cost what plain ones do (tests/benchmarks/plot_cost.py), wide and antialiased fifty times as much.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRectF, QSize, QTimer
from PySide6.QtGui import QColor, QFontMetrics, QPen
from PySide6.QtWidgets import QWidget

from devexplorer.core.state import Device, State
from devexplorer.core.telemetry.timeline import Timeline
from devexplorer.gui.panels.panel import EDGE_PX, Panel
from devexplorer.gui.plots.canvas import Canvas, TimeViewBox, ValueTicks
from devexplorer.gui.plots.cursor import Cursor, Reading
from devexplorer.gui.plots.curves import Floats, Unit, YScale, highest, part, thin
from devexplorer.gui.plots.legend import Entry, Legend
from devexplorer.gui.plots.markers import GridItem, Line, LinesItem
from devexplorer.gui.plots.time_axis import TimeAxis, clock_text
from devexplorer.gui.theme import DARK, Role, Theme, device_colour, device_pen, font

TEXTS_S = 0.5
"""Texts change twice a second: a number that runs faster cannot be read."""
PIXELS_PER_POINT = 0.5
"""More than two readings a pixel are thinned to the lowest and highest of each pixel."""
LAG_S = 2.5
"""The cursor shows nothing where the newest reading before it is older than this."""


@dataclass
class _Curve:
    """What is drawn of one device."""

    item: Any
    left_s: float = math.nan
    """Unix time from which on it is complete."""
    right_s: float = math.nan
    """Unix time until which it is complete; inf when it has the newest reading."""
    key: tuple[int, float, float] = (0, 0.0, 0.0)
    """Length, first and last time of the history when it was taken."""
    bin_s: float = 0.0
    times: Floats = field(default_factory=lambda: np.empty(0))
    values: Floats = field(default_factory=lambda: np.empty(0))


class TimelinePlot(Panel):
    """Base of the memory and the throughput plot. Subclasses say which history, scale, guides and texts."""

    def __init__(self, title: str, units: tuple[Unit, ...], state: State, axis: TimeAxis, parent: QWidget | None = None) -> None:
        super().__init__(title, units[0].name, parent)
        self._state, self._axis = state, axis
        self._theme = DARK
        self._scale = YScale(units)
        self._curves: dict[str, _Curve] = {}
        self._epoch_s: float | None = None
        self._texts_at_s = -math.inf
        self._axis_is_stale = True
        self._in_header: list[QWidget] = []

        self._view = TimeViewBox(axis)
        self._value_ticks = ValueTicks(self._scale)
        self.canvas = Canvas(axis, self._view, self._value_ticks)
        self.canvas.setAccessibleName(f"{title} over time")
        self.canvas.setToolTip("")
        self._group = pg.ItemGroup()  # all curves; scrolling moves this one item
        self._view.addItem(self._group, ignoreBounds=True)
        self._grid = GridItem(self._view)
        self._lines = LinesItem(self._view)
        self._cursor = Cursor(self.canvas, self._view)
        self.legend = Legend()
        self.legend.toggled.connect(self._legend_toggled)
        self.add_to_header(self.legend)
        self.set_content(self.canvas)
        self._view.sigResized.connect(self._axis_changed)
        axis.changed.connect(self._axis_changed)
        axis.cursor_moved.connect(self._show_cursor)
        self.set_theme(DARK)

    def add_to_header(self, widget: QWidget) -> None:
        super().add_to_header(widget)
        self._in_header.append(widget)

    # What subclasses say

    def _timeline(self, device: Device) -> Timeline:
        raise NotImplementedError

    def _listed(self, device: Device) -> bool:
        """Whether the device has a curve here."""
        return True

    def _rescale(self, highest_shown: float) -> bool:
        """Fit the scale to what is shown; returns whether it changed."""
        return self._scale.fit(highest_shown)

    def _guides(self) -> list[tuple[float, str, str]]:
        """Horizontal lines: value in the stored unit, label, colour."""
        return []

    def _entry(self, device: Device) -> Entry:
        return Entry(device.info.id, device.colour, device.info.simulated)

    def _subtitles(self) -> list[str]:
        """Wordings of the dimmed part of the header, longest first; the first that fits beside the legend is taken."""
        return [self._scale.unit.name]

    def _value_text(self, value: float) -> str:
        raise NotImplementedError

    # What the window calls

    def refresh(self, now_unix_s: float) -> None:
        """Draw what changed since the last call; up to 30 times a second."""
        self._axis.advance(now_unix_s)
        if self._epoch_s is None:
            self._epoch_s = self._axis.now_unix_s
        if not self.isVisible():
            return
        texts_are_due = self._axis_is_stale or abs(now_unix_s - self._texts_at_s) >= TEXTS_S
        self._group.setPos(self._epoch_s - self._axis.now_unix_s, 0.0)
        changed = self._draw_curves()
        if (changed or texts_are_due) and self._rescale(self._highest_shown()):
            self._axis_is_stale = texts_are_due = True
        if self._axis_is_stale:
            self._apply_axis()
        if texts_are_due:
            self._texts_at_s = now_unix_s
            self._refresh_texts()
        self._draw_lines()
        if self._axis.cursor_s is not None:
            self._show_cursor()

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._theme = theme
        self.canvas.setBackground(QColor(theme.panel))
        for ticks in (self._value_ticks, self.canvas.getAxis("bottom")):
            ticks.setTickFont(font(Role.LABEL))
            ticks.setTextPen(QColor(theme.dim))
            ticks.setPen(pg.mkPen(None))
            ticks.setTickPen(pg.mkPen(None))
        for name, curve in self._curves.items():
            if name in self._state.devices:
                curve.item.setPen(self._pen(self._state.devices[name]))
        self.legend.set_theme(theme)
        self._grid.set_theme(theme)
        self._lines.set_theme(theme)
        self._cursor.set_theme(theme)
        self._axis_is_stale = True

    def curve_data(self, device: str) -> tuple[Floats, Floats]:
        """Times (unix seconds) and values of what is drawn of `device`; empty when it has no curve or a hidden one."""
        curve = self._curves.get(device)
        if curve is None or not curve.item.isVisible():
            return np.empty(0), np.empty(0)
        return curve.times, curve.values

    @property
    def marker_labels(self) -> list[str]:
        """Labels of markers as they stand in the plot, cut short where room was short, oldest first."""
        return [label.text for label in self._lines.labels]

    @property
    def guide_labels(self) -> list[str]:
        """Labels of the horizontal lines."""
        return [label.text for label in self._lines.guide_labels]

    @property
    def y_ticks(self) -> list[str]:
        """Texts of the y axis, from the bottom."""
        return [text for _, text in self._scale.ticks]

    @property
    def x_ticks(self) -> list[str]:
        """Texts of the x axis, from the left."""
        ticks = self.canvas.getAxis("bottom")
        [(spacing, values)] = ticks.tickValues(self._axis.left_s, self._axis.right_s, ticks.geometry().width())
        texts: list[str] = ticks.tickStrings(values, 1.0, spacing)
        return texts

    @property
    def cursor_text(self) -> str:
        """What the cursor's box says, as HTML; empty while there is no cursor."""
        return "" if self._cursor.box.isHidden() else self._cursor.box.text()

    def sizeHint(self) -> QSize:
        return QSize(640, 232)

    def minimumSizeHint(self) -> QSize:
        return QSize(280, 150)

    # Drawing

    def _shown_devices(self) -> list[Device]:
        return [d for d in self._state.devices.values() if self._listed(d) and self.legend.shows(d.info.id)]

    def _pen(self, device: Device) -> QPen:
        pen = device_pen(device.colour, self._theme, simulated=device.info.simulated)
        pen.setCosmetic(True)
        return pen

    def _draw_curves(self) -> bool:
        shown = {device.info.id: device for device in self._shown_devices()}
        changed = False
        for name in self._curves.keys() - shown.keys():
            changed |= self._curves[name].item.isVisible()
            if name in self._state.devices:
                self._curves[name].item.hide()
            else:
                self._view.removeItem(self._curves.pop(name).item)
        for name, device in shown.items():
            if name not in self._curves:
                item = pg.PlotCurveItem(pen=self._pen(device), antialias=True, connect="finite")
                item.setParentItem(self._group)
                self._curves[name] = _Curve(item)
            curve = self._curves[name]
            if not curve.item.isVisible():
                curve.item.show()
                changed = True
            changed |= self._draw_curve(curve, self._timeline(device))
        return changed

    def _draw_curve(self, curve: _Curve, timeline: Timeline) -> bool:
        """Hand the visible part of `timeline` to its curve if that part changed; returns whether it did."""
        axis = self._axis
        times, values = timeline.window()
        key = (len(times), float(times[0]), float(times[-1])) if len(times) else (0, 0.0, 0.0)
        bin_s = axis.width_s / max(self._view.width(), 1.0)
        uncovered = not curve.left_s <= axis.left_unix_s or axis.right_unix_s > curve.right_s
        grew = key != curve.key and curve.right_s == math.inf
        started_anew = key[2] < curve.key[2]  # the clock was set back
        if not (uncovered or grew or started_anew or bin_s != curve.bin_s):
            return False
        # While live the left end stays for a quarter of a span longer than it must: a dash pattern starts with the
        # curve's first point, and one that starts elsewhere on every tick would crawl.
        left_s = curve.left_s
        may_stay = axis.left_unix_s - axis.width_s / 4 <= left_s <= axis.left_unix_s
        if not may_stay or started_anew or bin_s != curve.bin_s:
            left_s = axis.left_unix_s
        taken = part(times, left_s, axis.right_unix_s if axis.paused else math.inf)
        shown_times, shown_values = times[taken], values[taken]
        if len(shown_times) * PIXELS_PER_POINT > axis.width_s / bin_s:
            shown_times, shown_values = thin(shown_times, shown_values, bin_s)
        curve.times, curve.values = shown_times.copy(), shown_values.copy()
        curve.left_s, curve.key, curve.bin_s = left_s, key, bin_s
        curve.right_s = axis.right_unix_s if taken.stop < len(times) else math.inf
        curve.item.setData(curve.times - (self._epoch_s or 0.0), curve.values)
        return True

    def _highest_shown(self) -> float:
        """The largest value between the plot's edges."""
        tops = []
        for curve in self._curves.values():
            if curve.item.isVisible():
                first = np.searchsorted(curve.times, self._axis.left_unix_s, side="left")
                last = np.searchsorted(curve.times, self._axis.right_unix_s, side="right")
                tops.append(highest(curve.values[first:last]))
        return max(tops, default=0.0)

    def _draw_lines(self) -> None:
        axis = self._axis
        width, height = float(self._view.width()), float(self._view.height())
        per_s = width / axis.width_s
        markers = [
            Line(round((marker.time_unix_s - axis.left_unix_s) * per_s), marker.text, self._marker_colour(marker.device))
            for marker in self._state.markers
            if axis.left_unix_s <= marker.time_unix_s <= axis.right_unix_s
        ]
        guides = [Line(round((1 - value / self._scale.top) * height), text, colour) for value, text, colour in self._guides()]
        grid = [round((1 - value / self._scale.top) * height) for value, _ in self._scale.ticks]
        self._grid.show_lines(QRectF(0, 0, width, height), grid)
        self._lines.show_lines(QRectF(0, 0, width, height), sorted(markers), guides)

    def _marker_colour(self, device: str | None) -> str:
        known = self._state.devices.get(device or "")
        return self._theme.dim if known is None else device_colour(known.colour, self._theme)

    def _refresh_texts(self) -> None:
        self.legend.set_entries([self._entry(d) for d in self._state.devices.values() if self._listed(d)])
        metrics = QFontMetrics(self._subtitle.font())
        taken = sum(widget.sizeHint().width() + self._header.spacing() for widget in (self._title, *self._in_header))
        wordings = self._subtitles()
        words = next((w for w in wordings if metrics.horizontalAdvance(w) + taken + 2 * EDGE_PX <= self.width()), wordings[-1])
        self.set_subtitle(words)
        self._subtitle.setMinimumWidth(metrics.horizontalAdvance(words) + 2)

    # Time axis and cursor

    def _axis_changed(self) -> None:
        self._axis_is_stale = True
        QTimer.singleShot(0, self, self._refresh_stale)  # at once, and once for several changes

    def _refresh_stale(self) -> None:
        if self._axis_is_stale:
            self._refresh_now()

    def _refresh_now(self) -> None:
        if self._epoch_s is not None:  # else the heartbeat has not begun, and nobody knows what time it is
            self.refresh(self._axis.clock_unix_s)

    def _apply_axis(self) -> None:
        self._axis_is_stale = False
        self._view.setXRange(self._axis.left_s, self._axis.right_s, padding=0)
        self._view.setYRange(0, self._scale.top, padding=0)
        for ticks in (self._value_ticks, self.canvas.getAxis("bottom")):
            ticks.picture = None
            ticks.update()

    def _legend_toggled(self, device: str, shown: bool) -> None:
        self._texts_at_s = -math.inf
        self._refresh_now()

    def _show_cursor(self) -> None:
        axis = self._axis
        if axis.cursor_s is None or not self.isVisible() or self.is_empty:
            self._cursor.hide()
            return
        time_s = axis.now_unix_s + axis.cursor_s
        readings = [
            Reading(
                device.info.id,
                device_colour(device.colour, self._theme),
                self._value_text(self._value_at(self._timeline(device), time_s)),
                device.info.simulated,
            )
            for device in self._shown_devices()
        ]
        x_px = (axis.cursor_s - axis.left_s) / axis.width_s * self._view.width()
        corner = self.canvas.mapFromScene(self._view.mapToScene(QPointF(0, 0)))
        plot = self.canvas.mapFromScene(self._view.mapRectToScene(self._view.rect())).boundingRect()
        words = clock_text(time_s) if axis.paused else f"−{-axis.cursor_s:.1f} s · {clock_text(time_s)}"
        self._cursor.show_at(axis.cursor_s, x_px + corner.x(), plot, words, readings)

    @staticmethod
    def _value_at(timeline: Timeline, time_s: float) -> float:
        times, _ = timeline.window()
        index = int(np.searchsorted(times, time_s, side="right")) - 1
        if index < 0 or time_s - times[index] > LAG_S:
            return math.nan
        return timeline.value_at(time_s)
