"""Arithmetic of the plots: how a curve is thinned, where its bins end, how the y axis is scaled.

No widget, any thread. Arrays are `float64` of shape `(n,)`; times are unix seconds; NaN values are gaps.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from devexplorer.core.telemetry.metrics import UNITS

Floats = npt.NDArray[np.float64]

HEADROOM = 1.12
"""How much higher than the highest value the y axis reaches: a curve does not run along the edge."""


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


def corners(times: Floats, values: Floats) -> tuple[Floats, Floats]:
    """The same line without the points between two equal ones: what does not change is one piece to paint."""
    inner = (values[1:-1] == values[:-2]) & (values[1:-1] == values[2:])
    kept = np.concatenate((np.ones(min(len(values), 1), bool), ~inner, np.ones(int(len(values) > 1), bool)))
    return times[kept], values[kept]


def pooled(times: Floats, values: Floats, bin_s: float) -> tuple[Floats, Floats]:
    """Mean of each bin of `bin_s` seconds, for curves that are stacked and have to stay in step: `values` has shape
    `(curves, n)`.

    Moments at which no curve is known are never joined with others; in the rest what is not known counts as 0.
    """
    if len(times) == 0:
        return times, values
    missing = np.logical_and.reduce(np.isnan(values), axis=0)
    bins = np.floor(times / bin_s)
    new = np.concatenate(([True], (bins[1:] != bins[:-1]) | (missing[1:] != missing[:-1])))
    starts = np.flatnonzero(new)
    counts = np.diff(np.concatenate((starts, [len(times)])))
    means = np.add.reduceat(np.where(missing, np.nan, np.nan_to_num(values)), starts, axis=1) / counts
    return np.add.reduceat(times, starts) / counts, means


def to_edges(times: Floats, rows: Floats, half_s: float, last_s: float) -> tuple[Floats, Floats]:
    """Let curves of bins (`rows` of shape `(curves, n)`) reach the outer edges of the first and last bin before and
    after each gap.

    So a gap is as wide as it was and a lone bin is seen. No curve goes beyond `last_s`, the newest reading.
    """
    known = ~np.isnan(rows[0])
    before = np.concatenate(([False], known[:-1]))
    after = np.concatenate((known[1:], [False]))
    begins, ends = np.flatnonzero(known & ~before), np.flatnonzero(known & ~after)
    where = np.concatenate((begins, ends + 1))
    new_times = np.concatenate(
        (times[begins] - half_s, np.maximum(np.minimum(times[ends] + half_s, last_s), times[ends]))
    )
    new_rows = rows[:, np.concatenate((begins, ends))]
    return np.insert(times, where, new_times), np.insert(rows, where, new_rows, axis=1)


def highest(values: Floats) -> float:
    """The largest value, gaps left out; 0 where there is none."""
    return float(np.fmax.reduce(values, initial=0.0))


def round_values(low: float, high: float, most: int) -> tuple[float, list[float]]:
    """A step of 1, 2 or 5 times a power of ten that makes at most about `most` steps, and its multiples from `low` to
    `high`; 0 and none where they are too near to each other."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 and math.isfinite(least) else 0.0
    step = next((factor * power for factor in (1, 2, 5, 10) if factor * power >= least), 0.0)
    if not step:
        return 0.0, []
    numbers = range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)
    return step, [number * step for number in numbers]


def decades(low: float, high: float) -> list[float]:
    """Powers of ten between the two."""
    first, last = math.ceil(math.log10(low) - 1e-9), math.floor(math.log10(high) + 1e-9)
    return [10.0**power for power in range(first, last + 1)]


class Unit(NamedTuple):
    """A unit of the y axis: its name and how many of the stored unit it has."""

    name: str
    factor: float


MEMORY_UNITS = (Unit("GiB", 1024.0**3), Unit("MiB", 1024.0**2), Unit("KiB", 1024.0))
"""Of bytes, largest first."""
THROUGHPUT_UNITS = (Unit("TFLOP/s", 1.0), Unit("GFLOP/s", 1e-3), Unit("MFLOP/s", 1e-6))
"""Of TFLOP/s, largest first."""
AXIS_UNITS = {
    "bytes": MEMORY_UNITS,
    "bytes_s": tuple(Unit(f"{unit.name}/s", unit.factor) for unit in MEMORY_UNITS),
    "joule": (Unit("MJ", 1e6), Unit("kJ", 1e3), Unit("J", 1.0)),
    "megahertz": (Unit("GHz", 1e3), Unit("MHz", 1.0)),
    "tflops": THROUGHPUT_UNITS,
}
"""By the unit of a metric; the others have one unit, `core.telemetry.metrics.UNITS`."""


LARGER_UNIT_FROM = 0.78
"""A larger unit is taken already for so much of it: four digits on an axis (1250 MiB) are none that one reads at a
glance."""


def unit_of(value: float, units: tuple[Unit, ...]) -> Unit:
    """The one to write this value in; the largest for 0."""
    found = (unit for unit in units if value >= LARGER_UNIT_FROM * unit.factor)
    return next(found, units[-1]) if value else units[0]


def axis_units(unit: str) -> tuple[Unit, ...]:
    """The units that an axis of a metric's unit chooses from, largest first."""
    return AXIS_UNITS.get(unit) or (Unit(UNITS[unit], 1.0),)


@dataclass
class YScale:
    """Top, tick step and unit of a y axis from 0. Grows at once, shrinks only when much too large: no flicker."""

    units: tuple[Unit, ...]
    top: float = 0.0
    """In the stored unit."""
    step: float = 0.0
    unit: Unit = field(init=False)

    stale: bool = False
    """Set to have the next `fit` choose again, however well the current top fits."""

    def __post_init__(self) -> None:
        self.set_units(self.units)

    def set_units(self, units: tuple[Unit, ...]) -> None:
        """Scale something else from now on."""
        self.units, self.unit, self.stale = units, units[0], True
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
        self.unit = unit_of(at_least, self.units)
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
