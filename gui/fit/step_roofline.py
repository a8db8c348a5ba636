"""The roofline of a step: each class of operations where its arithmetic intensity and its rate put it, under the card's
memory bandwidth and its computing rates. Main thread.

Only matrix products, convolutions and attention have FLOP that are counted. The other classes are in a strip at the
left, as far below the memory's line as their bytes per second are below the card's bandwidth. Everything is simulated.
"""

from __future__ import annotations

import math

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QAccessible, QColor, QKeyEvent, QMouseEvent, QPainter, QPainterPath, QPen

from devexplorer.gui.fit.step_figures import StepFigures, StepPoint, figures_table, point_text
from devexplorer.gui.plots.curves import decades
from devexplorer.gui.widgets import CENTRE, RIGHT, Figures, Picture, announce, current_theme, draw_text, text_width

LEFT_PX, TOP_PX, BOTTOM_PX, EDGE_PX, LINE_PX = 46, 20, 20, 10, 17
STRIP_SHARE = 0.22
"""Of the width, for what has no counted FLOP."""
LEGEND_PX, LEGEND_FROM_PX = 172, 420
"""Names beside the plot, where it is so wide."""
LEAST_RADIUS, MOST_RADIUS, REACH_PX = 6.0, 17.0, 6.0
NOTHING = "This card has no simulated step."


