"""Arithmetic of the plots: which part of a history a curve takes, how it is thinned, how the y axis is scaled.

No widget, any thread. Arrays are `float64` of shape `(n,)`; times are unix seconds; NaN values are gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float64]

HEADROOM = 1.12
"""How much higher than the highest value the y axis reaches: the first row of marker labels stands there."""


def part(times: Floats, left_s: float, right_s: float) -> slice:
    """The readings between both times and one more on each side, so that the line reaches the edges."""
    first = int(np.searchsorted(times, left_s, side="left")) - 1
    last = int(np.searchsorted(times, right_s, side="right")) + 1
    return slice(max(first, 0), min(last, len(times)))


def thin(times: Floats, values: Floats, bin_s: float) -> tuple[Floats, Floats]:
    """Lowest and highest reading of each bin of `bin_s` seconds; a gap stays a gap, the newest reading the newest.

    pyqtgraph's own peak mode leaves out the newest readings and blanks a bin for one NaN. Bins start at multiples of
    `bin_s` since the epoch, not at the first reading, so that a scrolling curve does not shimmer.
    """
    if len(times) == 0:
        return times, values
    missing = np.isnan(values)
    bins = np.floor(times / bin_s)
    new = np.concatenate(([True], (bins[1:] != bins[:-1]) | (missing[1:] != missing[:-1])))
    starts = np.flatnonzero(new)
    ends = np.concatenate((starts[1:], [len(times)])) - 1
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    rising = values[ends] >= values[starts]
    out_times = np.column_stack((times[starts], times[ends])).ravel()
    return out_times, np.column_stack((np.where(rising, low, high), np.where(rising, high, low))).ravel()


def highest(values: Floats) -> float:
    """The largest value, gaps left out; 0 where there is none."""
    return float(np.fmax.reduce(values, initial=0.0))


class Unit(NamedTuple):
    """A unit of the y axis: its name and how many of the stored unit it has."""

    name: str
    factor: float


MEMORY_UNITS = (Unit("GiB", 1024.0**3), Unit("MiB", 1024.0**2), Unit("KiB", 1024.0))
"""Of bytes, largest first."""
THROUGHPUT_UNITS = (Unit("TFLOP/s", 1.0), Unit("GFLOP/s", 1e-3), Unit("MFLOP/s", 1e-6))
"""Of TFLOP/s, largest first."""


@dataclass
class YScale:
    """Top, tick step and unit of a y axis from 0. Grows at once, shrinks only when much too large: no flicker."""

    units: tuple[Unit, ...]
    top: float = 0.0
    """In the stored unit."""
    step: float = 0.0
    unit: Unit = field(init=False)

    stale: bool = False
    """Set to have the next `fit` choose anew, however well the present top fits."""

    def __post_init__(self) -> None:
        self.unit = self.units[0]
        self.top, self.step = self.unit.factor, self.unit.factor / 4

    def fit(self, needed: float) -> bool:
        """Make room for `needed` and a little air; returns whether anything changed."""
        needed *= HEADROOM
        if needed <= 0 or (not self.stale and 0.6 * self.top <= needed <= self.top):
            return False
        self.stale = False
        return self.set_top(needed)

    def set_top(self, at_least: float) -> bool:
        """The next round top from `at_least` on, with 3 to 5 steps; returns whether anything changed."""
        before = (self.top, self.step)
        self.unit = next((unit for unit in self.units if at_least >= unit.factor), self.units[-1])
        value = at_least / self.unit.factor
        magnitude = 10.0 ** math.floor(math.log10(value))
        choices = [
            (math.ceil(value / step - 1e-9), step)
            for step in (digit * scale for scale in (magnitude / 10, magnitude) for digit in (1, 2, 2.5, 5))
        ]
        count, step = min((c for c in choices if 3 <= c[0] <= 5), key=lambda c: (c[0] * c[1], c[0]))
        self.top, self.step = count * step * self.unit.factor, step * self.unit.factor
        return (self.top, self.step) != before

    @property
    def ticks(self) -> list[tuple[float, str]]:
        """Positions in the stored unit and their texts in `unit`."""
        step = self.step / self.unit.factor
        digits = next((digits for digits in range(6) if math.isclose(step, round(step, digits))), 6)
        steps = range(round(self.top / self.step) + 1)
        return [(index * self.step, f"{index * step:.{digits}f}" if index else "0") for index in steps]
