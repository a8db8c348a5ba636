"""Seconds of one product over its size, on the CPU and on a device, both logarithmic, with lines where the device
overtakes. Main thread.

Colour means device: the CPU is grey, the device has its colour in both of its curves, dots for the product alone,
squares with the copies. What is simulated is dashed and hollow, and the key says so.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QEvent, QObject, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QVBoxLayout, QWidget

from devexplorer.core.base.formats import seconds_text
from devexplorer.core.experiments.overtaking import alone, overtaking, with_copies
from devexplorer.core.records.experiments import CrossoverMeasured, CrossoverPoint
from devexplorer.gui.plots.markers import ROW_PX, GridItem, Line, LinesItem
from devexplorer.gui.plots.time_axis import TextTicks
from devexplorer.gui.widgets.theme import CPU, Role, Theme, device_colour, device_pen, font

KEY_PX, LINE_PX, MARK_PX, GAP_PX, SPACE_PX = 22, 20, 7, 6, 18
LEFT_PX, MIN_PX = 52, QSize(320, 120)
SHORTEST = 1e-9
"""Seconds below which there is no place on the axis."""
AXES = "time of one n×n product over n"
WITH_COPIES_DASHES = [1.0, 3.0]
DASHES = (3.0, 3.0)
"""Of the lines where the device overtakes."""
LABEL_ROWS = 2
"""Above the curves: one label is for the product alone, one for it with the copies."""


class Curve(NamedTuple):
    """How one curve looks."""

    name: str
    colour: int
    simulated: bool
    symbol: str
    """pyqtgraph's name: `o`, `s`."""
    dashes: tuple[float, ...] = ()

    def pen(self, theme: Theme) -> QPen:
        """Of its line: one pixel wide, whatever the scales of the axes."""
        pen = device_pen(self.colour, theme, simulated=self.simulated)
        pen.setCosmetic(True)
        if self.dashes:
            pen.setDashPattern(list(self.dashes))
        return pen


class Key(QWidget):
    """What the curves are: a piece of each with its mark and its name."""

    def __init__(self, theme: Theme) -> None:
        super().__init__()
        self._theme = theme
        self.curves: tuple[Curve, ...] = ()
        self.setFixedHeight(KEY_PX)
        self.setAccessibleName("Key")

    def set_curves(self, curves: tuple[Curve, ...], theme: Theme) -> None:
        """Show these."""
        self.curves, self._theme = curves, theme
        self.setAccessibleDescription(", ".join(map(_named, curves)))
        self.update()

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, x = QPainter(self), float(GAP_PX)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        painter.setFont(font(Role.LABEL))
        metrics, middle = QFontMetrics(font(Role.LABEL)), self.height() / 2 + 0.5
        for curve in self.curves:
            colour = QColor(device_colour(curve.colour, self._theme))
            painter.setPen(curve.pen(self._theme))
            painter.drawLine(QPointF(x, middle), QPointF(x + LINE_PX, middle))
            painter.setPen(QPen(colour, 1))
            painter.setBrush(QColor(self._theme.panel) if curve.simulated else colour)
            mark = QRectF(x + (LINE_PX - MARK_PX) / 2, middle - MARK_PX / 2, MARK_PX, MARK_PX)
            painter.drawEllipse(mark) if curve.symbol == "o" else painter.drawRect(mark)
            x += LINE_PX + GAP_PX
            words = _named(curve)
            painter.setPen(colour)
            painter.drawText(
                QRectF(x, 0, self.width(), self.height()),
                Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignLeft,
                words,
            )
            x += metrics.horizontalAdvance(words) + SPACE_PX
        if x + metrics.horizontalAdvance(AXES) + GAP_PX <= self.width():
            painter.setPen(QColor(self._theme.dim))
            room = QRectF(x, 0, self.width() - x - GAP_PX, self.height())
            painter.drawText(room, Qt.AlignmentFlag.AlignVCenter | Qt.AlignmentFlag.AlignRight, AXES)


class LogTicks(TextTicks):
    """Ticks at given places of an axis whose values are logarithms."""

    def __init__(self, side: str) -> None:
        super().__init__(side)
        self.places: dict[float, str] = {}
        """log10 -> text."""
        self.setStyle(
            tickLength=0, tickTextOffset=6, hideOverlappingLabels=40, autoExpandTextSpace=False, tickTextHeight=14
        )

    def tickValues(self, minVal: float, maxVal: float, size: float) -> list[tuple[float, list[float]]]:  # noqa: N803
        return [(1.0, list(self.places))]

    def tickStrings(self, values: list[float], scale: float, spacing: float) -> list[str]:
        return [self.places.get(value, "") for value in values]