class StepRoofline(Picture):
    """Shows what `set_figures` was given; the arrow keys go from class to class."""

    accessible_role = QAccessible.Role.Chart

    def __init__(self) -> None:
        super().__init__("Roofline of the step, simulated")
        self._figures: StepFigures | None = None
        self._index: int | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)
        self.setMouseTracking(True)
        self.setMinimumSize(220, 120)
        self.setAccessibleDescription(NOTHING)

    def set_figures(self, found: StepFigures | None) -> None:
        """Draw this; None: there is no step."""
        if found == self._figures:
            return
        self._figures, self._index = found, None
        texts = [] if found is None else [point_text(point) for point in found.points]
        self.setAccessibleDescription(". ".join(texts) or NOTHING)
        self.update()

    @property
    def at(self) -> StepPoint | None:
        """The class that is pointed at."""
        return self._figures.points[self._index] if self._figures is not None and self._index is not None else None

    def figures(self) -> Figures | None:
        return None if self._figures is None else figures_table(self._figures)

    # --- where things are

    @property
    def _area(self) -> QRectF:
        legend = LEGEND_PX if self.width() >= LEGEND_FROM_PX else 0
        return QRectF(
            LEFT_PX, TOP_PX, self.width() - LEFT_PX - EDGE_PX - legend, self.height() - TOP_PX - BOTTOM_PX
        ).normalized()

    @property
    def _strip(self) -> QRectF:
        """Empty where every class has FLOP."""
        found, area = self._figures, self._area
        if found is None or all(point.intensity for point in found.points):
            return QRectF(area.left(), area.top(), 0, area.height())
        return QRectF(area.left(), area.top(), area.width() * STRIP_SHARE, area.height())

    def _x(self, intensity: float) -> float:
        assert self._figures is not None
        (low, high), area, strip = self._figures.across, self._area, self._strip
        return strip.right() + (area.right() - strip.right()) * math.log(intensity / low) / math.log(high / low)

    def _y(self, tflops: float) -> float:
        assert self._figures is not None
        (low, high), area = self._figures.up, self._area
        return area.bottom() - area.height() * math.log(tflops / low) / math.log(high / low)

    def spots(self) -> list[tuple[QPointF, float]]:
        """Centre and radius of each class."""
        found = self._figures
        if found is None:
            return []
        area, strip, without = self._area, self._strip, [point for point in found.points if not point.intensity]
        result = []
        for point in found.points:
            radius = max(MOST_RADIUS * math.sqrt(point.share), LEAST_RADIUS)
            if point.intensity and point.tflops:
                centre = QPointF(self._x(point.intensity), self._y(point.tflops))
            else:
                number = without.index(point)
                x = strip.left() + strip.width() * (number + 0.5) / len(without)
                centre = QPointF(x, self._y(found.strip_roof * point.bandwidth_share))
            centre.setY(min(max(centre.y(), area.top() + radius), area.bottom() - radius))
            result.append((centre, radius))
        return result

    # --- painting

    def draw(self, painter: QPainter) -> None:
        theme, found = current_theme(), self._figures
        if found is None:
            draw_text(painter, QRectF(self.rect()).adjusted(12, 0, -12, 0), NOTHING, "dim", align=CENTRE)
            return
        head = point_text(self.at) if self.at is not None else "TFLOP/s over FLOP per byte  simulated"
        draw_text(painter, QRectF(EDGE_PX, 0, self.width() - EDGE_PX, TOP_PX), head, "text" if self.at else "dim")
        self._paint_grid(painter, found)
        self._paint_roof(painter, found)
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
        if self.width() >= LEGEND_FROM_PX:
            self._paint_legend(painter, found)

    def _paint_grid(self, painter: QPainter, found: StepFigures) -> None:
        area, strip = self._area, self._strip
        grid = QColor(current_theme().text)
        grid.setAlphaF(0.15)
        painter.setPen(QPen(grid, 1))
        every = max(round(50 * math.log10(found.across[1] / found.across[0]) / max(area.right() - strip.right(), 1)), 1)
        for power in decades(*found.across)[::every]:
            x = round(self._x(power)) + 0.5
            painter.setPen(QPen(grid, 1))
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
            draw_text(painter, QRectF(x - 30, area.bottom() + 2, 60, BOTTOM_PX - 2), f"{power:,g}", "dim", align=CENTRE)
        for power in decades(*found.up):
            y = round(self._y(power)) + 0.5
            painter.setPen(QPen(grid, 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            draw_text(painter, QRectF(0, y - 8, LEFT_PX - 6, 16), f"{power:,g}", "dim", align=RIGHT)
        if strip.width():
            painter.fillRect(strip, QColor(current_theme().bar_free))
            draw_text(
                painter, QRectF(strip.left(), area.bottom() + 2, strip.width(), 18), "no FLOP", "dim", align=CENTRE
            )

    def _paint_roof(self, painter: QPainter, found: StepFigures) -> None:
        """The memory's slope up to the highest rate, and each rate from where it meets the slope; in the strip the
        memory's line is level."""
        theme, area, strip = current_theme(), self._area, self._strip
        painter.save()
        path = QPainterPath()
        path.addRect(area)
        painter.setClipPath(path)
        painter.setPen(QPen(QColor(theme.bar_other), 1.2))
        low, high = found.across
        top = max(rate for _, rate in found.rates)
        ridge = top * 1e3 / found.gb_per_s
        painter.drawLine(
            QPointF(self._x(low), self._y(found.gb_per_s * low / 1e3)), QPointF(self._x(ridge), self._y(top))
        )
        if strip.width():
            y = self._y(found.strip_roof)
            painter.drawLine(QPointF(strip.left(), y), QPointF(strip.right(), y))
        for _, rate in found.rates:
            start = min(max(rate * 1e3 / found.gb_per_s, low), high)
            painter.drawLine(QPointF(self._x(start), self._y(rate)), QPointF(self._x(high), self._y(rate)))
        painter.restore()
        for name, rate in found.rates:
            box = QRectF(strip.right(), self._y(rate) - 15, area.right() - strip.right() - 2, 14)
            draw_text(painter, box, f"{name} {rate:,g} TFLOP/s", "dim", align=RIGHT)
        memory = f"memory {found.gb_per_s:,g} GB/s"
        slope = QPointF(self._x(low), self._y(found.gb_per_s * low / 1e3))
        box = QRectF(slope.x() + 6, max(slope.y() - 34, area.top()), text_width(memory) + 8, 14)
        draw_text(painter, box, memory, "dim")

    def _paint_legend(self, painter: QPainter, found: StepFigures) -> None:
        left, y = self._area.right() + 12, float(TOP_PX)
        for number, point in enumerate(found.points, 1):
            if y + LINE_PX > self.height():
                break
            box = QRectF(left, y, self.width() - left - 8, LINE_PX)
            share = f"{100 * point.share:.0f} %"
            draw_text(painter, box, share, "text", align=RIGHT)
            box.setRight(box.right() - text_width("100 %") - 4)
            draw_text(painter, box, f"{number}  {point.operations}", "text" if number - 1 == self._index else "soft")
            y += LINE_PX

    # --- pointing

    def _point(self, index: int | None) -> None:
        if index == self._index:
            return
        self._index = index
        if self.at is not None and self.hasFocus():
            announce(self, point_text(self.at))
        self.update()

    def _nearest(self, position: QPointF) -> int | None:
        for number, (centre, radius) in enumerate(self.spots()):
            away = centre - position
            if math.hypot(away.x(), away.y()) <= radius + REACH_PX:
                return number
        return None

    def tip_at(self, point: QPointF) -> str:
        index = self._nearest(point)
        return "" if self._figures is None or index is None else point_text(self._figures.points[index])

    def mouseMoveEvent(self, event: QMouseEvent) -> None:
        self._point(self._nearest(event.position()))

    def keyPressEvent(self, event: QKeyEvent) -> None:
        """Up and down, left and right go from class to class, from the longest on; Escape leaves."""
        step = {Qt.Key.Key_Left: -1, Qt.Key.Key_Up: -1, Qt.Key.Key_Right: 1, Qt.Key.Key_Down: 1}.get(
            Qt.Key(event.key())
        )
        count = 0 if self._figures is None else len(self._figures.points)
        if step is not None and count:
            self._point(0 if self._index is None else min(max(self._index + step, 0), count - 1))
        elif event.key() == Qt.Key.Key_Escape and self._index is not None:
            self._point(None)
        else:
            event.ignore()
