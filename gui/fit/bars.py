"""The table of the cards of a plan, and in it the bars: the parts of the memory against the capacity. Main thread.

Colour means device, and these cards are no devices here: the parts are shades of one hue, apart by lightness and by a
gap.
"""

from __future__ import annotations

from collections.abc import Callable

from PySide6.QtCore import QRect, QRectF, QSize, Qt
from PySide6.QtGui import QBrush, QColor, QPainter, QPaintEvent, QPen
from PySide6.QtWidgets import QSizePolicy, QWidget

from devexplorer.core.planner.records import Fit
from devexplorer.gui.charts.shades import STEPS, ramp
from devexplorer.gui.fit.rows import BATCH, CAPACITY, CARD, COLUMNS, ENERGY, FITS, MEMORY, RATE, STEP, TOTAL, sizes
from devexplorer.gui.widgets import PAD_PX, RIGHT, Index, Padded, RowsModel, RowsTable, current_theme, draw_text

BAR_PX, SWATCH_PX, WORDS_PX = 10, 10, 50
CAPACITY_AT = 0.72
"""Where in the bar the capacity is: what does not fit is drawn beyond it, as far as there is room."""
_SHADES = {
    "parameters": 1.0,
    "gradients": 0.82,
    "optimizer": 0.64,
    "kv_cache": 0.64,
    "activations": 0.46,
    "buffers": 0.3,
}
"""Part -> place in the ramp, falling from left to right; what is trained has no cache."""
_WIDTHS = {CARD: 204, MEMORY: 110, TOTAL: 68, CAPACITY: 56, FITS: 58, BATCH: 88, STEP: 118, RATE: 124, ENERGY: 126}
_GIVES_UP = (ENERGY, CAPACITY, RATE, STEP, BATCH, TOTAL, MEMORY, FITS)
"""The bar and the details show the card's memory."""


def part_colour(key: str) -> QColor:
    """The colour of a part; greys for what is not the model's."""
    if key in _SHADES:
        return ramp(0)[int(_SHADES[key] * (STEPS - 1))]
    return QColor(current_theme().bar_context if key == "context" else current_theme().bar_other)


def paint_bar(painter: QPainter, where: QRectF, fit: Fit) -> None:
    """The parts from left to right, the capacity as a line, what is beyond it hatched."""
    theme = current_theme()
    limit = where.left() + where.width() * CAPACITY_AT
    painter.fillRect(QRectF(where.left(), where.top(), limit - where.left(), where.height()), theme.bar_free)
    scale = where.width() * CAPACITY_AT / max(fit.capacity_bytes, 1)
    x = where.left()
    for part, size in sizes(fit.bytes):
        width = min(max(size * scale, 1.0), where.right() - x)
        if width <= 0:
            break
        gap = 1.0 if width > 3 else 0.0
        painter.fillRect(QRectF(x, where.top(), width - gap, where.height()), part_colour(part.key))
        x += width
    if x > limit and not fit.fits:
        excess = QRectF(limit, where.top(), x - limit, where.height())
        painter.fillRect(excess, QBrush(QColor(theme.error), Qt.BrushStyle.BDiagPattern))
    painter.setPen(QPen(QColor(theme.text if fit.fits else theme.error), 2))
    painter.drawLine(int(limit), int(where.top()) - 2, int(limit), int(where.bottom()) + 2)


class BarDelegate(Padded):
    """Paints the column of the bars; `find` gives the fit of a row by its key."""

    def __init__(self, model: RowsModel, find: Callable[[object], Fit | None]) -> None:
        super().__init__()
        self._model, self._find = model, find

    def paint_cell(self, painter: QPainter, cell: QRect, index: Index) -> bool:
        fit = self._find(self._model.rows[index.row()].key)
        room = QRectF(cell).adjusted(PAD_PX - 3, 0, -PAD_PX, 0)
        if fit is not None and index.column() == MEMORY and fit.bytes.total:
            bar = QRectF(room.left(), room.center().y() - BAR_PX / 2, room.width() - WORDS_PX, BAR_PX)
            paint_bar(painter, bar, fit)
        draw_text(painter, room, str(index.data()), "dim", align=RIGHT)
        return True


class Swatch(QWidget):
    """The colour of a part, before its name."""

    def __init__(self, key: str) -> None:
        super().__init__()
        self._key = key
        self.setSizePolicy(QSizePolicy.Policy.Fixed, QSizePolicy.Policy.Fixed)

    def sizeHint(self) -> QSize:
        return QSize(SWATCH_PX, SWATCH_PX)

    def paintEvent(self, _event: QPaintEvent) -> None:
        painter = QPainter(self)
        painter.fillRect(self.rect(), part_colour(self._key))
        painter.setPen(current_theme().border_strong)
        painter.drawRect(QRectF(self.rect()).adjusted(0.5, 0.5, -0.5, -0.5))  # inside at any factor
        painter.end()


class CardsTable(RowsTable):
    """A row for each card. What room is left goes to the names, as far as they need it, then to the bar."""

    def __init__(self, model: RowsModel) -> None:
        widths = [_WIDTHS[column] for column in range(len(COLUMNS))]
        super().__init__(model, "Cards", widths, stretched=MEMORY, gives_up=_GIVES_UP, named=(CARD,))
