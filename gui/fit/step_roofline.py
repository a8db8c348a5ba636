"""The roofline of a step: each class of operations where its arithmetic intensity and its rate put it, under the card's
memory bandwidth and its computing rates. Main thread.

Only matrix products, convolutions and attention have FLOP that are counted. The other classes are in a strip at the
left, as far below the memory's line as their bytes per second are below the card's bandwidth. Everything is simulated.
"""

from __future__ import annotations

import math
from typing import NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QPainter, QPen
from PySide6.QtWidgets import QGraphicsRectItem

from devexplorer.core.base import MISSING, flops_text, number_text, seconds_text
from devexplorer.core.devices.profiles import Profile
from devexplorer.core.planner.records import Fit, FitSpec, StepPart
from devexplorer.core.virtual.device.cost import unit_of
from devexplorer.gui.charts.roofline_canvas import RooflineCanvas
from devexplorer.gui.plots.canvas import GRID_Z
from devexplorer.gui.plots.curves import Floats
from devexplorer.gui.widgets import CENTRE, RIGHT, Figures, announce, current_theme, draw_text, text_width

SAME = 1.01
"""Rates that near to each other are one line."""


class StepPoint(NamedTuple):
    """A class of operations in the step; all simulated."""

    operations: str
    seconds: float
    share: float
    """Of the cards' time."""
    intensity: float | None
    """FLOP per byte; None: its FLOP are not counted."""
    tflops: float | None
    gb_per_s: float
    bandwidth_share: float
    """Bytes per second over the card's bandwidth."""
    compute_share: float
    """Of its time, in kernels that computing bounds."""


class StepFigures(NamedTuple):
    """Everything that is drawn."""

    points: tuple[StepPoint, ...]
    """What takes longest first."""
    rates: tuple[tuple[str, float], ...]
    """dtypes with the card's TFLOP/s, the lowest first."""
    gb_per_s: float
    """The card's bandwidth, by its datasheet."""
    across: tuple[float, float]
    """FLOP per byte, from and to."""
    up: tuple[float, float]
    """TFLOP/s."""
    strip_roof: float
    """TFLOP/s at which the memory's line is drawn for classes without counted FLOP."""


def step_figures(fit: Fit, spec: FitSpec, profile: Profile) -> StepFigures | None:
    """Of a fit on this card, or several of the same; None where it has no step."""
    total = sum(part.seconds for part in fit.parts)
    if not total:
        return None
    points = tuple(_point(part, total, profile) for part in fit.parts if part.seconds > 0)
    rates = _rates(spec, profile)
    ridges = [rate * 1e3 / profile.memory_gb_s for _, rate in rates]
    intensities = [point.intensity for point in points if point.intensity]
    across = min(*ridges, *intensities) / 4, max(*ridges, *intensities) * 3
    achieved = [point.tflops for point in points if point.tflops]
    entry = profile.memory_gb_s * across[0] / 1e3
    up = min(*achieved, entry / 2, entry) / 2, max(rate for _, rate in rates) * 2
    return StepFigures(points, rates, profile.memory_gb_s, across, up, max(entry, up[0] * 8))


def _point(part: StepPart, total: float, profile: Profile) -> StepPoint:
    gb_per_s = part.nbytes / part.seconds / 1e9
    return StepPoint(
        operations=part.operations,
        seconds=part.seconds,
        share=part.seconds / total,
        intensity=part.flop / part.nbytes if part.flop and part.nbytes else None,
        tflops=part.flop / part.seconds / 1e12 if part.flop and part.nbytes else None,
        gb_per_s=gb_per_s,
        bandwidth_share=max(gb_per_s / profile.memory_gb_s, 1e-3),
        compute_share=part.compute_bound_seconds / part.seconds,
    )


