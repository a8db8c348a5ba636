"""Plots and charts as a picture: PNG at twice the size, or SVG with text that stays text. Titles, legends in full, the
time in words, and the word "simulated" wherever it belongs. Main thread only."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from PySide6.QtCore import QBuffer, QByteArray, QIODevice, QPoint, QPointF, QRect, QRectF, QSize
from PySide6.QtGui import QImage, QImageWriter, QPainter, QRegion
from PySide6.QtSvg import QSvgGenerator
from PySide6.QtWidgets import QApplication, QWidget

from devexplorer.gui.plots.canvas import PlotCanvas
from devexplorer.gui.plots.legend import GAP_PX, LINE_PX, LegendLine, draw_key, entry_colour
from devexplorer.gui.plots.timeline_plot import TimelinePlot
from devexplorer.gui.widgets import Role, current_theme, draw_text, font, text_width

EDGE_PX, TITLE_PX, ROW_PX, BETWEEN_PX, FOOT_PX = 16, 24, 18, 12, 24
SPACE_PX = 16
"""Between two entries of a legend."""
PNG_SCALE = 2.0


class PlotFigure:
    """Plots over time, or charts, one below the other, as in the window."""

    def __init__(self, plots: Sequence[QWidget]) -> None:
        self._plots = [plot for plot in plots if not isinstance(plot, TimelinePlot) or not plot.is_empty]
        widest = max((_drawn(plot).width() for plot in self._plots), default=320)
        self._width = max(widest, text_width(self._foot()) + 1) + 2 * EDGE_PX
        self._legends = {
            plot: self._rows(plot.legend_entries) if isinstance(plot, TimelinePlot) else [] for plot in self._plots
        }
        heights = [TITLE_PX + ROW_PX * len(self._legends[plot]) + _drawn(plot).height() for plot in self._plots]
        self._height = EDGE_PX + sum(heights) + BETWEEN_PX * max(len(heights) - 1, 0) + FOOT_PX

    def image(self) -> QImage:
        """The picture, two pixels for each of the screen's."""
        image = QImage(
            QSize(round(self._width * PNG_SCALE), round(self._height * PNG_SCALE)), QImage.Format.Format_RGB32
        )
        image.setDevicePixelRatio(PNG_SCALE)
        painter = QPainter(image)
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        self._paint(painter)
        painter.end()
        return image

    def png(self) -> bytes:
        """The image as the bytes of a file."""
        buffer = QBuffer()
        buffer.open(QIODevice.OpenModeFlag.WriteOnly)
        QImageWriter(buffer, QByteArray(b"png")).write(self.image())
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
        generator.setTitle("; ".join(plot.accessibleName() for plot in self._plots))
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

    def _paint_plot(self, painter: QPainter, plot: QWidget, y: float) -> float:
        """Paint from `y` on; returns where it ends."""
        title, name = QRectF(EDGE_PX, y, self._width - 2 * EDGE_PX, TITLE_PX - 4), plot.accessibleName()
        draw_text(painter, title, name, "text", Role.STRONG)
        y += TITLE_PX
        if not isinstance(plot, TimelinePlot):
            _paint_chart(painter, plot, QPoint(EDGE_PX, round(y)))
            return y + plot.height()
        title.setLeft(title.left() + text_width(name, Role.STRONG) + 8)
        draw_text(painter, title, plot.subtitle, "dim", Role.TEXT)
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

    def _rows(self, entries: Sequence[LegendLine]) -> list[list[LegendLine]]:
        """The legend in as many rows as it takes."""
        rows: list[list[LegendLine]] = []
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
        plot = next(iter(self._plots), None)
        if not isinstance(plot, TimelinePlot):
            return f"{datetime.now().astimezone().strftime('%Y-%m-%d %H:%M:%S (UTC%z)')}  ·  DevExplorer"
        early, late = (datetime.fromtimestamp(time).astimezone() for time in plot.range_unix_s)
        until = late.strftime("%H:%M:%S" if late.date() == early.date() else "%Y-%m-%d %H:%M:%S")
        return f"{early.strftime('%Y-%m-%d %H:%M:%S')} to {until} (UTC{late.strftime('%z')})  ·  DevExplorer"


def _drawn(plot: QWidget) -> QWidget:
    """What is painted of it: of a plot over time its curves, because its header has buttons."""
    return plot.canvas if isinstance(plot, TimelinePlot) else plot


def _paint_chart(painter: QPainter, chart: QWidget, at: QPoint) -> None:
    """Texts as texts, and without the frame of what has the keyboard."""
    focus = QApplication.focusWidget()
    if focus is not None and focus is not chart and not chart.isAncestorOf(focus):
        focus = None
    if focus is not None:
        focus.clearFocus()
    canvases = [*chart.findChildren(PlotCanvas), *([chart] if isinstance(chart, PlotCanvas) else [])]
    for canvas in canvases:
        canvas.keep_pictures(False)
    QWidget.render(chart, painter, at, QRegion(), QWidget.RenderFlag.DrawChildren)
    for canvas in canvases:
        canvas.keep_pictures(True)
    if focus is not None:
        focus.setFocus()


def _width(entry: LegendLine) -> float:
    return LINE_PX + GAP_PX + text_width(entry.text()) + SPACE_PX
