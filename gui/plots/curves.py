"""The curves of plots: how one is thinned, where its bins end, how the y axis is scaled (arithmetic, any thread); the
items that paint lines and the area between two of them. Main thread.

Arrays are `float64` of shape `(n,)`; times are unix seconds; NaN values are gaps.

A line is one pixel of the layout wide on screens with several device pixels to each: a pen of one device pixel is a
hair there, and a wider antialiased one costs twenty times as much as the thin one drawn twice, side by side.

On the screen an area (the span from lowest to highest reading of each bin, a part of a stack) is painted as one bar per
pixel column: filling a polygon of a thousand jagged corners takes Qt fifteen times as long
(tests/benchmarks/timeline_memory.py). In a drawing, where there are no pixels, it is the polygon.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from pyqtgraph.Qt.internals import PrimitiveArray
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QBrush, QColor, QPaintEngine, QPainter, QPainterPath, QPen, QPolygonF, QTransform
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

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
    starts = _starts(times, np.isnan(values), bin_s)
    ends = np.concatenate((starts[1:], [len(times)])) - 1
    low, high = np.minimum.reduceat(values, starts), np.maximum.reduceat(values, starts)
    rising = values[ends] >= values[starts]
    out_times = np.column_stack((times[starts], times[ends])).ravel()
    return out_times, np.column_stack((np.where(rising, low, high), np.where(rising, high, low))).ravel()


def _starts(times: Floats, missing: Any, bin_s: float) -> Any:
    """Where a bin begins; what is missing is in bins of its own."""
    bins = np.floor(times / bin_s)
    return np.flatnonzero(np.concatenate(([True], (bins[1:] != bins[:-1]) | (missing[1:] != missing[:-1]))))


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
    starts = _starts(times, missing, bin_s)
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
        return [(min(index * self.step, self.top), f"{index * step:.{digits}f}" if index else "0") for index in steps]


DOT_PX, POINT = 5, 1e-6
"""Of a value between two gaps, as a short run has: its size in pixels, below which a line would be behind the run's
marker, and in the plot's own coordinates."""


class CurveItem(pg.PlotCurveItem):  # type: ignore[misc]
    """A `PlotCurveItem` for cosmetic pens one pixel wide, of finite values and NaN."""

    def paint(self, painter: QPainter, option: Any, widget: Any) -> None:
        pen = self.opts["pen"]
        for thin in _side_by_side(painter, pg.mkPen(pen)):
            self.opts["pen"] = thin
            super().paint(painter, option, widget)
        self.opts["pen"] = pen


class LiveCurve:
    """A curve of a `LiveCurves`: what it is painted with, and whether it is."""

    def __init__(self) -> None:
        self.pen = QPen(Qt.PenStyle.NoPen)
        """One pixel wide and cosmetic."""
        self.is_shown = True
        self.pieces: list[QPolygonF] = []
        """Between two gaps."""
        self.extent = QRectF()

    def set_points(self, x: Floats, y: Floats) -> None:
        """Arrays of shape `(n,)` in the plot's own coordinates, x rising; NaN in y is a gap."""
        low = float(np.minimum.reduce(y)) if len(y) else math.nan  # NaN where there is one
        if len(y) > 1 and not math.isnan(low):
            self.pieces = [pg.functions.arrayToQPolygonF(x, y)]
            self.extent = QRectF(x[0], low, x[-1] - x[0], float(np.maximum.reduce(y)) - low)
            return
        known = np.flatnonzero(~np.isnan(y))
        runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(known) else []
        self.pieces = [pg.functions.arrayToQPolygonF(x[run], y[run]) for run in runs]
        # an area of no size is none to Qt, and not painted
        areas = (piece.boundingRect().adjusted(0, 0, POINT, POINT) for piece in self.pieces)
        self.extent = reduce(QRectF.united, areas, QRectF())