class CrossoverPlot(QWidget):
    """Feed it with `show_measured`; the pointer near a size tells its figures."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._measured: CrossoverMeasured | None = None
        self._colour = CPU
        self.key = Key(theme)
        self._x, self._y = LogTicks("bottom"), LogTicks("left")
        self._y.setWidth(LEFT_PX)
        self._x.setHeight(20)
        self.canvas = pg.PlotWidget(axisItems={"left": self._y, "bottom": self._x}, background=None)
        self.canvas.setMenuEnabled(False)
        self.canvas.hideButtons()
        self.canvas.setMouseEnabled(x=False, y=False)
        self.canvas.setFrameShape(self.canvas.Shape.NoFrame)
        self.canvas.plotItem.layout.setContentsMargins(2, round(4 + LABEL_ROWS * ROW_PX), 24, 2)
        self.canvas.viewport().installEventFilter(self)
        self._view = self.canvas.plotItem.vb
        self._grid = GridItem(self._view)  # pyqtgraph's own would let the axes drop the texts at their ends
        self._overtakes = LinesItem(self.canvas.plotItem)
        self._view.sigResized.connect(self._show_grid)
        self._view.sigResized.connect(self._mark)
        self.lines = [self.canvas.plot() for _ in range(3)]
        """CPU, the device alone, the device with copies."""
        layout = QVBoxLayout(self)
        layout.setContentsMargins(0, 0, 0, 0)
        layout.setSpacing(0)
        layout.addWidget(self.key)
        layout.addWidget(self.canvas, 1)
        self.setMinimumSize(MIN_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Seconds of a product over its size")
        self._paint_axes()

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self._paint_axes()
        self._draw()

    def show_measured(self, measured: CrossoverMeasured, colour: int) -> None:
        """Show these points; `colour` is the device's index into the palette."""
        if (measured, colour) != (self._measured, self._colour):
            self._measured, self._colour = measured, colour
            self._draw()

    @property
    def curves(self) -> tuple[Curve, ...]:
        """What is shown, as the key names it."""
        return self.key.curves

    def _paint_axes(self) -> None:
        for axis in (self._x, self._y):
            axis.setPen(QColor(self._theme.border_strong))
            axis.setTextPen(QColor(self._theme.dim))
            axis.setTickFont(font(Role.LABEL))
        self.canvas.setBackground(QColor(self._theme.panel))
        self._grid.set_theme(self._theme)
        self._overtakes.set_theme(self._theme)

    def _draw(self) -> None:
        measured = self._measured
        if measured is None:
            return
        points, simulated = measured.points, measured.simulated
        curves = (
            Curve("cpu", CPU, False, "o"),
            Curve(measured.device, self._colour, simulated, "o"),
            Curve(f"{measured.device} with copies", self._colour, simulated, "s", tuple(WITH_COPIES_DASHES)),
        )
        self.key.set_curves(curves, self._theme)
        xs = np.log10([float(point.size) for point in points])
        columns = [
            [point.cpu_seconds for point in points],
            [alone(point) for point in points],
            [with_copies(point) for point in points],
        ]
        logs = [np.log10(np.maximum(column, SHORTEST)) for column in columns]
        for line, curve, ys in zip(self.lines, curves, logs, strict=True):
            colour = QColor(device_colour(curve.colour, self._theme))
            hollow = QColor(self._theme.panel) if curve.simulated else colour
            look = {
                "symbol": curve.symbol,
                "symbolSize": MARK_PX,
                "symbolPen": pg.mkPen(colour, width=1),
                "symbolBrush": hollow,
            }
            line.setData(xs, ys, pen=curve.pen(self._theme), antialias=True, **look)
        low, high = math.floor(min(map(np.min, logs))), math.ceil(max(map(np.max, logs)))
        self._y.places = {float(power): seconds_text(10.0**power) for power in range(low, high + 1)}
        self._x.places = {float(x): f"{point.size}" for x, point in zip(xs, points, strict=True)}
        self.canvas.setXRange(xs[0], xs[-1], padding=0.02)
        self.canvas.setYRange(low, max(high, low + 1), padding=0)
        for axis in (self._x, self._y):
            axis.picture = None  # other ticks without another range
            axis.update()
        self._show_grid()
        self._mark()
        self.setAccessibleDescription("; ".join(map(self._words, points)))

    def _show_grid(self) -> None:
        """A line at each decade of seconds."""
        rows = [round(self._view.mapFromView(QPointF(0.0, place)).y()) for place in self._y.places]
        self._grid.show_lines(QRectF(0, 0, self._view.width(), self._view.height()), rows)

    @property
    def overtakes(self) -> LinesItem:
        """The lines where the device overtakes, with their labels."""
        return self._overtakes

    def _mark(self) -> None:
        """Lines where the device overtakes, their labels above the curves."""
        if self._measured is None:
            return
        points = self._measured.points
        found = [overtaking(points, alone), overtaking(points, with_copies)]
        together = found[0] is not None and found[1] is not None and found[0].size == found[1].size
        lines = []
        for place, says in zip(found[:1] if together else found, ("overtakes from", "with copies from"), strict=False):
            if place is not None:
                at = self._view.mapFromView(QPointF(math.log10(place.size), 0.0)).x()
                words = f"{says} {place.size}{', with copies too' if together else ''}"
                lines.append(Line(round(at), words, self._theme.text, DASHES))
        self._overtakes.setPos(self._view.mapToItem(self.canvas.plotItem, QPointF(0, 0)))
        self._overtakes.show_lines(QRectF(0, 0, self._view.width(), self._view.height()), LABEL_ROWS, lines, [])

    def _words(self, point: CrossoverPoint) -> str:
        measured = self._measured
        assert measured is not None
        simulated = " (simulated)" if measured.simulated else ""
        times = [seconds_text(seconds) for seconds in (point.cpu_seconds, alone(point), with_copies(point))]
        return f"size {point.size}: cpu {times[0]}, {measured.device} {times[1]}, with copies {times[2]}{simulated}"

    def eventFilter(self, watched: QObject, event: QEvent) -> bool:
        """The figures of the size that the pointer is nearest to."""
        if self._measured is None or not isinstance(event, QHelpEvent):
            return bool(super().eventFilter(watched, event))
        at: Any = self._view.mapSceneToView(self.canvas.mapToScene(event.pos()))
        nearest = min(self._measured.points, key=lambda point: abs(math.log10(point.size) - at.x()))
        QToolTip.showText(
            event.globalPos(), self._words(nearest).replace(": ", "\n", 1).replace(", ", "\n"), self.canvas
        )
        return True


def _named(curve: Curve) -> str:
    return f"{curve.name}, simulated" if curve.simulated else curve.name
