"""The cursor of a plot: a vertical line and a small box with the time and each curve's value there. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import pyqtgraph as pg
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QLabel, QWidget

from devexplorer.gui.theme import DARK, Role, Theme, font

COLUMN_ROWS = 6
"""More devices than this stand in two columns."""
DISTANCE_PX = 12
"""Between the line and the box."""


class Reading(NamedTuple):
    """One line of the box."""

    device: str
    colour: str
    """`#RRGGBB`"""
    value: str
    simulated: bool


class Cursor:
    """The line (in the plot's own x, seconds from now) and the box, a label over the plot that no click ever hits."""

    def __init__(self, canvas: QWidget, view: pg.ViewBox) -> None:
        self._theme = DARK
        self._title = ""
        self._readings: tuple[Reading, ...] = ()
        self.line = pg.InfiniteLine(angle=90, movable=False)
        self.line.setZValue(60)
        self.line.hide()
        view.addItem(self.line, ignoreBounds=True)
        self.box = QLabel(canvas)
        self.box.setTextFormat(Qt.TextFormat.RichText)
        self.box.setFont(font(Role.LABEL))
        self.box.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.box.setAccessibleName("Values at the cursor")
        self.box.hide()

    def set_theme(self, theme: Theme) -> None:
        """Colours from now on."""
        self._theme = theme
        self.line.setPen(pg.mkPen(QColor(theme.dim), width=1))
        self.box.setStyleSheet(
            f"background: {theme.card}; color: {theme.text}; border: 1px solid {theme.border_strong};border-radius: 4px; padding: 4px 7px;"
        )
        self._readings = ()

    def show_at(self, x_s: float, x_px: float, plot: QRect, title: str, readings: Sequence[Reading]) -> None:
        """Show line and box at x = `x_s`, which is `x_px` on the canvas; the box stays inside `plot` (pixels)."""
        self.line.setPos(x_s)
        self.line.show()
        if (title, tuple(readings)) != (self._title, self._readings):
            self._title, self._readings = title, tuple(readings)
            self.box.setText(self._html())
            self.box.adjustSize()
        left = x_px + DISTANCE_PX
        if left + self.box.width() > plot.right():
            left = x_px - DISTANCE_PX - self.box.width()
        left = min(max(left, plot.left()), max(plot.right() - self.box.width(), plot.left()))
        self.box.move(round(left), plot.top() + 4)
        self.box.show()

    def hide(self) -> None:
        """Take line and box away."""
        self.line.hide()
        self.box.hide()

    def _html(self) -> str:
        # Names come from the engine, which is not trusted: escaped.
        cells = [
            f'<td style="color:{colour}">{escape(device)}{" simulated" if simulated else ""}&nbsp;&nbsp;</td>'
            f'<td align="right" style="white-space:nowrap">{escape(value)}</td>'
            for device, colour, value, simulated in self._readings
        ]
        if len(cells) > COLUMN_ROWS:
            half = (len(cells) + 1) // 2
            second = [f"<td>&nbsp;&nbsp;&nbsp;</td>{cell}" for cell in cells[half:]] + [""] * (2 * half - len(cells))
            cells = [left + right for left, right in zip(cells[:half], second, strict=True)]
        rows = "".join(f"<tr>{cell}</tr>" for cell in cells)
        return f'<span style="color:{self._theme.dim}">{escape(self._title)}</span><table cellspacing="0">{rows}</table>'
