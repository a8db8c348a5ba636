"""How often values occur: one bar per bin in the device's colour, what was there before as an outline. Main thread."""

from __future__ import annotations

from PySide6.QtCore import QEvent, QPointF, QRectF, QSize, Qt
from PySide6.QtGui import QColor, QFontMetrics, QHelpEvent, QPainter, QPaintEvent, QPen, QPolygonF
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from devexplorer.core.formats import number_text
from devexplorer.core.records.laboratory import Values
from devexplorer.gui.plain import tip
from devexplorer.gui.theme import Role, Theme, font

TICKS_PX, TOP_PX, EDGE_PX = 18, 18, 12
MIN_PX = QSize(240, 110)


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
        highest = max(self._highest(one) for one in (self._values, self._before) if one is not None)
        painter.setPen(QPen(QColor(self._theme.border), 1))
        painter.drawLine(area.bottomLeft(), area.bottomRight())
        self._paint_bars(painter, area, highest)
        if self._before is not None and self._before.counts:
            self._paint_outline(painter, area, highest, self._before)
        self._paint_ticks(painter, area)
        painter.end()

    def _area(self) -> QRectF:
        return QRectF(self.rect()).adjusted(EDGE_PX, TOP_PX, -EDGE_PX, -TICKS_PX)

    @staticmethod
    def _highest(values: Values) -> float:
        """Share of the values in the fullest bin: two histograms of different sizes stay comparable."""
        return max(values.counts, default=0) / max(sum(values.counts), 1)

    def _bars(self, values: Values, area: QRectF, highest: float) -> list[QRectF]:
        low, high = self.span
        scale = area.width() / (high - low)
        wide = (values.high - values.low) / len(values.counts) * scale
        if wide <= 0:  # all values are the same one
            wide = max(area.width() / 40, 2.0)
            left = area.left() + (values.low - low) * scale - wide / 2
            return [QRectF(left, area.top(), wide, area.height())]
        left = area.left() + (values.low - low) * scale
        total = max(sum(values.counts), 1)
        bars = []
        for at, count in enumerate(values.counts):
            height = area.height() * count / total / (highest or 1)
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
        metrics = QFontMetrics(painter.font())
        painter.setPen(QColor(self._theme.dim))
        low, high = self.span
        for share in (0.0, 0.25, 0.5, 0.75, 1.0):
            text = number_text(low + share * (high - low)) if low + share * (high - low) else "0"
            width = metrics.horizontalAdvance(text)
            x = min(max(area.left() + share * area.width() - width / 2, 2), self.width() - width - 2)
            painter.drawText(QPointF(x, self.height() - 5), text)
        if self._before is not None:
            painter.drawText(QPointF(area.left(), TOP_PX - 6), "dashed: before")

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
        for at, bar in enumerate(self._bars(values, self._area(), self._highest(values))):
            if bar.left() <= x < bar.right():
                low = values.low + at * step
                return f"{values.counts[at]:,} values from {low:.6g} to {low + step:.6g}"
        return ""
