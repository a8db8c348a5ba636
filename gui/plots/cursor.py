"""The readout of a plot: a vertical line at the cursor, and a small box with each curve's value there and what it did
in the selected span; that span as a band. Main thread."""

from __future__ import annotations

import math
from collections.abc import Sequence
from html import escape
from typing import NamedTuple

import pyqtgraph as pg
from PySide6.QtCore import QObject, QSize, Qt
from PySide6.QtGui import QColor
from PySide6.QtWidgets import QLabel, QWidget

from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.curve_item import straight_pen
from devexplorer.gui.widgets import Role, current_theme, font, theme_changed

FILL_ALPHA, EDGE_ALPHA = 0.16, 0.8
COLUMN_ROWS = 6
"""More curves than this are listed in two columns, where there is room."""
DISTANCE_PX = 12
"""Between the line and the box."""


class SelectionItem(pg.LinearRegionItem):  # type: ignore[misc]  # pyqtgraph publishes no types
    """A band in seconds from now, below the curves."""

    def __init__(self) -> None:
        super().__init__(movable=False)
        self.setZValue(-60)
        theme_changed.connect(self._recolour)
        self._recolour()
        self.hide()

    def _recolour(self) -> None:
        fill, edge = QColor(current_theme().accent), QColor(current_theme().accent)
        fill.setAlphaF(FILL_ALPHA)
        edge.setAlphaF(EDGE_ALPHA)
        self.setBrush(fill)
        for line in self.lines:
            line.setPen(straight_pen(edge, self.getViewWidget()))
        self.update()

    def show_span(self, edges: tuple[float, float] | None) -> None:
        """Show a band between these edges, or none."""
        self.setVisible(edges is not None)
        if edges is not None:
            if self.lines[0].pen.width() != straight_pen(None, self.getViewWidget()).width():
                self._recolour()  # the window is on another screen
            self.setRegion(edges)


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
        super().__init__(picture, textFormat=Qt.TextFormat.PlainText)
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
        self.line.setPen(straight_pen(current_theme().dim, self._canvas))
        self._shown = ()

    def show_line(self, x_s: float | None) -> None:
        """Put the line at x = `x_s`, or take it away."""
        self.line.setVisible(x_s is not None)
        if x_s is not None:
            self.line.setPos(x_s)
            if self.line.pen.width() != (pen := straight_pen(current_theme().dim, self._canvas)).width():
                self.line.setPen(pen)  # the window is on another screen

    def show_box(self, x_px: float, titles: Sequence[str], heads: Sequence[str], readings: Sequence[Reading]) -> None:
        """Show the box beside the line, `x_px` from the left end of the axis.

        `heads` are above the values of each reading; where there is one value they are left out.
        """
        plot = self._canvas.area()
        shown = (tuple(titles), tuple(heads), tuple(readings), self._canvas.size())
        if shown != self._shown:
            self._shown = shown
            self._fill(titles, heads, readings, QSize(self._canvas.width() - round(plot.left()), self._canvas.height()))
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

    def _fill(self, titles: Sequence[str], heads: Sequence[str], readings: Sequence[Reading], room: QSize) -> None:
        """In the first of these forms that has room: two columns, without the word "simulated" behind each name, one
        column, only some of the readings."""
        many = len(readings) > COLUMN_ROWS
        for columns, with_word in (
            (1 + many, len(heads) == 1 or not many),
            (1 + many, not many),
            (1, True),
            (1, False),
        ):
            self.box.setText(_html(titles, heads, readings, columns, with_word))
            self.box.adjustSize()
            if self.box.width() <= room.width():
                break
        left_out = math.ceil((self.box.height() - room.height()) / self.box.fontMetrics().lineSpacing())
        if left_out > 0 and columns == 1:
            said = sorted(readings, key=lambda reading: all(value[:2] in ("0", "0 ") for value in reading.values))
            kept = said[: max(len(said) - left_out - 1, 1)]
            more = f"… and {len(readings) - len(kept)} more"
            some = [reading for reading in readings if reading in kept]
            self.box.setText(_html([*titles, more], heads, some, columns, with_word))
            self.box.adjustSize()


def _html(
    titles: Sequence[str], heads: Sequence[str], readings: Sequence[Reading], columns: int, with_word: bool
) -> str:
    # Names come from the engine, which is not trusted: escaped.
    if not with_word and any(reading.simulated for reading in readings):
        names = [reading.name for reading in readings if reading.simulated]
        titles = [
            *titles,
            "all simulated" if len(names) == len(readings) else f"simulated: {names[0]} … {names[-1]}",
        ]
    split = -(-len(readings) // columns)
    tables = [_table(heads, part, with_word) for part in (readings[:split], readings[split:]) if part]
    head = "".join(f'<div style="color:{current_theme().dim}">{escape(title)}</div>' for title in titles)
    return f"{head}<table cellspacing='0'><tr>{'<td>&nbsp;&nbsp;&nbsp;</td>'.join(tables)}</tr></table>"


def _table(heads: Sequence[str], readings: Sequence[Reading], with_word: bool) -> str:
    number = 'align="right" style="white-space:nowrap'
    rows = []
    if len(heads) > 1:
        cells = (f'<td {number}; color:{current_theme().dim}">&nbsp;&nbsp;{escape(text)}</td>' for text in heads)
        rows.append("<td></td>" + "".join(cells))
    for reading in readings:
        word = " simulated" if reading.simulated and with_word else ""
        cells = (f'<td {number}">&nbsp;&nbsp;{escape(value)}</td>' for value in reading.values)
        name = f'<td style="color:{reading.colour}; white-space:nowrap">{escape(reading.name)}{word}</td>'
        rows.append(name + "".join(cells))
    return f"<td><table cellspacing='0'>{''.join(f'<tr>{row}</tr>' for row in rows)}</table></td>"