def _rates(spec: FitSpec, profile: Profile) -> tuple[tuple[str, float], ...]:
    """Of float32's vectors, and of the unit that computes the products."""
    products = spec.autocast or spec.dtype or "float32"
    dtypes = ["float32", products] + (["tf32"] if products == "float32" and "tf32" in profile.tflops else [])
    result: dict[str, float] = {}
    for dtype in dtypes:
        rate = unit_of(dtype, profile)[1] / 1e12
        if all(not 1 / SAME <= rate / known <= SAME for known in result.values()):
            result["TF32" if dtype == "tf32" else dtype] = rate
    return tuple(sorted(result.items(), key=lambda item: item[1]))


def point_text(point: StepPoint) -> str:
    """`convolutions: 12.8 ms, 49 % of the step; 13.3 TFLOP/s at 352 FLOP per byte; 96 % of it bound by computing`."""
    rate = (
        f"{flops_text(point.tflops)} at {number_text(point.intensity)} FLOP per byte"
        if point.intensity
        else f"{number_text(point.gb_per_s)} GB/s, FLOP not counted"
    )
    bound = f"{100 * point.compute_share:.0f} % bound by computing" if point.compute_share >= 0.005 else "memory-bound"
    return f"{point.operations}: {seconds_text(point.seconds)}, {100 * point.share:.0f} % (simulated); {rate}; {bound}"


def figures_table(found: StepFigures) -> Figures:
    """For "Show as table"."""
    rows: list[tuple[str, ...]] = [
        (
            point.operations,
            f"{1e3 * point.seconds:.4g}",
            f"{100 * point.share:.1f}",
            MISSING if point.intensity is None else f"{point.intensity:.4g}",
            MISSING if point.tflops is None else f"{point.tflops:.4g}",
            f"{point.gb_per_s:.4g}",
            f"{100 * point.compute_share:.0f}",
        )
        for point in found.points
    ]
    columns = ("Operations", "ms simulated", "% of the time", "FLOP per byte", "TFLOP/s simulated", "GB/s simulated",
               "% bound by computing")  # fmt: skip
    limits = [f"{name} {rate:,g} TFLOP/s" for name, rate in found.rates]
    return Figures(columns, rows, f"Datasheet: memory {found.gb_per_s:,g} GB/s; {'; '.join(limits)}")


EDGE_PX, LINE_PX = 10, 17
STRIP_SHARE, MOST_STRIP_SHARE = 0.22, 0.4
"""Of the width, for what has no counted FLOP; more where its classes would overlap."""
LEGEND_PX, LEGEND_FROM_PX = 172, 420
"""Names beside the plot, where it is so wide."""
LEAST_RADIUS, MOST_RADIUS, REACH_PX = 7.0, 17.0, 6.0
TEXT_PX, GAP_PX = 14, 8
HEAD = "TFLOP/s vs FLOP per byte  simulated"
NO_FLOP = "no FLOP"
NOTHING = "This card has no simulated step."


