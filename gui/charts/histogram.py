"""How often values occur: one bar per bin in the device's colour, what was there before as an outline. Main thread."""

from __future__ import annotations

import math

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QHelpEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from devexplorer.core.records.laboratory import Values
from devexplorer.gui.widgets.plain_text import tip
from devexplorer.gui.widgets.theme import Role, Theme, font

TICKS_PX, TOP_PX, EDGE_PX = 18, 18, 12
TICK_EVERY_PX = 110
MOST_DIGITS = 6
"""Behind or before the point; longer numbers are written with an exponent."""
MINUS = "−"
MIN_PX = QSize(240, 110)


def _densest(values: Values) -> float:
    """Share of the values per unit of the axis in the fullest bin: areas are equal, whatever the bins' widths; 0 where
    all are the same."""
    step = (values.high - values.low) / max(len(values.counts), 1)
    return max(values.counts, default=0) / max(sum(values.counts), 1) / step if step > 0 else 0.0


def ticks(low: float, high: float, most: int) -> list[tuple[float, str]]:
    """Round numbers from `low` to `high` with their words, at most `most` of them: 1, 2 or 5 times a power of ten
    apart."""
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least)) if least > 0 and math.isfinite(least) else 0.0
    step = next((factor * power for factor in (1, 2, 5, 10) if factor * power >= least), 0.0)
    ends = [(low, f"{low:.17g}"), (high, f"{high:.17g}")]
    if not step:
        return ends
    digits = max(-math.floor(math.log10(step) + 1e-9), 0)
    plain = digits <= MOST_DIGITS and max(abs(low), abs(high)) < 10**MOST_DIGITS
    places = [number * step for number in range(math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9) + 1)]
    found = [(at, (f"{at:,.{digits}f}" if plain and at else f"{at:g}").replace("-", MINUS)) for at in places]
    return (
        found if len({text for _, text in found}) == len(found) else ends
    )  # or they differ in digits that nobody could read


class Histogram(QWidget):
    """Feed it with `show_values`; the pointer over a bar tells its edges and its count."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._colour = theme.cpu
        self._values: Values | None = None
        self._before: Values | None = None
        self.setMinimumSize(MIN_PX)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Histogram")

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self.update()

    def show_values(self, values: Values | None, before: Values | None, colour: str) -> None:
        """Show these; `before` is drawn as an outline on the same axis, `colour` is the device's."""
        self._values, self._before, self._colour = values, before, colour
        if values is not None and values.counts:
            self.setAccessibleDescription(f"{len(values.counts)} bins from {values.low:g} to {values.high:g}")
        self.update()

    @property
    def span(self) -> tuple[float, float]:
        """The ends of the axis: of both histograms together."""
        shown = [one for one in (self._values, self._before) if one is not None and one.counts]
        low, high = min((one.low for one in shown), default=0.0), max((one.high for one in shown), default=1.0)
        return (low, high) if high > low else (low - 0.5, high + 0.5)

    def paintEvent(self, event: QPaintEvent) -> None:
        if self._values is None or not self._values.counts:
            return
        painter = QPainter(self)
        painter.setFont(font(Role.LABEL))
        area = self._area()
        highest = max(_densest(one) for one in (self._values, self._before) if one is not None)
        painter.setPen(QPen(QColor(self._theme.border), 1))
        painter.drawLine(area.bottomLeft(), area.bottomRight())
        self._paint_bars(painter, area, highest)
        if self._before is not None and self._before.counts:
            self._paint_outline(painter, area, highest, self._before)
        self._paint_ticks(painter, area)
        painter.end()

    def _area(self) -> QRectF:
        return QRectF(self.rect()).adjusted(EDGE_PX, TOP_PX, -EDGE_PX, -TICKS_PX)

    def _bars(self, values: Values, area: QRectF, highest: float) -> list[QRectF]:
        low, high = self.span
        scale = area.width() / (high - low)
        wide = (values.high - values.low) / len(values.counts) * scale
        if wide <= 0:  # all values are the same one
            wide = max(area.width() / 40, 2.0)
            left = area.left() + (values.low - low) * scale - wide / 2
            return [QRectF(left, area.top(), wide, area.height())]
        left = area.left() + (values.low - low) * scale
        total, step = max(sum(values.counts), 1), (values.high - values.low) / len(values.counts)
        bars = []
        for at, count in enumerate(values.counts):
            height = area.height() * (count / total / step / highest if highest else 0.0)
            bars.append(QRectF(left + at * wide, area.bottom() - height, wide, height))
        return bars

    def _paint_bars(self, painter: QPainter, area: QRectF, highest: float) -> None:
        assert self._values is not None
        fill = QColor(self._colour)
        for bar in self._bars(self._values, area, highest):
            painter.fillRect(bar.adjusted(0.5 if bar.width() > 3 else 0, 0, -0.5 if bar.width() > 3 else 0, 0), fill)

    def _paint_outline(self, painter: QPainter, area: QRectF, highest: float, before: Values) -> None:
        bars = self._bars(before, area, highest)
        line = [QPointF(bars[0].left(), area.bottom())]
        for bar in bars:
            line += [bar.topLeft(), bar.topRight()]
        line.append(QPointF(bars[-1].right(), area.bottom()))
        painter.setPen(QPen(QColor(self._theme.text), 1, Qt.PenStyle.DashLine))
        painter.drawPolyline(QPolygonF(line))

    def _paint_ticks(self, painter: QPainter, area: QRectF) -> None:
        assert self._values is not None
        metrics = QFontMetrics(painter.font())
        painter.setPen(QColor(self._theme.dim))
        low, high = self.span
        for value, text in ticks(low, high, max(int(area.width() / TICK_EVERY_PX), 2)):
            middle = area.left() + (value - low) / (high - low) * area.width()
            width = metrics.horizontalAdvance(text)
            painter.drawLine(QPointF(middle, area.bottom()), QPointF(middle, area.bottom() + 3))
            painter.drawText(
                QPointF(min(max(middle - width / 2, 2), self.width() - width - 2), self.height() - 3), text
            )
        if self._before is not None:
            painter.drawText(QPointF(area.left(), TOP_PX - 6), "dashed: before")
        fullest = f"fullest bin: {max(self._values.counts):,} of {sum(self._values.counts):,}"
        painter.drawText(QPointF(area.right() - metrics.horizontalAdvance(fullest), TOP_PX - 6), fullest)

    def event(self, event: QEvent) -> bool:
        if event.type() == QEvent.Type.ToolTip and isinstance(event, QHelpEvent):
            QToolTip.showText(event.globalPos(), tip(self.words_at(event.pos().x())), self)
            return True
        return super().event(event)

    def words_at(self, x: float) -> str:
        """What the bar below a horizontal position says; empty where there is none."""
        values = self._values
        if values is None or not values.counts:
            return ""
        step = (values.high - values.low) / len(values.counts)
        for at, bar in enumerate(self._bars(values, self._area(), _densest(values))):
            if bar.left() <= x < bar.right():
                low = values.low + at * step
                return f"{values.counts[at]:,} values from {low:.6g} to {low + step:.6g}"
        return ""
