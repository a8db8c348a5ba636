"""Wall times of jobs as bars on one scale of seconds. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QColor, QFontMetrics, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.base.formats import seconds_text
from devexplorer.gui.widgets.theme import Role, Theme, device_colour, device_dash, font

EDGE_PX, HEAD_PX, BAR_PX, GAP_PX, LONGEST_PX = 12, 20, 16, 4, 900


@dataclass(frozen=True)
class Bar:
    """One bar; bars of a group stand together under the group's name."""

    group: str
    name: str
    seconds: float | None
    """None: not measured (yet)."""
    colour: int
    """Index into the palette."""
    simulated: bool = False
    jobs: int = 1
    """How many jobs, one after the other."""
    missing: str = "not measured"
    """What stands there while there are no seconds."""


class WallBars(QWidget):
    """Feed it with `set_bars`."""

    def __init__(self, theme: Theme, parent: QWidget | None = None) -> None:
        super().__init__(parent)
        self._theme = theme
        self._bars: tuple[Bar, ...] = ()
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)
        self.setAccessibleName("Wall times")

    def set_theme(self, theme: Theme) -> None:
        """Paint in other colours."""
        self._theme = theme
        self.update()

    def set_bars(self, bars: Sequence[Bar]) -> None:
        """Show these bars, from the top, in groups."""
        self._bars = tuple(bars)
        groups = len({bar.group for bar in bars})
        self.setMinimumSize(260, EDGE_PX + groups * (HEAD_PX + 4) + len(bars) * (BAR_PX + GAP_PX))
        words = (
            f"{bar.group}, {bar.name}: {seconds_text(bar.seconds)}{', simulated' if bar.simulated else ''}"
            for bar in bars
        )
        self.setAccessibleDescription("; ".join(words))
        self.update()

    @property
    def bars(self) -> tuple[Bar, ...]:
        """What is shown."""
        return self._bars

    def boxes(self) -> list[QRectF]:
        """Where each bar is, as long as its time."""
        left = self._left_px()
        room = min(max(self.width() - left - self._right_px(), 20), LONGEST_PX)
        longest = max((bar.seconds or 0.0 for bar in self._bars), default=0.0)
        boxes, y, group = [], 4.0, ""
        for bar in self._bars:
            if bar.group != group:
                y += HEAD_PX + (4 if group else 0)
                group = bar.group
            share = (bar.seconds or 0.0) / longest if longest > 0 else 0.0
            boxes.append(QRectF(left, y, share * room, BAR_PX))
            y += BAR_PX + GAP_PX
        return boxes

    def _left_px(self) -> int:
        metrics = QFontMetrics(font(Role.TEXT))
        return EDGE_PX + max((metrics.horizontalAdvance(bar.name) for bar in self._bars), default=0) + 10

    def _right_px(self) -> int:
        metrics = QFontMetrics(font(Role.TEXT))
        return metrics.horizontalAdvance("9,999 ms") + metrics.horizontalAdvance("simulated") + 28

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter, theme, group = QPainter(self), self._theme, ""
        left = self._left_px()
        for bar, box in zip(self._bars, self.boxes(), strict=True):
            if bar.group != group:
                group = bar.group
                painter.setFont(font(Role.LABEL))
                painter.setPen(QColor(theme.dim))
                head = QRectF(EDGE_PX, box.top() - HEAD_PX, self.width() - EDGE_PX, HEAD_PX)
                painter.drawText(head, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, group)
            painter.setFont(font(Role.TEXT))
            painter.setPen(QColor(device_colour(bar.colour, theme)))
            name = QRectF(EDGE_PX, box.top(), left - EDGE_PX, box.height())
            painter.drawText(name, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, bar.name)
            self._paint_bar(painter, bar, box)

    def _paint_bar(self, painter: QPainter, bar: Bar, box: QRectF) -> None:
        theme = self._theme
        colour = QColor(device_colour(bar.colour, theme))
        if bar.seconds is not None:
            fill = QColor(colour)
            if bar.simulated:
                fill.setAlphaF(0.45)
            painter.fillRect(box, fill)
            dash = device_dash(bar.colour, theme) or ([4.0, 3.0] if bar.simulated else [])
            if dash:
                pen = QPen(colour, 1)
                pen.setDashPattern(dash)
                painter.setPen(pen)
                painter.setBrush(Qt.BrushStyle.NoBrush)
                painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
            painter.setPen(QPen(QColor(theme.panel), 2))
            for job in range(
                1, bar.jobs
            ):  # the same job again: where one ends is not measured, only that there are so many
                x = box.left() + box.width() * job / bar.jobs
                painter.drawLine(QPointF(x, box.top()), QPointF(x, box.bottom()))
        painter.setPen(QColor(theme.text if bar.seconds is not None else theme.dim))
        text = seconds_text(bar.seconds) if bar.seconds is not None else bar.missing
        where = QRectF(box.right() + 8, box.top(), self.width() - box.right() - 8, box.height())
        painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, text)
        if bar.simulated:
            where.adjust(QFontMetrics(font(Role.TEXT)).horizontalAdvance(text) + 8, 0, 0, 0)
            painter.setFont(font(Role.LABEL))
            painter.setPen(QColor(theme.dim))
            painter.drawText(where, Qt.AlignmentFlag.AlignLeft | Qt.AlignmentFlag.AlignVCenter, "simulated")