class StepRoofline(RooflineCanvas):
    """Shows what `set_figures` was given; the arrow keys go from class to class, from the longest on."""

    def __init__(self) -> None:
        super().__init__("Roofline of the step, simulated")
        self._figures: StepFigures | None = None
        self._band = QGraphicsRectItem(self.view)
        self._band.setZValue(GRID_Z - 1)
        self._band.setPen(Qt.PenStyle.NoPen)
        self.setMinimumSize(220, 64)
        self.setAccessibleDescription(NOTHING)

    def sizeHint(self) -> QSize:
        return QSize(220, 64)

    def set_figures(self, found: StepFigures | None) -> None:
        """Draw this; None: there is no step."""
        if found == self._figures:
            return
        self._figures, self._index = found, None
        texts = [] if found is None else [point_text(point) for point in found.points]
        self.setAccessibleDescription(". ".join(texts) or NOTHING)
        for part in (self.view, self.left, self.bottom):
            part.setVisible(found is not None)
        self._draw()

    @property
    def at(self) -> StepPoint | None:
        """The class that is pointed at."""
        return self._figures.points[self._index] if self._figures is not None and self._index is not None else None

    def figures(self) -> Figures | None:
        return None if self._figures is None else figures_table(self._figures)

    # --- where things are

    @property
    def _legend_lines(self) -> int:
        height: int = self.height()
        return max((height - self.area().top()) // LINE_PX, 1)

    @property
    def _legend_columns(self) -> int:
        """As many as the classes need, while the plot keeps its width."""
        width: int = self.width()
        room = max((width - LEGEND_FROM_PX) // LEGEND_PX + 1, 0)
        needed = -(-len(self._figures.points) // self._legend_lines) if self._figures is not None else 1
        return min(room, needed)

    @property
    def _strip(self) -> QRectF:
        """Empty where every class has FLOP."""
        area = QRectF(self.area())
        if self._figures is not None:
            area.setRight(self._px(self._figures.across[0], 1.0).x())
        return area

    def _strip_share(self, found: StepFigures) -> float:
        """Of the width of the area."""
        without, width = sum(not point.intensity for point in found.points), max(self.area().width(), 1)
        wanted = min((2 * LEAST_RADIUS + 4) * without / width, MOST_STRIP_SHARE)
        return max(STRIP_SHARE, wanted) if without else 0.0

    def spots(self) -> list[tuple[QPointF, float]]:
        """Centre and radius of each class."""
        found = self._figures
        if found is None:
            return []
        area, strip, without = self.area(), self._strip, [point for point in found.points if not point.intensity]
        result = []
        for point in found.points:
            radius = max(MOST_RADIUS * math.sqrt(point.share), LEAST_RADIUS)
            if point.intensity and point.tflops:
                centre = self._px(point.intensity, point.tflops)
            else:
                centre = self._px(1.0, found.strip_roof * point.bandwidth_share)
                centre.setX(strip.left() + strip.width() * (without.index(point) + 0.5) / len(without))
            centre.setY(min(max(centre.y(), area.top() + radius), area.bottom() - radius))
            result.append((centre, radius))
        return result

    def limits(self) -> tuple[list[tuple[QRectF, str]], list[str]]:
        """Names of the card's limits above their lines, and those that have no room there: they are in the head."""
        found = self._figures
        if found is None:
            return [], []
        area, strip = QRectF(self.area()), self._strip
        ends = [
            (f"{name} {rate:,g} TFLOP/s", area.right() - 2, self._px(1.0, rate).y() - 1)
            for name, rate in reversed(found.rates)
        ]
        text = f"memory {found.gb_per_s:,g} GB/s"
        right = strip.right() + 6 + text_width(text)
        ends.append((text, right, self._roof_y(right) - 2))
        shown: list[tuple[QRectF, str]] = []
        left_out = []
        for text, right, bottom in ends:
            width = text_width(text) + 1
            box = QRectF(right - width, bottom - TEXT_PX, width, TEXT_PX)
            around = box.adjusted(-GAP_PX, 0, GAP_PX, 0)
            inside = area.adjusted(strip.width(), -2, 0, 0).contains(box)
            if inside and not any(around.intersects(other) for other, _ in shown):
                shown.append((box, text))
            else:
                left_out.append(text)
        return shown, left_out

    def _roof_y(self, x: float) -> float:
        """Of the memory's slope and the highest rate."""
        found, area, (left, right) = self._figures, self.area(), self.view.viewRange()[0]
        assert found is not None
        intensity = 10 ** (left + (x - area.left()) / max(area.width(), 1) * (right - left))
        return self._px(1.0, min(found.gb_per_s * intensity / 1e3, max(rate for _, rate in found.rates))).y()

    # --- drawing

    def _place(self) -> None:
        self._draw()  # the strip is as wide as its classes need

    def _draw(self) -> None:
        """The memory's slope up to the highest rate, and each rate from where it meets the slope; in the strip the
        memory's line is level."""
        found = self._figures
        if found is None:
            self.viewport().update()
            return
        theme, (low, high), share = current_theme(), found.across, self._strip_share(found)
        self.set_margins(1, EDGE_PX + LEGEND_PX * self._legend_columns)
        left = low * (low / high) ** (share / (1 - share))
        self._draw_axes(found.across, found.up, left)
        self._band.setRect(QRectF(0, 0, share * self.view.width(), self.view.height()))
        self._band.setBrush(QColor(theme.bar_free))
        top, pen = max(rate for _, rate in found.rates), pg.mkPen(theme.bar_other, width=1)
        self._add_lines([((low, found.gb_per_s * low / 1e3), (top * 1e3 / found.gb_per_s, top))], pen, antialias=True)
        starts = [(min(max(rate * 1e3 / found.gb_per_s, low), high), rate) for _, rate in found.rates]
        level = [((left, found.strip_roof), (low, found.strip_roof))] if share else []
        self._add_lines([*level, *((start, (high, start[1])) for start in starts)], pen)
        self._show_ticks(found.across, found.up, self._strip.center().x() + text_width(NO_FLOP) / 2 if share else 0.0)
        self.viewport().update()

    def drawForeground(self, painter: QPainter, rect: QRectF | QRect) -> None:
        """The classes with their numbers, the names, and the words above."""
        theme, found, area, strip = current_theme(), self._figures, self.area(), self._strip
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        if found is None:
            draw_text(painter, QRectF(self.rect()).adjusted(12, 0, -12, 0), NOTHING, "dim", align=CENTRE)
            return
        labels, left_out = self.limits()
        head = point_text(self.at) if self.at is not None else "; ".join((HEAD, *left_out))
        draw_text(painter, QRectF(EDGE_PX, 0, self.width(), area.top()), head, "text" if self.at else "dim")
        if strip.width() > 1:
            below = QRectF(strip.left(), area.bottom() + 2, strip.width(), 18)
            draw_text(painter, below, NO_FLOP, "dim", align=CENTRE)
        for box, text in labels:
            draw_text(painter, box, text, "dim", align=RIGHT)
        for number, (centre, radius) in enumerate(self.spots()):
            fill = QColor(theme.soft)
            fill.setAlphaF(0.85 if number == self._index else 0.3)
            pen = QPen(QColor(theme.text), 1.5 if number == self._index else 1)
            pen.setDashPattern([3, 2])
            painter.setPen(pen)
            painter.setBrush(fill)
            painter.drawEllipse(centre, radius, radius)
            box = QRectF(centre.x() - radius, centre.y() - 8, 2 * radius, 16)
            tone = QColor(theme.panel if number == self._index else theme.text)
            draw_text(painter, box, str(number + 1), tone, align=CENTRE)
        self._paint_legend(painter, found)
        super().drawForeground(painter, rect)

    def _paint_legend(self, painter: QPainter, found: StepFigures) -> None:
        lines = self._legend_lines
        for number, point in enumerate(found.points[: lines * self._legend_columns]):
            column, line = divmod(number, lines)
            left = self.area().right() + 12 + LEGEND_PX * column
            box = QRectF(left, self.area().top() + LINE_PX * line, LEGEND_PX - 20, LINE_PX)
            draw_text(painter, box, f"{100 * point.share:.0f} %", "text", align=RIGHT)
            box.setRight(box.right() - text_width("100 %") - 4)
            draw_text(painter, box, f"{number + 1}  {point.operations}", "text" if number == self._index else "soft")

    # --- pointing

    @property
    def points_px(self) -> Floats:
        return np.array([centre.toTuple() for centre, _ in self.spots()]).reshape(-1, 2)

    def _reach(self) -> Floats:
        return np.array([radius + REACH_PX for _, radius in self.spots()])

    def _order(self) -> range:
        return range(0 if self._figures is None else len(self._figures.points))

    def _show_point(self) -> None:
        if self.at is not None and self.hasFocus():
            announce(self, point_text(self.at))
