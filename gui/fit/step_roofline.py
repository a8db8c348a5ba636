"""The roofline of a step: each class of operations where its arithmetic intensity and its rate put it, under the card's
memory bandwidth and its computing rates. Main thread.

Only matrix products, convolutions and attention have FLOP that are counted. The other classes are in a strip at the
left, as far below the memory's line as their bytes per second are below the card's bandwidth. Everything is simulated.
"""

from __future__ import annotations

import math
from collections.abc import Iterator

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QAccessible, QColor, QKeyEvent, QMouseEvent, QPainter, QPainterPath, QPen

from devexplorer.gui.fit.step_figures import StepFigures, StepPoint, figures_table, point_text
from devexplorer.gui.plots.curves import decades
from devexplorer.gui.widgets import CENTRE, RIGHT, Figures, Picture, announce, current_theme, draw_text, text_width

LEFT_PX, TOP_PX, BOTTOM_PX, EDGE_PX, LINE_PX = 46, 20, 20, 10, 17
STRIP_SHARE, MOST_STRIP_SHARE = 0.22, 0.4
"""Of the width, for what has no counted FLOP; more where its classes would overlap."""
LEGEND_PX, LEGEND_FROM_PX = 172, 420
"""Names beside the plot, where it is so wide."""
LEAST_RADIUS, MOST_RADIUS, REACH_PX = 7.0, 17.0, 6.0
TEXT_PX, GAP_PX = 14, 8
HEAD = "TFLOP/s over FLOP per byte  simulated"
NO_FLOP = "no FLOP"
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
        self.setMinimumSize(220, 64)
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
        legend = LEGEND_PX * self._legend_columns
        return QRectF(
            LEFT_PX, TOP_PX, self.width() - LEFT_PX - EDGE_PX - legend, self.height() - TOP_PX - BOTTOM_PX
        ).normalized()

    @property
    def _legend_lines(self) -> int:
        return max(int(self.height() - TOP_PX) // LINE_PX, 1)

    @property
    def _legend_columns(self) -> int:
        """As many as the classes need, while the plot keeps its width."""
        room = max((self.width() - LEGEND_FROM_PX) // LEGEND_PX + 1, 0)
        needed = -(-len(self._figures.points) // self._legend_lines) if self._figures is not None else 1
        return min(room, needed)

    @property
    def _strip(self) -> QRectF:
        """Empty where every class has FLOP."""
        found, area = self._figures, self._area
        if found is None or all(point.intensity for point in found.points):
            return QRectF(area.left(), area.top(), 0, area.height())
        without = sum(not point.intensity for point in found.points)
        width = max(area.width() * STRIP_SHARE, min((2 * LEAST_RADIUS + 4) * without, area.width() * MOST_STRIP_SHARE))
        return QRectF(area.left(), area.top(), width, area.height())

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

    def limits(self) -> tuple[list[tuple[QRectF, str]], list[str]]:
        """Names of the card's limits above their lines, and those that have no room there: they are in the head."""
        found = self._figures
        if found is None:
            return [], []
        area, strip = self._area, self._strip
        wanted = [
            (text, [_above(text, area.right() - 2, self._y(rate) - 1)])
            for text, rate in ((f"{name} {rate:,g} TFLOP/s", rate) for name, rate in reversed(found.rates))
        ]
        text = f"memory {found.gb_per_s:,g} GB/s"
        right = strip.right() + 6 + text_width(text)
        wanted.append((text, [_above(text, right, self._roof_y(right) - 2), *self._under_the_slope(text)]))
        shown: list[tuple[QRectF, str]] = []
        left_out = []
        for text, places in wanted:
            free = (
                box
                for box in places
                if area.adjusted(strip.width(), -2, 0, 0).contains(box)
                and not any(box.adjusted(-GAP_PX, 0, GAP_PX, 0).intersects(other) for other, _ in shown)
            )
            box = next(free, None)
            if box is None:
                left_out.append(text)
            else:
                shown.append((box, text))
        return shown, left_out

    def _under_the_slope(self, text: str) -> Iterator[QRectF]:
        """Places at its right, from the lowest up, that are below the line and on no class."""
        area, strip = self._area, self._strip
        spots = [QRectF(at.x() - r, at.y() - r, 2 * r, 2 * r) for at, r in self.spots()]
        for step in range(int(area.width() - strip.width()) // GAP_PX):
            left = strip.right() + GAP_PX * (step + 1)
            box = QRectF(left, self._roof_y(left) + 2, text_width(text) + 1, TEXT_PX)
            if not any(box.intersects(spot) for spot in spots):
                yield box

    def _roof_y(self, x: float) -> float:
        """Of the memory's slope and the highest rate."""
        found, area, strip = self._figures, self._area, self._strip
        assert found is not None
        low, high = found.across
        intensity = low * (high / low) ** ((x - strip.right()) / max(area.right() - strip.right(), 1))
        return self._y(min(found.gb_per_s * intensity / 1e3, max(rate for _, rate in found.rates)))

    # --- painting

    def draw(self, painter: QPainter) -> None:
        theme, found = current_theme(), self._figures
        if found is None:
            draw_text(painter, QRectF(self.rect()).adjusted(12, 0, -12, 0), NOTHING, "dim", align=CENTRE)
            return
        labels, left_out = self.limits()
        head = point_text(self.at) if self.at is not None else "; ".join((HEAD, *left_out))
        draw_text(painter, QRectF(EDGE_PX, 0, self.width() - EDGE_PX, TOP_PX), head, "text" if self.at else "dim")
        self._paint_grid(painter, found)
        self._paint_roof(painter, found)
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

    def _paint_grid(self, painter: QPainter, found: StepFigures) -> None:
        area, strip = self._area, self._strip
        grid = QColor(current_theme().text)
        grid.setAlphaF(0.15)
        painter.setPen(QPen(grid, 1))
        every = max(round(50 * math.log10(found.across[1] / found.across[0]) / max(area.right() - strip.right(), 1)), 1)
        if strip.width():
            painter.fillRect(strip, QColor(current_theme().bar_free))
            draw_text(painter, QRectF(strip.left(), area.bottom() + 2, strip.width(), 18), NO_FLOP, "dim", align=CENTRE)
        taken = strip.center().x() + text_width(NO_FLOP) / 2 + GAP_PX if strip.width() else 0.0
        for power in decades(*found.across)[::every]:
            x = round(self._x(power)) + 0.5
            painter.setPen(QPen(grid, 1))
            painter.drawLine(QPointF(x, area.top()), QPointF(x, area.bottom()))
            if x - text_width(f"{power:,g}") / 2 >= taken:
                where = QRectF(x - 30, area.bottom() + 2, 60, BOTTOM_PX - 2)
                draw_text(painter, where, f"{power:,g}", "dim", align=CENTRE)
        every = max(math.ceil(TEXT_PX * math.log10(found.up[1] / found.up[0]) / max(area.height(), 1)), 1)
        for power in decades(*found.up)[::every]:
            y = round(self._y(power)) + 0.5
            painter.setPen(QPen(grid, 1))
            painter.drawLine(QPointF(area.left(), y), QPointF(area.right(), y))
            draw_text(painter, QRectF(0, y - 8, LEFT_PX - 6, 16), f"{power:,g}", "dim", align=RIGHT)

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

    def _paint_legend(self, painter: QPainter, found: StepFigures) -> None:
        lines = self._legend_lines
        for number, point in enumerate(found.points[: lines * self._legend_columns]):
            column, line = divmod(number, lines)
            left = self._area.right() + 12 + LEGEND_PX * column
            box = QRectF(left, TOP_PX + LINE_PX * line, LEGEND_PX - 20, LINE_PX)
            draw_text(painter, box, f"{100 * point.share:.0f} %", "text", align=RIGHT)
            box.setRight(box.right() - text_width("100 %") - 4)
            draw_text(painter, box, f"{number + 1}  {point.operations}", "text" if number == self._index else "soft")

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


def _above(text: str, right: float, bottom: float) -> QRectF:
    """Where a text is that ends there."""
    width = text_width(text) + 1
    return QRectF(right - width, bottom - TEXT_PX, width, TEXT_PX)
