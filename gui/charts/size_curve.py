"""A rate over a size: curves with their spread and a readout at the pointer. Main thread.

Colour means device, so curves of one device differ in their marks and dashes. Simulated curves are dashed and say so.
"""

from __future__ import annotations

import bisect
import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from html import escape

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QPointF, Qt, Signal
from PySide6.QtGui import QAccessible, QColor, QKeyEvent, QPen
from PySide6.QtWidgets import QSizePolicy

from devexplorer.core.base import joined
from devexplorer.gui.plots.canvas import Cursor, CursorReading, PlotCanvas, Ticks
from devexplorer.gui.plots.curves import THROUGHPUT_UNITS, CurveItem, Unit, YScale
from devexplorer.gui.plots.markers import MarkerLine
from devexplorer.gui.widgets import (
    Colour,
    Figures,
    Picture,
    Role,
    announce,
    colour_of,
    current_theme,
    device_dash,
    label,
    number_texts,
    text_width,
    theme_changed,
    vbox,
)

MARK_PX, GAP_PX = 6, 6
LEFT_PX, RIGHT_PX, TICK_PX = 52, 8, 18
MOST_MARKS = 80
"""Points that are marked one by one."""
LOG_FROM = 1.4
"""Sizes that grow by this factor and more from one to the next are on a logarithmic axis."""
GB_UNITS = (Unit("GB/s", 1.0), Unit("MB/s", 1e-3), Unit("kB/s", 1e-6))
SIMULATED_DASHES = (4.0, 3.0)
MARKS = {"": "●", "ring": "○", "square": "□"}
"""Of points, as letters."""
OVERTAKING_DASHES = (3.0, 3.0)

Point = tuple[float, float, float, float]
"""x, median, p20, p80."""


@dataclass(frozen=True)
class Series:
    """One curve: points (x, median, p20, p80), x rising."""

    name: str
    colour: Colour
    points: tuple[Point, ...]
    simulated: bool = False
    mark: str = ""
    """Points are dots, or `ring`, or `square`: curves of one device have one colour."""
    quiet: bool = False
    """A thin line without points: what the others are compared with."""
    dashes: tuple[float, ...] = ()

    def drawn_colour(self) -> QColor:
        """Of line, marks and name."""
        return QColor(colour_of(self.colour))

    def pen(self) -> QPen:
        """Of the line: one pixel wide, whatever the scales of the axes."""
        pen = QPen(self.drawn_colour())
        pen.setCosmetic(True)
        own = device_dash(self.colour, simulated=self.simulated) if isinstance(self.colour, int) else ()
        if dashes := self.dashes or own or (SIMULATED_DASHES if self.simulated else ()):
            pen.setDashPattern(dashes)
        return pen

    def fill(self) -> QColor:
        """Of the marks."""
        return QColor(current_theme().panel) if self.mark else self.drawn_colour()


