"""What pictures share: a tooltip for what is below the pointer, texts in boxes, chips. Main thread."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from functools import lru_cache

from PySide6.QtCore import QEvent, QPointF, QRect, QRectF, QSize, Qt
from PySide6.QtGui import QAccessible, QColor, QContextMenuEvent, QFontMetrics, QHelpEvent, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QToolTip, QWidget

from devexplorer.core.session import Progress
from devexplorer.gui.widgets.figures import Figures, offer_menu
from devexplorer.gui.widgets.layouts import CENTRE, LEFT
from devexplorer.gui.widgets.theme import Colour, Role, colour_of, current_theme, device_pen, font

LEFT_LINE = LEFT | Qt.TextFlag.TextSingleLine
"""Of most texts. Arithmetic of flags takes a third of the time of the text."""


class Picture(QWidget):
    """Subclasses paint something in `draw`, and say with `tip_at` what is at a point."""

    accessible_role = QAccessible.Role.Graphic
    smooth = True
    """Painted with antialiasing."""

    def __init__(self, name: str) -> None:
        super().__init__()
        self.setAccessibleName(name)
        self.setSizePolicy(QSizePolicy.Policy.Expanding, QSizePolicy.Policy.Expanding)

    def draw(self, painter: QPainter) -> None:
        """Paint all of it."""

    def paintEvent(self, _event: QPaintEvent) -> None:
        with QPainter(self) as painter:
            painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.smooth)
            self.draw(painter)
            paint_focus(painter, self)

    def tip_at(self, point: QPointF) -> str:
        """The tooltip of what is at a point; empty where there is nothing."""
        return ""

    def figures(self) -> Figures | None:
        """What it shows as numbers, for "Show as table"; None: nothing."""
        return None

    def contextMenuEvent(self, event: QContextMenuEvent) -> None:
        offer_menu(self, event)

    def event(self, event: QEvent) -> bool:
        if isinstance(event, QHelpEvent) and event.type() == QEvent.Type.ToolTip:
            text = self.tip_at(QPointF(event.pos()))  # an empty one hides the last
            QToolTip.showText(event.globalPos(), text, self, QRect(event.pos(), QSize(1, 1)))
            return True
        return super().event(event)


def paint_progress(painter: QPainter, where: QRect, progress: Progress | None) -> None:
    """A line along the bottom, as long as what is done of it; only its trough where that is not known."""
    if progress is None:
        return
    line = QRect(where.left(), where.bottom() - 1, where.width(), 2)
    painter.fillRect(line, QColor(current_theme().border_strong))
    if progress.done is not None:
        line.setWidth(round(where.width() * min(max(progress.done, 0.0), 1.0)))
        painter.fillRect(line, QColor(current_theme().soft))


def paint_focus(painter: QPainter, widget: QWidget) -> None:
    """A frame round a painted widget, in its own pixels, while it has the keyboard."""
    if widget.hasFocus():
        painter.setPen(current_theme().focus)
        painter.setBrush(Qt.BrushStyle.NoBrush)
        painter.drawRect(QRectF(widget.rect()).adjusted(0.5, 0.5, -0.5, -0.5))


def draw_text(
    painter: QPainter,
    where: QRect | QRectF,
    text: str,
    colour: Colour | QColor,
    role: Role = Role.LABEL,
    align: Qt.AlignmentFlag = LEFT,
    cut: Qt.TextElideMode = Qt.TextElideMode.ElideRight,
) -> int:
    """One line of text, cut short where there is no room; returns the width that it took."""
    painter.setFont(font(role))
    painter.setPen(colour if isinstance(colour, QColor) else colour_of(colour))
    room, width = max(math.ceil(where.width()), 0), text_width(text, role)
    if width > room:
        text = painter.fontMetrics().elidedText(text, cut, room)
        width = text_width(text, role)
    painter.drawText(where, LEFT_LINE if align is LEFT else align | Qt.TextFlag.TextSingleLine, text)
    return width


@lru_cache(2048)  # measuring a text takes as long as painting it
def text_width(text: str, role: Role = Role.LABEL) -> int:
    """In pixels."""
    return QFontMetrics(font(role)).horizontalAdvance(text)


CHIP_PX, PAD_PX, GAP_PX = 18, 6, 4
Look = Callable[[str], tuple[int, bool]]
"""Palette index of a device, and whether it is simulated."""


def chip_width(text: str) -> int:
    """In pixels."""
    return text_width(text) + 2 * PAD_PX


def paint_chip(painter: QPainter, where: QRectF, text: str, pen: QPen, fill: str, colour: Colour) -> None:
    """A text in a frame."""
    painter.setPen(pen)
    painter.setBrush(fill)
    painter.drawRoundedRect(where, 4, 4)
    draw_text(painter, where.adjusted(PAD_PX - 1, 0, 1 - PAD_PX, 0), text, colour, align=CENTRE)


def paint_device(painter: QPainter, where: QRectF, device: str, look: Look) -> None:
    """The device's name in its colour, with its outline; a simulated one's is dashed."""
    index, simulated = look(device)
    pen = device_pen(index, simulated=simulated)
    paint_chip(painter, where, device, pen, current_theme().panel, index)  # readable in a selected row


def paint_chips(painter: QPainter, where: QRect, texts: Sequence[str], paint: Callable[[QRectF, str], None]) -> float:
    """Chips from left to right; those without room are counted behind the last: `+3`. Returns the x behind them."""
    painter.setRenderHint(QPainter.RenderHint.Antialiasing)
    x, top = float(where.left()), where.center().y() - CHIP_PX / 2 + 1.5
    for index, text in enumerate(texts):
        rest = len(texts) - index
        room = where.right() - 1 - x - (text_width(f"+{rest - 1}") + GAP_PX if rest > 1 else 0)
        width = float(chip_width(text))
        if index and width > room:
            more = QRectF(x, where.top(), where.right() - x, where.height())
            return x + draw_text(painter, more, f"+{rest}", "dim") + GAP_PX
        width = min(width, max(room, 2 * PAD_PX + 8))
        paint(QRectF(x + 0.5, top, width, CHIP_PX - 1), text)
        x += width + GAP_PX
    return x