class LiveCurves(QGraphicsItem):
    """All curves of a plot over time. One item: Qt asks each for its extent several times a picture, and asking in
    Python costs as much as painting."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.curves: list[LiveCurve] = []
        """Those that are painted."""
        self._extent = QRectF()

    def show_curves(self, curves: Iterable[LiveCurve]) -> None:
        """Paint these from now on, the first one lowest; called again whenever one of them changed."""
        self.curves = [curve for curve in curves if curve.is_shown and curve.pieces]
        self.prepareGeometryChange()
        self._extent = reduce(QRectF.united, (curve.extent for curve in self.curves), QRectF())
        self.update()

    def boundingRect(self) -> QRectF:
        return self._extent

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for curve in self.curves:
            for thin in _side_by_side(painter, curve.pen):
                painter.setPen(thin)
                for piece in curve.pieces:
                    painter.drawPolyline(piece)
            dot = QPen(curve.pen.color(), DOT_PX)
            dot.setCapStyle(Qt.PenCapStyle.RoundCap)
            dot.setCosmetic(True)
            painter.setPen(dot)
            scale = painter.worldTransform().m11()
            for piece in curve.pieces:
                if scale * (piece.last().x() - piece.first().x()) < DOT_PX:
                    painter.drawPoints(piece)


def _side_by_side(painter: QPainter, pen: QPen) -> Iterator[QPen]:
    """The pens to draw a line with, one after the other; the painter is moved a little for each."""
    device = painter.device()
    ratio = round(device.devicePixelRatioF()) if device is not None else 1
    if ratio < 2:
        yield pen
        return
    placed, thin = painter.worldTransform(), _longer_dashes(pen, ratio)
    for step in range(ratio):
        aside = (step - (ratio - 1) / 2) / ratio
        painter.setWorldTransform(placed * QTransform.fromTranslate(aside, aside))
        yield thin
    painter.setWorldTransform(placed)


def straight_pen(colour: QColor | str | None, view: QWidget | None) -> QPen:
    """For a line of pyqtgraph in `view`: straight ones cost nothing, however wide."""
    return pg.mkPen(colour, width=1 if view is None else max(1, round(view.devicePixelRatioF())))  # type: ignore[no-any-return]


def _longer_dashes(pen: QPen, factor: int) -> QPen:
    pen = QPen(pen)
    if dashes := pen.dashPattern():
        pen.setDashPattern([factor * length for length in dashes])
    return pen


NONE = np.empty(0)


class AreaItem(QGraphicsItem):
    """Paints what lies between `low` and `high`, without outline; NaN is a gap."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self._brushes: tuple[QBrush, ...] = ()
        self._x = self._low = self._high = NONE
        self._rect = QRectF()
        self._bars = PrimitiveArray(QRectF, 4)

    def set_brushes(self, brushes: Sequence[QBrush]) -> None:
        """Paint with these, one over the other."""
        if tuple(brushes) != self._brushes:
            self._brushes = tuple(brushes)
            self.update()

    def set_data(self, x: Floats, low: Floats, high: Floats) -> None:
        """Show this area: arrays of shape `(n,)` in the plot's own coordinates, x rising."""
        self.prepareGeometryChange()
        self._x, self._low, self._high = x, low, high
        known = ~(np.isnan(low) | np.isnan(high))
        self._rect = QRectF()
        if known.any():
            left, bottom = float(x[known][0]), float(low[known].min())
            self._rect = QRectF(left, bottom, float(x[known][-1]) - left, float(high[known].max()) - bottom)
        self.update()

    def boundingRect(self) -> QRectF:
        return self._rect

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        if self._rect.isNull():
            return
        on_pixels = painter.paintEngine().type() == QPaintEngine.Type.Raster
        painter.save()
        painter.setRenderHint(QPainter.RenderHint.Antialiasing, False)
        painter.setPen(Qt.PenStyle.NoPen)
        path = None if on_pixels else painter.transform().map(self._path())
        if path is None:
            self._fill_bars(painter)
        painter.resetTransform()  # in pixels: a hatch would be stretched with the axes
        for brush in self._brushes:
            painter.setBrush(brush)
            if path is None:
                painter.drawRects(*self._bars.drawargs())
            else:
                painter.drawPath(path)
        painter.restore()

    def _fill_bars(self, painter: QPainter) -> None:
        """A bar for each pixel column whose middle lies in the area."""
        to_px = painter.transform()
        x = self._x * to_px.m11() + to_px.dx()
        first, last = max(math.floor(x[0]), 0), min(math.ceil(x[-1]), painter.device().width())
        middles = np.arange(first, max(last, first)) + 0.5
        tops, bottoms = (
            np.round(np.interp(middles, x, edge) * to_px.m22() + to_px.dy()) for edge in (self._high, self._low)
        )
        seen = ~(np.isnan(tops) | np.isnan(bottoms))
        self._bars.resize(int(seen.sum()))
        bars = self._bars.ndarray()
        bars[:, 0], bars[:, 1], bars[:, 2] = middles[seen] - 0.5, tops[seen], 1.0
        bars[:, 3] = bottoms[seen] - tops[seen]

    def _path(self) -> QPainterPath:
        """The same as polygons, in the plot's own coordinates."""
        path = QPainterPath()
        known = np.flatnonzero(~(np.isnan(self._low) | np.isnan(self._high)))
        for run in np.split(known, np.flatnonzero(np.diff(known) > 1) + 1):
            around = (
                np.concatenate((self._x[run], self._x[run][::-1])),
                np.concatenate((self._high[run], self._low[run][::-1])),
            )
            path.addPolygon(pg.functions.arrayToQPolygonF(*around))
        return path
