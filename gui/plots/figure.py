"""Plots as a picture: PNG at twice the size, or SVG with text that stays text. Titles, legends in full, the time in
words, and the word "simulated" wherever it belongs. Main thread only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QImage, QImageWriter, QPainter
from PySide6.QtSvg import QSvgGenerator

from devexplorer.gui.plots.legend import GAP_PX, LINE_PX, Entry, draw_key, entry_colour
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.widgets import Role, current_theme, draw_text, font, text_width

EDGE_PX, TITLE_PX, ROW_PX, BETWEEN_PX, FOOT_PX = 16, 24, 18, 12, 24
SPACE_PX = 16
"""Between two entries of a legend."""
PNG_SCALE = 2.0


class Figure:
    """Plots one below the other, as in the window."""

    def __init__(self, plots: Sequence[TimelinePlot]) -> None:
        self._plots = [plot for plot in plots if not plot.is_empty]
        widest = max((plot.canvas.width() for plot in self._plots), default=320)
        self._width = widest + 2 * EDGE_PX
        self._legends = {plot: self._rows(plot.legend_entries) for plot in self._plots}
        heights = [TITLE_PX + ROW_PX * len(self._legends[plot]) + plot.canvas.height() for plot in self._plots]
        self._height = EDGE_PX + sum(heights) + BETWEEN_PX * max(len(heights) - 1, 0) + FOOT_PX

    def png(self) -> bytes:
        """The picture, two pixels for each of the screen's."""
        image = QImage(
            QSize(round(self._width * PNG_SCALE), round(self._height * PNG_SCALE)), QImage.Format.Format_RGB32
        )
        image.setDevicePixelRatio(PNG_SCALE)
        painter = QPainter(image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint(painter)
        painter.end()
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        QImageWriter(buffer, QByteArray(b"png")).write(image)
        return bytes(buffer.data().data())

    def svg(self) -> bytes:
        """The picture as drawing."""
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        # the older Tiny profile cannot clip curves at the axes
        generator = QSvgGenerator(QSvgGenerator.SvgVersion.Svg11)
        generator.setOutputDevice(buffer)
        generator.setResolution(96)
        generator.setSize(QSize(self._width, self._height))
        generator.setViewBox(QRect(0, 0, self._width, self._height))
        generator.setTitle("; ".join(plot.title for plot in self._plots))
        generator.setDescription(self._foot())
        painter = QPainter(generator)
        self._paint(painter)
        painter.end()
        return bytes(buffer.data().data())

    def _paint(self, painter: QPainter) -> None:
        painter.fillRect(QRectF(0, 0, self._width, self._height), current_theme().panel)
        y = float(EDGE_PX)
        for plot in self._plots:
            y = self._paint_plot(painter, plot, y) + BETWEEN_PX
        where = QRectF(EDGE_PX, self._height - FOOT_PX, self._width - 2 * EDGE_PX, FOOT_PX - 6)
        draw_text(painter, where, self._foot(), "dim")

    def _paint_plot(self, painter: QPainter, plot: TimelinePlot, y: float) -> float:
        """Paint from `y` on; returns where it ends."""
        title = QRectF(EDGE_PX, y, self._width - 2 * EDGE_PX, TITLE_PX - 4)
        draw_text(painter, title, plot.title, "text", Role.STRONG)
        title.setLeft(title.left() + text_width(plot.title, Role.STRONG) + 8)
        draw_text(painter, title, plot.subtitle, "dim", Role.TEXT)
        y += TITLE_PX
        painter.setFont(font(Role.LABEL))
        for row in self._legends[plot]:
            x = float(EDGE_PX)
            for entry in row:
                draw_key(painter, entry, QPointF(x, y + ROW_PX / 2 + 0.5))
                painter.setPen(entry_colour(entry))
                painter.drawText(QPointF(x + LINE_PX + GAP_PX, y + ROW_PX / 2 + 4), entry.text())
                x += _width(entry)
            y += ROW_PX
        canvas = plot.canvas
        with plot.without_cursor():
            canvas.render(painter, QRectF(EDGE_PX, y, canvas.width(), canvas.height()), canvas.viewport().rect())
        return y + float(canvas.height())

    def _rows(self, entries: Sequence[Entry]) -> list[list[Entry]]:
        """The legend in as many rows as it takes."""
        rows: list[list[Entry]] = []
        left = 0.0
        for entry in entries:
            width = _width(entry)
            if not rows or left < width:
                rows.append([])
                left = self._width - 2.0 * EDGE_PX
            rows[-1].append(entry)
            left -= width
        return rows

    def _foot(self) -> str:
        if not self._plots:
            return "DevExplorer"
        early, late = (datetime.fromtimestamp(time).astimezone() for time in self._plots[0].range_unix_s)
        until = late.strftime("%H:%M:%S" if late.date() == early.date() else "%Y-%m-%d %H:%M:%S")
        return f"{early.strftime('%Y-%m-%d %H:%M:%S')} to {until} (UTC{late.strftime('%z')})  ·  DevExplorer"


def _width(entry: Entry) -> float:
    return LINE_PX + GAP_PX + text_width(entry.text()) + SPACE_PX
