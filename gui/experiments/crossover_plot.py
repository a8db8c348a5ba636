"""Seconds of one product over its size, on the CPU and on a device, both logarithmic, with lines where the device
overtakes. Main thread."""

from __future__ import annotations

import math
from collections.abc import Sequence

from devexplorer.core.base import seconds_text
from devexplorer.core.experiments.overtaking import DeviceSeconds, alone, overtaking, with_copies
from devexplorer.core.records import CrossoverMeasured
from devexplorer.gui.charts.size_curve import Point, Series, SizeCurve
from devexplorer.gui.plots.canvas import Ticks
from devexplorer.gui.widgets import CPU, device_dash

SHORTEST = 1e-9
"""Shorter times in seconds have no place on the axis."""
WITH_COPIES_DASHES = (1.0, 3.0)


class CrossoverPlot(SizeCurve):
    """Feed it with `show_measured`."""

    def __init__(self) -> None:
        super().__init__("Seconds of a product over its size")
        self._shown: object = None
        self.set_axis("n", "{:.0f}".format)

    def show_measured(self, measured: CrossoverMeasured, colour: int) -> None:
        """Show these points; `colour` is the device's index into the palette."""
        if (measured, colour) == self._shown:
            return
        self._shown = (measured, colour)
        device, simulated = measured.device, measured.simulated
        dashes, mark = tuple(device_dash(colour)), "ring" if simulated else ""
        self.set_curves(
            [
                Series("cpu", CPU, _times(measured, lambda point: point.cpu_seconds)),
                Series(device, colour, _times(measured, alone), simulated, mark, dashes=dashes),
                Series(
                    f"{device} with copies", colour, _times(measured, with_copies), simulated, "square",
                    dashes=WITH_COPIES_DASHES,
                ),
            ],
            markers=_overtakings(measured),
        )  # fmt: skip

    def _y(self, value: float) -> float:
        return math.log10(max(value, SHORTEST))

    def _y_ticks(self) -> Ticks:
        seconds = [self._y(point[1]) for item in self.series for point in item.points] or [0.0]
        low, high = math.floor(min(seconds)), math.ceil(max(seconds))
        return [(float(power), seconds_text(10.0**power)) for power in range(low, max(high, low + 1) + 1)]

    def _y_name(self) -> str:
        return "time of n×n"

    def _unit(self) -> tuple[str, float]:
        return "s", 1.0

    def _value_text(self, value: float) -> str:
        return seconds_text(value)

    def _description(self) -> str:
        sizes = zip(*(item.points for item in self.series), strict=True)
        return "; ".join(f"size {self._x_text(points[0][0])}: {self._times_text(points)}" for points in sizes)

    def _times_text(self, points: Sequence[Point]) -> str:
        times = zip(self.series, points, strict=True)
        return ", ".join(f"{item.name} {seconds_text(point[1])}" for item, point in times)


def _times(measured: CrossoverMeasured, seconds: DeviceSeconds) -> tuple[Point, ...]:
    return tuple((float(point.size), *(seconds(point),) * 3) for point in measured.points)


def _overtakings(measured: CrossoverMeasured) -> list[tuple[float, str]]:
    """Sizes from which on the device is faster, with their labels."""
    first, copied = (overtaking(measured.points, seconds) for seconds in (alone, with_copies))
    if first is not None and copied is not None and first.size == copied.size:
        return [(first.size, f"overtakes from {first.size}, with copies too")]
    lines = [] if first is None else [(float(first.size), f"overtakes from {first.size}")]
    return lines if copied is None else [*lines, (float(copied.size), f"with copies from {copied.size}")]
