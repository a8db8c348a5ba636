"""The stacked plot: where the used memory of one device went, over time. Main thread only.

The areas look like the segments of the memory bar: tensors of the workspace in the device's colour, other allocations
paler, what the allocator keeps hatched, context and other processes grey.
"""

from __future__ import annotations

import math

import numpy as np
from PySide6.QtGui import QBrush

from devexplorer.core.session import Device, State
from devexplorer.core.telemetry.history import BY_ID, PART_METRICS
from devexplorer.core.telemetry.memory_breakdown import PART_TEXTS
from devexplorer.gui.plots.areas import AreaItem
from devexplorer.gui.plots.curves import Floats, highest, pooled, to_edges
from devexplorer.gui.plots.legend import Entry
from devexplorer.gui.plots.series import Drawn, Series
from devexplorer.gui.plots.time_axis import TimeAxis
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.timelines.metric import FIRST, SHOW_FIRST, ScaleButton
from devexplorer.gui.widgets import EmptyState, colour_of, part_brushes

STACK = (*(part.id for part in PART_METRICS), FIRST)
"""What can be in it, from the bottom. Where the allocator was not asked, memory used takes the place of all of them."""


class PartsPlot(TimelinePlot):
    """Areas on top of each other; a click on the legend takes one out of the stack."""

    def __init__(self, state: State, time_axis: TimeAxis) -> None:
        super().__init__(BY_ID[FIRST], state, time_axis, EmptyState("This device is no longer available.", SHOW_FIRST))
        self._device: Device | None = None
        self._taken = Drawn()
        self._tops: Floats = np.empty(0)
        self.times: Floats = np.empty(0)
        """Unix seconds."""
        self.stacked: dict[str, Floats] = {}
        """Bytes of each part that is drawn, from the bottom; NaN is a gap."""
        self._areas = {part: AreaItem(self._group) for part in STACK}
        self.scale_button = ScaleButton(self)
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

    # TimelinePlot's questions

    def _recolour(self) -> None:
        super()._recolour()
        colour = self._device.colour if self._device is not None else 0
        for part, area in self._areas.items():
            area.set_brushes(self._brushes(part, colour))

    @staticmethod
    def _brushes(part: str, colour: int) -> list[QBrush]:
        """As in the memory bar; `colour`: the device's index into the palette."""
        return part_brushes(part.removesuffix("_bytes"), colour)

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

    def _shown(self) -> list[str]:
        return [part for part in self._parts() if self.legend.shows(self._label(part))]

    def _series(self) -> list[Series]:
        if self._device is None:
            return []
        colour, history = self._device.colour, self._device.history
        return [
            Series(self._label(part), part_text_colour(part, colour), False, history, part)
            for part in reversed(self._shown())
        ]

    def _readout_titles(self) -> list[str]:
        if self._device is None:
            return []
        return [f"{self.device}{' simulated' if self._device.info.simulated else ''}"]

    def _entries(self) -> list[Entry]:
        if self._device is None:
            return []
        return [
            Entry(
                self._label(part),
                self._device.colour,
                False,  # said once, behind the unit and over the readout
                brushes=tuple(self._brushes(part, self._device.colour)),
                text_colour=part_text_colour(part, self._device.colour),
            )
            for part in self._parts()
        ]

    def _subtitles(self) -> list[str]:
        simulated = self._device is not None and self._device.info.simulated
        return [f"{self._scale.unit.name}{' · simulated' if simulated else ''}"]

    def _highest_shown(self) -> float:
        first = np.searchsorted(self.times, self._axis.left_unix_s, side="left")
        last = np.searchsorted(self.times, self._axis.right_unix_s, side="right")
        return highest(self._tops[first:last])

    def _rescale(self, highest_shown: float) -> bool:
        if self.scale_button.isChecked() and self._device is not None and self._device.total_bytes:
            return self._scale.set_top(max(float(self._device.total_bytes), highest_shown))
        return self._scale.fit(highest_shown)

    def _guides(self) -> list[tuple[float, str, str]]:
        return self._limit_guides(FIRST, [] if self._device is None else [self._device])

    def _forget_drawn(self) -> None:
        self._taken = Drawn()

    def _draw(self) -> bool:
        axis, shown = self._axis, tuple(self._shown())
        version = (-1, -1) if self._device is None else self._device.history.version
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
        axis = self._axis
        if self._device is None or not shown:
            return np.empty(0), np.empty((0, 0))
        history = self._device.history
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


def part_text_colour(part: str, colour: int) -> str:
    """The part's name in the legend: a grey area would make a grey too weak for text."""
    return colour_of("dim" if part in ("context_bytes", "other_processes_bytes") else colour)