class SizeCurve(Picture):
    """Feed it with `set_axis` and `set_curves`."""

    accessible_role = QAccessible.Role.Chart

    pointed = Signal(object)
    """x of the nearest measured size, or None."""

    def __init__(self, name: str, units: tuple[Unit, ...] = THROUGHPUT_UNITS) -> None:
        super().__init__(name)
        self.series: tuple[Series, ...] = ()
        self.xs: list[float] = []
        """Every measured size."""
        self._scale = YScale(units)
        self._axes = ""
        self._x_text: Callable[[float], str] = "{:g}".format
        self._between: tuple[float, float] | None = None
        self._guide: tuple[float, str] | None = None
        self._markers: Sequence[tuple[float, str]] = ()
        self._cursor_x: float | None = None
        self._log = False
        self.key = label("", Role.LABEL, "dim")
        """The axes in words, then the curves."""
        self.key.setTextFormat(Qt.TextFormat.RichText)
        self.key.setContentsMargins(LEFT_PX, 0, 0, 0)
        self.key.setSizePolicy(QSizePolicy.Policy.Ignored, QSizePolicy.Policy.Fixed)
        self.canvas = PlotCanvas(LEFT_PX)
        self.curves: list[CurveItem] = []
        self._drawn: list[pg.GraphicsObject] = []
        self.readout = Cursor(self.canvas)
        vbox(self.key, (self.canvas, 1), spacing=0, margins=1, parent=self)  # the frame of the focus
        self.canvas.view.sigResized.connect(self._place)
        self.canvas.scene().sigMouseMoved.connect(self._follow)
        self.canvas.setFocusPolicy(Qt.FocusPolicy.NoFocus)
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMinimumSize(220, 96)
        theme_changed.connect(self._draw)

    def set_axis(
        self, x_name: str, x_text: Callable[[float], str], title: str = "", between: tuple[float, float] | None = None
    ) -> None:
        """What x is and how it is written; `title` is shown behind the axes; `between`: what the axis spans even before
        it is measured."""
        self._axes = joined("  ", f"vs {x_name}" if x_name else "", title)
        self._x_text, self._between = x_text, between

    def set_curves(
        self,
        series: Sequence[Series],
        guide: tuple[float, str] | None = None,
        markers: Sequence[tuple[float, str]] = (),
    ) -> None:
        """Show these curves; `guide` is a dotted line across with its label, shown where it is in reach, `markers` are
        vertical lines at sizes with theirs."""
        self.series, self._guide, self._markers = tuple(series), guide, markers
        self.xs = xs = sorted({point[0] for item in series for point in item.points})
        ratios = sorted(b / a for a, b in itertools.pairwise(xs) if a > 0)
        self._log = bool(ratios) and ratios[len(ratios) // 2] >= LOG_FROM and xs[0] > 0 and xs[-1] / xs[0] >= 8
        self._fit()
        self.setAccessibleDescription(self._description())
        self._draw()

    # --- the left axis, linear here

    def _fit(self) -> None:
        top = max((point[3] for item in self.series for point in item.points), default=0.0)
        if self._guide is not None and self._guide[0] <= 3 * top:
            top = max(top, self._guide[0])
        self._scale.stale = True
        self._scale.fit(top)

    def _y(self, value: float) -> float:
        """Where a value is on the axis."""
        return value

    def _y_ticks(self) -> Ticks:
        return self._scale.ticks

    def _y_name(self) -> str:
        return self._scale.unit.name

    def _value_text(self, value: float) -> str:
        return f"{value / self._scale.unit.factor:.4g} {self._scale.unit.name}"

    def _description(self) -> str:
        highest = ((item, max(item.points, key=lambda point: point[1], default=None)) for item in self.series)
        return "; ".join(
            f"{item.name}: nothing measured"
            if point is None
            else f"{item.name}: at most {self._value_text(point[1])}, at {self._x_text(point[0])}"
            for item, point in highest
        )

    def figures(self) -> Figures | None:
        shown = [item for item in self.series if item.points]
        titles, columns = [self._axes.removeprefix("vs ") or "Size"], [[self._x_text(size) for size in self.xs]]
        name, factor = self._scale.unit
        for item in shown:
            points = {point[0]: point for point in item.points}
            spread = any(point[2] != point[3] for point in item.points)
            for what, at in (("median", 1), ("p20", 2), ("p80", 3)) if spread else (("", 1),):
                word = " simulated" if item.simulated else ""
                titles.append(joined(", ", f"{item.name}{word}", what, name))
                columns.append(number_texts(points[x][at] / factor if x in points else None for x in self.xs))
        note = "; ".join(text for _, text in (*self._markers, *filter(None, [self._guide])))
        return Figures(tuple(titles), list(zip(*columns, strict=True)), note) if shown else None

    # --- drawing

    def _x(self, size: float) -> float:
        """Where a size is on the axis."""
        return float(np.log10(size)) if self._log else size

    def _draw(self) -> None:
        for drawn in self._drawn:
            self.canvas.view.removeItem(drawn)
        self.curves, self._drawn = [], []
        for item in self.series:
            x = [self._x(point[0]) for point in item.points]
            y, low, high = (np.array([self._y(point[at]) for point in item.points]) for at in (1, 2, 3))
            with_marks = not item.quiet and (bool(item.mark) or len(x) <= MOST_MARKS)
            if with_marks and x:
                whisker = item.drawn_colour()
                whisker.setAlphaF(0.35)
                pen = pg.mkPen(whisker, width=3)
                spread = pg.ErrorBarItem(x=np.array(x), y=y, top=high - y, bottom=y - low, pen=pen)
                self.canvas.view.addItem(spread)
                self._drawn.append(spread)
            curve = CurveItem(x, y, pen=item.pen(), antialias=True, connect="finite")
            self.canvas.view.addItem(curve)
            self.curves.append(curve)
            if with_marks:
                mark, edge = "s" if item.mark == "square" else "o", pg.mkPen(item.drawn_colour(), width=1)
                marks = pg.ScatterPlotItem(x, y, symbol=mark, size=MARK_PX, pen=edge, brush=item.fill())
                self.canvas.view.addItem(marks)
                self._drawn.append(marks)
        self._drawn += self.curves
        first, last = self._between or ((self.xs[0], self.xs[-1]) if self.xs else (0.0, 1.0))
        if first >= last:
            first, last = first * 0.5, first * 1.5 or 1.0
        ticks = self._y_ticks()
        self.canvas.view.setXRange(self._x(first), self._x(last), padding=0.02)
        self.canvas.view.setYRange(ticks[0][0], ticks[-1][0], padding=0.02)  # a mark on the axis is whole
        if self._markers:
            lane = 2
        elif self._guide is not None:
            lane = 1
        else:
            lane = 0
        self.canvas.set_lane(lane)
        self._place()

    def _show_key(self) -> None:
        """As many curves as have room in two lines; the word "simulated" is said once where it is true of all."""
        shown = [item for item in self.series if item.points]
        with_word = any(not item.simulated and not item.quiet for item in shown)
        head = f"{self._y_name()} {self._axes}{'' if with_word or not shown else '  simulated'}"
        # above the axis, where there is room for it
        left = max(min(LEFT_PX, self.width() - text_width(head) - RIGHT_PX), 0)
        self.key.setContentsMargins(left, 0, 0, 0)
        lines, whole = [[escape(head)]], self.width() - left
        room = whole - text_width(head)
        for item in shown:
            line = "─" if item.pen().style() == Qt.PenStyle.SolidLine else "╌"
            mark = line if item.quiet else MARKS[item.mark]
            word = "  simulated" if item.simulated and with_word else ""
            name = f"{line}{mark}{line} {item.name}{word}"
            needed = text_width(f"    {name}")
            if needed > room:
                if len(lines) == 2:
                    break
                lines.append([])
                room = whole
            room -= needed
            lines[-1].append(f'<span style="color:{item.drawn_colour().name()}">{escape(name)}</span>')
        self.key.setText(f'<div style="white-space:pre">{"<br>".join("    ".join(texts) for texts in lines)}</div>')

    def _place(self) -> None:
        """Texts of the axes and lines across, for the present size."""
        self._show_key()
        ticks, area = self._y_ticks(), self.canvas.view.rect()
        self.canvas.left.show_ticks(ticks[:: max(round(len(ticks) * TICK_PX / max(area.height(), TICK_PX)), 1)])
        self.canvas.bottom.show_ticks(self._x_ticks())
        guides = []
        if self._guide is not None and self._guide[0] <= ticks[-1][0]:
            guides.append((self._guide[0], self._guide[1], current_theme().dim))
        self.canvas.show_lines(
            [
                MarkerLine(round(self._x_px(size)), text, current_theme().text, OVERTAKING_DASHES)
                for size, text in self._markers
            ],
            guides,
        )
        self._show_readout()

    def _x_px(self, size: float) -> float:
        return self.canvas.px(self._x(size), 0.0).x()

    def _x_ticks(self) -> Ticks:
        """Sizes whose texts have room: of thousands only those are written."""
        ticks, end = [], float("-inf")
        for size in self.xs:
            middle = self._x_px(size)
            if middle > end:
                text = self._x_text(size)
                half = text_width(text) / 2
                if middle - half > end:
                    ticks.append((self._x(size), text))
                    end = middle + half + GAP_PX
        return ticks

    # --- pointing

    def _show_readout(self) -> None:
        size = self._cursor_x
        points = [(item, point) for item in self.series for point in item.points if point[0] == size]
        if size is None or not points:
            self.readout.hide()
            return
        readings = [
            CursorReading(item.name, item.drawn_colour().name(), (self._value_text(point[1]),), item.simulated)
            for item, point in points
        ]
        if self.hasFocus():
            words = (f"{at.name}{' simulated' if at.simulated else ''} {at.values[0]}" for at in readings)
            announce(self, ", ".join((self._x_text(size), *words)))
        self.readout.show_line(self._x(size))
        self.readout.show_box(self._x_px(size), [self._x_text(size)], [""], readings)

    def _point(self, size: float | None) -> None:
        if size != self._cursor_x:
            self._cursor_x = size
            self.pointed.emit(size)
            self._show_readout()

    def _follow(self, position: QPointF) -> None:
        x = self.canvas.view.mapSceneToView(position).x()
        self._point(min(self.xs, key=lambda size: abs(self._x(size) - x)) if self.xs else None)

    def leaveEvent(self, event: QEvent) -> None:
        super().leaveEvent(event)
        self._point(None)

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Left and right go from size to size, Escape leaves."""
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Right: 1}.get(Qt.Key(event.key()))
        if step is not None and self.xs:
            last = len(self.xs) - 1
            index = last if self._cursor_x is None else bisect.bisect_left(self.xs, self._cursor_x) + step
            self._point(self.xs[min(max(index, 0), last)])
        elif event.key() == Qt.Key.Key_Escape and self._cursor_x is not None:
            self._point(None)
        else:
            super().keyPressEvent(event)
