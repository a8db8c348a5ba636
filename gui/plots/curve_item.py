"""A curve that is one pixel of the layout wide on screens with several device pixels to each. Main thread only.

A pen of one device pixel is a hair there, and a wider antialiased one costs twenty times as much as the thin one drawn
twice, side by side.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt
import pyqtgraph as pg
from PySide6.QtCore import QRectF
from PySide6.QtGui import QColor, QPainter, QPen, QTransform
from PySide6.QtWidgets import QWidget


class CurveItem(pg.PlotCurveItem):  # type: ignore[misc]
    """A `PlotCurveItem` for cosmetic pens one pixel wide, of finite values and NaN."""

    _boundingRect: QRectF | None  # noqa: N815  pyqtgraph's, which forgets it when the view or the values change

    def show_points(self, x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> None:
        """`setData` for one of a dozen live curves in a plot with a range of its own, without the questions of
        pyqtgraph about everything that can change with the data."""
        self.prepareGeometryChange()
        self.xData, self.yData, self.path = x, y, None
        self.invalidateBounds()
        self.update()

    def boundingRect(self) -> QRectF:
        """All values, and a pixel around them. Qt asks several times for each painting."""
        known = self._boundingRect
        if known is None:
            (left, right), (low, high) = self.dataBounds(0), self.dataBounds(1)
            if left is None or right is None or low is None or high is None:
                return QRectF()
            view = self.getViewBox()
            if not isinstance(view, pg.ViewBox):  # it is in no plot yet
                return QRectF(super().boundingRect())
            (first, last), (bottom, top) = view.viewRange()
            x_px = abs(last - first) / max(float(view.width()), 1.0)
            y_px = abs(top - bottom) / max(float(view.height()), 1.0)
            known = QRectF(left - x_px, low - y_px, right - left + 2 * x_px, high - low + 2 * y_px)
            self._boundingRect = known
        return known

    def dataBounds(
        self,
        ax: int,
        frac: float = 1.0,
        orthoRange: tuple[float, float] | None = None,  # noqa: N803
    ) -> tuple[float, float] | tuple[None, None]:
        """Lowest and highest value; of all values, in a tenth of the time that pyqtgraph takes for each reading."""
        if frac < 1.0 or orthoRange is not None:
            bounds: tuple[float, float] | tuple[None, None] = super().dataBounds(ax, frac, orthoRange)
            return bounds
        values = self.getData()[ax]
        if values is None or not len(values):
            return None, None
        return float(np.fmin.reduce(values)), float(np.fmax.reduce(values))

    def paint(self, painter: QPainter, option: Any, widget: Any) -> None:
        device = painter.device()
        ratio = round(device.devicePixelRatioF()) if device is not None else 1
        pen = self.opts["pen"]
        if ratio < 2:
            if self._exportOpts is False and self.opts["fillLevel"] is None:  # what a live plot has, time after time
                painter.setRenderHint(QPainter.RenderHint.Antialiasing, self.opts["antialias"])
                painter.setPen(pen)
                painter.drawPath(self.getPath())
            else:
                super().paint(painter, option, widget)
            return
        placed = painter.worldTransform()
        self.opts["pen"] = _longer_dashes(pg.mkPen(pen), ratio)
        for step in range(ratio):
            aside = (step - (ratio - 1) / 2) / ratio
            painter.setWorldTransform(placed * QTransform.fromTranslate(aside, aside))
            super().paint(painter, option, widget)
        painter.setWorldTransform(placed)
        self.opts["pen"] = pen


def straight_pen(colour: QColor | str | None, view: QWidget | None) -> QPen:
    """For a line of pyqtgraph in `view`: straight ones cost nothing, however wide."""
    return pg.mkPen(colour, width=1 if view is None else max(1, round(view.devicePixelRatioF())))  # type: ignore[no-any-return]


def _longer_dashes(pen: QPen, factor: int) -> QPen:
    pen = QPen(pen)
    if dashes := pen.dashPattern():
        pen.setDashPattern([factor * length for length in dashes])
    return pen
