"""Wall times of jobs as bars on one scale of seconds. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from PySide6.QtCore import QPointF, QRectF, Qt
from PySide6.QtGui import QAccessible, QColor, QPainter, QPen

from devexplorer.core.base import seconds_text
from devexplorer.gui.widgets import (
    Figures,
    Picture,
    Role,
    current_theme,
    device_pen,
    draw_text,
    number_texts,
    text_width,
)

EDGE_PX, HEAD_PX, BAR_PX, GAP_PX, LONGEST_PX = 12, 20, 16, 4, 900


@dataclass(frozen=True)
class Bar:
    """One bar; bars of a group are listed together under the group's name."""

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
    """Shown while there are no seconds."""


class WallBars(Picture):
    """Feed it with `set_bars`."""

    accessible_role = QAccessible.Role.Chart
    smooth = False

    def __init__(self) -> None:
        super().__init__("Wall times")
        self.bars: tuple[Bar, ...] = ()

    def set_bars(self, bars: Sequence[Bar]) -> None:
        """Show these bars, from the top, in groups."""
        self.bars = tuple(bars)
        groups = len({bar.group for bar in bars})
        self.setMinimumSize(260, EDGE_PX + groups * (HEAD_PX + 4) + len(bars) * (BAR_PX + GAP_PX))
        texts = (
            f"{bar.group}, {bar.name}: {seconds_text(bar.seconds)}{', simulated' if bar.simulated else ''}"
            for bar in bars
        )
        self.setAccessibleDescription("; ".join(texts))
        self.update()

    def figures(self) -> Figures | None:
        rows = [
            (bar.group, f"{bar.name}{' simulated' if bar.simulated else ''}", str(bar.jobs), seconds)
            for bar, seconds in zip(self.bars, number_texts(bar.seconds for bar in self.bars), strict=True)
        ]
        return Figures(("Group", "Bar", "Jobs", "Wall time, s"), rows) if rows else None

    def boxes(self) -> list[QRectF]:
        """Where each bar is, as long as its time."""
        left = self._left_px()
        right = text_width("9,999 ms", Role.TEXT) + text_width("simulated", Role.TEXT) + 28
        room = min(max(self.width() - left - right, 20), LONGEST_PX)
        longest = max((bar.seconds or 0.0 for bar in self.bars), default=0.0)
        boxes, y, group = [], 4.0, ""
        for bar in self.bars:
            if bar.group != group:
                y += HEAD_PX + (4 if group else 0)
                group = bar.group
            share = (bar.seconds or 0.0) / longest if longest > 0 else 0.0
            boxes.append(QRectF(left, y, share * room, BAR_PX))
            y += BAR_PX + GAP_PX
        return boxes

    def _left_px(self) -> int:
        return EDGE_PX + max((text_width(bar.name, Role.TEXT) for bar in self.bars), default=0) + 10

    def draw(self, painter: QPainter) -> None:
        group = ""
        left = self._left_px()
        for bar, box in zip(self.bars, self.boxes(), strict=True):
            if bar.group != group:
                group = bar.group
                head = QRectF(EDGE_PX, box.top() - HEAD_PX, self.width() - EDGE_PX, HEAD_PX)
                draw_text(painter, head, group, "dim")
            name = QRectF(EDGE_PX, box.top(), left - EDGE_PX, box.height())
            draw_text(painter, name, bar.name, bar.colour, Role.TEXT)
            if bar.seconds is not None:
                self._paint_bar(painter, bar, box)
            text = bar.missing if bar.seconds is None else seconds_text(bar.seconds)
            where = QRectF(box.right() + 8, box.top(), self.width() - box.right() - 8, box.height())
            draw_text(painter, where, text, "dim" if bar.seconds is None else "text", Role.TEXT)
            if bar.simulated:
                where.setLeft(where.left() + text_width(text, Role.TEXT) + 8)
                draw_text(painter, where, "simulated", "dim")

    def _paint_bar(self, painter: QPainter, bar: Bar, box: QRectF) -> None:
        pen = device_pen(bar.colour, simulated=bar.simulated)
        fill = pen.color()
        fill.setAlphaF(0.45 if bar.simulated else 1.0)
        painter.fillRect(box, fill)
        if pen.style() != Qt.PenStyle.SolidLine:
            painter.setPen(pen)
            painter.setBrush(Qt.BrushStyle.NoBrush)
            painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
        painter.setPen(QPen(QColor(current_theme().panel), 2))
        for job in range(1, bar.jobs):  # the end of one is not measured: the marks only count the jobs
            x = box.left() + box.width() * job / bar.jobs
            painter.drawLine(QPointF(x, box.top()), QPointF(x, box.bottom()))
