"""Cards side by side without prices: samples per joule, or per second, as ranges on one scale, all simulated. Main
thread."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from PySide6.QtCore import QPointF, QRectF, QSize, Qt, Signal
from PySide6.QtGui import QAccessible, QColor, QKeyEvent, QPainter, QPen
from PySide6.QtWidgets import QWidget

from devexplorer.core.base import MISSING, number_text, range_text
from devexplorer.core.records import Fit
from devexplorer.gui.fit.ranges import NO_POWER, efficiency_tip, has_step, rate_range
from devexplorer.gui.widgets import (
    EDGE_PX,
    Figures,
    Picture,
    Role,
    ScrollArea,
    announce,
    current_theme,
    draw_text,
    hbox,
    label,
    number_texts,
    text_width,
    vbox,
)
from devexplorer.gui.widgets.form_fields import Choice

ROW_PX, BAR_PX, LEAST_BAR_PX = 20, 8, 130
MEASURES = (
    ("energy", "samples/J", "By the datasheet's power limit; a card that waits draws less"),
    ("rate", "samples/s", "Samples of the batch in a second of the simulated step"),
)
DOES_NOT_FIT = "does not fit"
NO_LIMIT, NO_SAMPLES = "no power limit known", "generates text, no samples"
_FIGURES = ("middle", "low", "high")


class CardRange(NamedTuple):
    """One card."""

    gpu: str
    middle: float | None
    low: float | None
    high: float | None
    text: str
    """The range, or why there is none."""
    tip: str


def card_ranges(fits: Sequence[Fit], measure: str) -> list[CardRange]:
    """The best first; cards without a figure last, with the reason."""
    result = []
    for fit in fits:
        if measure == "rate":
            figures = fit.samples_per_s, fit.samples_per_s_low, fit.samples_per_s_high
        else:
            figures = fit.samples_per_joule, fit.samples_per_joule_low, fit.samples_per_joule_high
        why = DOES_NOT_FIT if not fit.fits else NO_LIMIT if has_step(fit) else NO_SAMPLES
        text = range_text(number_text(figures[1]), number_text(figures[2]))
        tip = f"{fit.gpu}: {rate_range(fit)} samples/s, simulated. {efficiency_tip(fit)}"
        result.append(CardRange(fit.gpu, *figures, f"{MISSING}  {why}" if text == MISSING else text, tip))
    return sorted(result, key=lambda item: -(item.middle or 0.0))


class RangeBars(Picture):
    """A row for each card: its name, the range as a bar with its middle marked, the numbers. Up and down go from card
    to card."""

    reached = Signal(int)
    """The y of the card that the keys have reached."""
    accessible_role = QAccessible.Role.Chart
    smooth = False

    def __init__(self) -> None:
        super().__init__("Cards side by side, simulated")
        self.rows: list[CardRange] = []
        self._unit = ""
        self._index: int | None = None
        self.setFocusPolicy(Qt.FocusPolicy.StrongFocus)

    def set_rows(self, rows: Sequence[CardRange], unit: str) -> None:
        """Show these cards, from the top."""
        if (list(rows), unit) == (self.rows, self._unit):
            return
        self.rows, self._unit, self._index = list(rows), unit, None
        self.setMinimumSize(260, len(self.rows) * ROW_PX + 4)
        self.setAccessibleDescription("; ".join(f"{row.gpu}: {row.text}" for row in self.rows))
        self.updateGeometry()
        self.update()

    def sizeHint(self) -> QSize:
        return self.minimumSize()

    @property
    def at(self) -> CardRange | None:
        """The card that the keys have reached."""
        return None if self._index is None or self._index >= len(self.rows) else self.rows[self._index]

    def figures(self) -> Figures | None:
        columns = zip(*(number_texts(getattr(row, name) for row in self.rows) for name in _FIGURES), strict=True)
        both = zip(self.rows, columns, strict=True)
        rows = [(row.gpu, *values, row.text if row.middle is None else "") for row, values in both]
        unit = f"{self._unit} simulated"
        return Figures(("Card", unit, "from", "to", "Remark"), rows) if rows else None

    def draw(self, painter: QPainter) -> None:
        theme = current_theme()
        names = max((text_width(_short(row.gpu), Role.TEXT) for row in self.rows), default=0)
        numbers = max((text_width(row.text) for row in self.rows if row.middle is not None), default=0) + 16
        names = min(names, max(self.width() - 2 * EDGE_PX - numbers - LEAST_BAR_PX - 16, 2 * self.width() // 5))
        left = EDGE_PX + names + 8.0
        room = max(self.width() - left - numbers - EDGE_PX, 1.0)
        most = max((row.high or 0.0 for row in self.rows), default=0.0) or 1.0
        for number, row in enumerate(self.rows):
            y = 2.0 + number * ROW_PX
            if number == self._index:
                painter.fillRect(QRectF(1, y, self.width() - 2, ROW_PX), QColor(theme.button_hover))
            draw_text(painter, QRectF(EDGE_PX, y, names, ROW_PX), _short(row.gpu), "text", Role.TEXT)
            end = left
            if row.middle is not None and row.low is not None and row.high is not None:
                box = QRectF(left + room * row.low / most, y + (ROW_PX - BAR_PX) / 2, 0, BAR_PX)
                box.setRight(max(left + room * row.high / most, box.left() + 2))
                fill = QColor(theme.soft)
                fill.setAlphaF(0.45)
                painter.fillRect(box, fill)
                pen = QPen(QColor(theme.soft), 1)
                pen.setDashPattern([3, 2])
                painter.setPen(pen)
                painter.drawRect(box.adjusted(0.5, 0.5, -0.5, -0.5))
                x = left + room * row.middle / most
                painter.setPen(QPen(QColor(theme.text), 2))
                painter.drawLine(QPointF(x, box.top() - 2), QPointF(x, box.bottom() + 2))
                end = box.right() + 8
            draw_text(
                painter, QRectF(end, y, self.width() - end, ROW_PX), row.text, "dim" if row.middle is None else "text"
            )

    def tip_at(self, point: QPointF) -> str:
        number = int((point.y() - 2) // ROW_PX)
        return self.rows[number].tip if 0 <= number < len(self.rows) else ""

    def keyPressEvent(self, event: QKeyEvent) -> None:
        step = {Qt.Key.Key_Up: -1, Qt.Key.Key_Down: 1}.get(Qt.Key(event.key()))
        if step is None or not self.rows:
            event.ignore()
            return
        self._index = 0 if self._index is None else min(max(self._index + step, 0), len(self.rows) - 1)
        announce(self, self.rows[self._index].tip)
        self.reached.emit(self._index * ROW_PX + ROW_PX // 2)
        self.update()


def _short(gpu: str) -> str:
    """Without the maker, which says nothing here; the tooltip and the table have all of it."""
    return gpu.removeprefix("NVIDIA ").removeprefix("AMD ")


class Efficiency(QWidget):
    """The bars of every card of a plan, and what they are measured in."""

    def __init__(self) -> None:
        super().__init__()
        self.measure = Choice("What the cards are compared by", MEASURES)
        self.bars = RangeBars()
        self.note = label(role=Role.LABEL, words="dim", wrap=True)
        self._fits: Sequence[Fit] = ()
        area = ScrollArea(self.bars, "Cards side by side, simulated")
        self.bars.reached.connect(lambda y: area.ensureVisible(0, y, 0, ROW_PX))
        top = hbox(self.measure, (self.note, 1), margins=(EDGE_PX, 2, EDGE_PX, 0))
        vbox(top, (area, 1), spacing=4, parent=self)
        self.measure.currentIndexChanged.connect(self._draw)

    def show_fits(self, fits: Sequence[Fit]) -> None:
        """Compare these."""
        if fits is not self._fits:
            self._fits = fits
            self._draw()

    def _draw(self) -> None:
        energy = self.measure.value == "energy"
        self.bars.set_rows(card_ranges(self._fits, self.measure.value), "samples/J" if energy else "samples/s")
        unknown = [fit.gpu for fit in self._fits if fit.board_power_w is None]
        why = f" {NO_POWER}" if len(unknown) == len(self._fits) == 1 and energy else ""
        at = "at the datasheet's power limit, simulated" if energy else "simulated"
        self.note.setText(f"{at}; bars: the ranges expected of real cards.{why}")
