"""The readout of a plot: a vertical line at the cursor, and a small box with each curve's value there and what it did
in the selected span. Main thread."""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import pyqtgraph as pg
from PySide6.QtCore import QObject, Qt
from PySide6.QtWidgets import QLabel, QWidget

from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.widgets import Role, current_theme, font, theme_changed

COLUMN_ROWS = 6
"""More curves than this are listed in two columns."""
DISTANCE_PX = 12
"""Between the line and the box."""


class Reading(NamedTuple):
    """One line of the box."""

    name: str
    colour: str
    """`#RRGGBB`"""
    values: tuple[str, ...]
    simulated: bool


class ReadoutBox(QLabel):
    """A small label over a picture, which no click ever hits."""

    def __init__(self, picture: QWidget, name: str) -> None:
        super().__init__(picture)
        self.setObjectName("readout")
        self.setFont(font(Role.LABEL))
        self.setAttribute(Qt.WidgetAttribute.WA_TransparentForMouseEvents)
        self.setAccessibleName(name)
        self.hide()


class Cursor(QObject):
    """The line (in the plot's own x) and the box."""

    def __init__(self, canvas: PlotCanvas) -> None:
        super().__init__(canvas)
        self._canvas = canvas
        self._shown: tuple[object, ...] = ()
        self.line = pg.InfiniteLine(angle=90, movable=False)
        self.line.setZValue(60)
        self.line.hide()
        canvas.view.addItem(self.line, ignoreBounds=True)
        self.box = ReadoutBox(canvas, "Values at the cursor and in the selection")
        self.box.setTextFormat(Qt.TextFormat.RichText)
        theme_changed.connect(self._recolour)
        self._recolour()

    def _recolour(self) -> None:
        self.line.setPen(pg.mkPen(current_theme().dim, width=1))
        self._shown = ()

    def show_line(self, x_s: float | None) -> None:
        """Put the line at x = `x_s`, or take it away."""
        self.line.setVisible(x_s is not None)
        if x_s is not None:
            self.line.setPos(x_s)

    def show_box(self, x_px: float, titles: Sequence[str], heads: Sequence[str], readings: Sequence[Reading]) -> None:
        """Show the box beside the line, `x_px` from the left end of the axis.

        `heads` are above the values of each reading; where there is one value they are left out.
        """
        shown = (tuple(titles), tuple(heads), tuple(readings))
        if shown != self._shown:
            self._shown = shown
            self.box.setText(self._html(titles, heads, readings))
            self.box.adjustSize()
        plot = self._canvas.area()
        left = plot.left() + x_px + DISTANCE_PX
        if left + self.box.width() > plot.right():
            left -= 2 * DISTANCE_PX + self.box.width()
        left = min(max(left, plot.left()), max(plot.right() - self.box.width(), plot.left()))
        top = max(min(plot.top() + 4, plot.bottom() - self.box.height()), 0)
        self.box.move(round(left), top)
        self.box.show()

    def hide(self) -> None:
        """Take line and box away."""
        self.line.hide()
        self.box.hide()

    def _html(self, titles: Sequence[str], heads: Sequence[str], readings: Sequence[Reading]) -> str:
        # Names come from the engine, which is not trusted: escaped.
        dim = f'style="color:{current_theme().dim}"'
        with_word = len(heads) == 1 or len(readings) <= COLUMN_ROWS
        if not with_word and any(reading.simulated for reading in readings):
            names = [reading.name for reading in readings if reading.simulated]
            titles = [
                *titles,
                "all simulated" if len(names) == len(readings) else f"simulated: {names[0]} … {names[-1]}",
            ]
        split = (len(readings) + 1) // 2 if len(readings) > COLUMN_ROWS else len(readings)
        columns = [self._table(heads, part, with_word) for part in (readings[:split], readings[split:]) if part]
        head = "".join(f"<div {dim}>{escape(title)}</div>" for title in titles)
        return f"{head}<table cellspacing='0'><tr>{'<td>&nbsp;&nbsp;&nbsp;</td>'.join(columns)}</tr></table>"

    def _table(self, heads: Sequence[str], readings: Sequence[Reading], with_word: bool) -> str:
        dim = current_theme().dim
        number = 'align="right" style="white-space:nowrap'
        rows = []
        if len(heads) > 1:
            cells = (f'<td {number}; color:{dim}">&nbsp;&nbsp;{escape(text)}</td>' for text in heads)
            rows.append("<td></td>" + "".join(cells))
        for reading in readings:
            word = " simulated" if reading.simulated and with_word else ""
            cells = (f'<td {number}">&nbsp;&nbsp;{escape(value)}</td>' for value in reading.values)
            name = f'<td style="color:{reading.colour}; white-space:nowrap">{escape(reading.name)}{word}</td>'
            rows.append(name + "".join(cells))
        return f"<td><table cellspacing='0'>{''.join(f'<tr>{row}</tr>' for row in rows)}</table></td>"
