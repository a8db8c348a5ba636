"""How often values occur: one bar per bin in the device's colour, what was there before as an outline. Main thread."""

from __future__ import annotations

import math

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QSize, Qt
from PySide6.QtGui import QAccessible

from devexplorer.core.parameters.records import Values
from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.curves import CurveItem, Floats, round_values
from devexplorer.gui.widgets import (
    CPU,
    EDGE_PX,
    Figures,
    Picture,
    Role,
    current_theme,
    device_colour,
    hbox,
    label,
    number_texts,
    theme_changed,
    vbox,
)

TICK_EVERY_PX, FEWEST_TICKS = 110, 3
MOST_DIGITS = 6
"""Behind or before the point; longer numbers are written with an exponent."""
MINUS = "−"
MIN_PX = QSize(240, 110)


def _bins(values: Values) -> tuple[Floats, Floats]:
    """Edges of the bins, and the share of the values per unit of the axis in each: areas are equal, whatever the bins'
    widths. Where all values are the same it is one bin around them."""
    if values.high <= values.low:
        return np.array([values.low - 1 / 80, values.low + 1 / 80]), np.ones(1)
    edges = np.linspace(values.low, values.high, len(values.counts) + 1)
    counts = np.array(values.counts, float)
    return edges, counts / max(counts.sum(), 1.0) / (edges[1] - edges[0])


def ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round numbers from `low` to `high` with their texts, 1, 2 or 5 times a power of ten apart: about `most` of them,
    and no fewer than `FEWEST_TICKS`."""
    step, places = round_values(low, high, most)
    while step and len(places) < FEWEST_TICKS:
        most += 1
        step, places = round_values(low, high, most)
    ends = [(low, f"{low:.17g}"), (high, f"{high:.17g}")]
    if not step:
        return ends
    digits = max(-math.floor(math.log10(step) + 1e-9), 0)
    plain = digits <= MOST_DIGITS and max(abs(low), abs(high)) < 10**MOST_DIGITS
    texts = [(f"{place:,.{digits}f}" if plain and place else f"{place:g}").replace("-", MINUS) for place in places]
    # where rounded texts are the same, only the ends differ
    return list(zip(places, texts, strict=True)) if len(set(texts)) == len(texts) else ends


class Histogram(Picture):
    """Feed it with `show_values`; the tooltip of a bar says its edges and its count."""

    accessible_role = QAccessible.Role.Chart

    def __init__(self) -> None:
        super().__init__("Histogram")
        self._device = CPU
        self._values: Values | None = None
        self._before: Values | None = None
        self.legend, self.fullest = label("dashed: before", Role.LABEL, "dim"), label("", Role.LABEL, "dim")
        self.canvas = PlotCanvas(EDGE_PX, EDGE_PX)
        self._bars = pg.BarGraphItem(x0=[], x1=[], height=[])
        self._outline = CurveItem()
        for item in (self._bars, self._outline):
            self.canvas.view.addItem(item)
        vbox(
            hbox(self.legend, None, self.fullest, margins=(EDGE_PX, 0, EDGE_PX, 0)),
            (self.canvas, 1),
            spacing=0,
            parent=self,
        )
        self.canvas.view.sigResized.connect(self._draw)
        self.setMinimumSize(MIN_PX)
        theme_changed.connect(self._recolour)
        self._recolour()

    def _recolour(self) -> None:
        self.canvas.bottom.setPen(current_theme().border)
        self._draw()

    def show_values(self, values: Values | None, before: Values | None, device: int) -> None:
        """Show these; `before` is drawn as an outline on the same axis, `device` is a palette index."""
        self._values, self._before, self._device = values, before, device
        if values is not None and values.counts:
            self.setAccessibleDescription(f"{len(values.counts)} bins from {values.low:g} to {values.high:g}")
            self.fullest.setText(f"fullest bin: {max(values.counts):,} of {sum(values.counts):,}")
        self._draw()

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the axis: of both histograms together."""
        shown = [item for item in (self._values, self._before) if item is not None and item.counts]
        low, high = min((item.low for item in shown), default=0.0), max((item.high for item in shown), default=1.0)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def _draw(self) -> None:
        values, before = self._values, self._before
        self.legend.setVisible(before is not None and bool(before.counts))
        if values is None or not values.counts:
            return
        edges, shares = _bins(values)
        wide = self.canvas.view.width() > 3 * len(shares)
        gap = pg.mkPen(current_theme().panel if wide else None, width=1)
        self._bars.setOpts(x0=edges[:-1], x1=edges[1:], height=shares, pen=gap, brush=device_colour(self._device))
        highest = shares.max()
        self._outline.setVisible(before is not None and bool(before.counts))
        if before is not None and before.counts:
            edges, shares = _bins(before)
            highest = max(highest, shares.max())
            self._outline.setData(
                np.pad(edges, 1, "edge"),
                np.pad(shares, 1),
                stepMode="center",
                pen=pg.mkPen(current_theme().text, width=1, style=Qt.PenStyle.DashLine),
            )
        self.canvas.view.setXRange(*self.span, padding=0)
        self.canvas.view.setYRange(0, highest or 1.0, padding=0)
        self.canvas.bottom.show_ticks(
            ticks(*self.span, max(int(self.canvas.width() / TICK_EVERY_PX), FEWEST_TICKS - 1))
        )

    def figures(self) -> Figures | None:
        rows: list[tuple[str, ...]] = []
        for what, values in (("now", self._values), ("before", self._before)):
            if values is not None and values.counts:
                same = values.high <= values.low
                edges = np.array([values.low, values.high]) if same else _bins(values)[0]
                texts = number_texts(edges)
                counts = [sum(values.counts)] if same else values.counts
                rows += zip([what] * len(counts), texts, texts[1:], map(str, counts), strict=False)
        return Figures(("Histogram", "From", "To", "Values"), rows) if rows else None

    def tip_at(self, point: QPointF) -> str:
        """What the bar at or above a point counts; empty where there is none."""
        values = self._values
        if values is None or not values.counts:
            return ""
        edges, _ = _bins(values)
        value = self.canvas.view.mapSceneToView(point).x()
        bar = int(np.searchsorted(edges, value, side="right")) - 1
        if not 0 <= bar < len(values.counts):
            return ""
        low, high = (edges[bar], edges[bar + 1]) if values.high > values.low else (values.low, values.high)
        return f"{values.counts[bar]:,} values from {low:.6g} to {high:.6g}"
