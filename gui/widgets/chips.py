"""Chips: the names of devices, and tags, in small frames. Main thread."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from PySide6.QtCore import QRect, QRectF
from PySide6.QtGui import QPainter, QPen

from devexplorer.gui.widgets.layouts import CENTRE
from devexplorer.gui.widgets.picture import draw_text, text_width
from devexplorer.gui.widgets.theme import Colour, current_theme, device_pen

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
