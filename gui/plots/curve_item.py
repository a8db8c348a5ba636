"""Curves that are one pixel of the layout wide on screens with several device pixels to each. Main thread only.

A pen of one device pixel is a hair there, and a wider antialiased one costs twenty times as much as the thin one drawn
twice, side by side.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator
from functools import reduce
from typing import Any

import numpy as np
import pyqtgraph as pg
from PySide6.QtCore import QRectF, Qt
from PySide6.QtGui import QColor, QPainter, QPen, QPolygonF, QTransform
from PySide6.QtWidgets import QGraphicsItem, QStyleOptionGraphicsItem, QWidget

from devexplorer.gui.plots.curves import Floats


class CurveItem(pg.PlotCurveItem):  # type: ignore[misc]
    """A `PlotCurveItem` for cosmetic pens one pixel wide, of finite values and NaN."""

    def paint(self, painter: QPainter, option: Any, widget: Any) -> None:
        pen = self.opts["pen"]
        for thin in _side_by_side(painter, pg.mkPen(pen)):
            self.opts["pen"] = thin
            super().paint(painter, option, widget)
        self.opts["pen"] = pen


class LiveCurve:
    """A curve of a `LiveCurves`: what it is painted with, and whether it is."""

    def __init__(self) -> None:
        self.pen = QPen(Qt.PenStyle.NoPen)
        """One pixel wide and cosmetic."""
        self.is_shown = True
        self.pieces: list[QPolygonF] = []
        """Between two gaps."""
        self.extent = QRectF()

    def set_points(self, x: Floats, y: Floats) -> None:
        """Arrays of shape `(n,)` in the plot's own coordinates, x rising; NaN in y is a gap."""
        low = float(np.minimum.reduce(y)) if len(y) else math.nan  # NaN where there is one
        if not math.isnan(low):
            self.pieces = [pg.functions.arrayToQPolygonF(x, y)]
            self.extent = QRectF(x[0], low, x[-1] - x[0], float(np.maximum.reduce(y)) - low)
            return
        known = np.flatnonzero(~np.isnan(y))
        runs = np.split(known, np.flatnonzero(np.diff(known) > 1) + 1) if len(known) else []
        self.pieces = [pg.functions.arrayToQPolygonF(x[run], y[run]) for run in runs]
        self.extent = reduce(QRectF.united, (piece.boundingRect() for piece in self.pieces), QRectF())


class LiveCurves(QGraphicsItem):
    """All curves of a plot over time. One item: Qt asks each for its extent several times a picture, and asking in
    Python costs as much as painting."""

    def __init__(self, parent: QGraphicsItem) -> None:
        super().__init__(parent)
        self.setAcceptedMouseButtons(Qt.MouseButton.NoButton)
        self.curves: list[LiveCurve] = []
        """Those that are painted."""
        self._extent = QRectF()

    def show_curves(self, curves: Iterable[LiveCurve]) -> None:
        """Paint these from now on, the first one lowest; called again whenever one of them changed."""
        self.curves = [curve for curve in curves if curve.is_shown and curve.pieces]
        self.prepareGeometryChange()
        self._extent = reduce(QRectF.united, (curve.extent for curve in self.curves), QRectF())
        self.update()

    def boundingRect(self) -> QRectF:
        return self._extent

    def paint(self, painter: QPainter, option: QStyleOptionGraphicsItem, widget: QWidget | None = None) -> None:
        painter.setRenderHint(QPainter.RenderHint.Antialiasing)
        for curve in self.curves:
            for thin in _side_by_side(painter, curve.pen):
                painter.setPen(thin)
                for piece in curve.pieces:
                    painter.drawPolyline(piece)


def _side_by_side(painter: QPainter, pen: QPen) -> Iterator[QPen]:
    """The pens to draw a line with, one after the other; the painter is moved a little for each."""
    device = painter.device()
    ratio = round(device.devicePixelRatioF()) if device is not None else 1
    if ratio < 2:
        yield pen
        return
    placed, thin = painter.worldTransform(), _longer_dashes(pen, ratio)
    for step in range(ratio):
        aside = (step - (ratio - 1) / 2) / ratio
        painter.setWorldTransform(placed * QTransform.fromTranslate(aside, aside))
        yield thin
    painter.setWorldTransform(placed)


def straight_pen(colour: QColor | str | None, view: QWidget | None) -> QPen:
    """For a line of pyqtgraph in `view`: straight ones cost nothing, however wide."""
    return pg.mkPen(colour, width=1 if view is None else max(1, round(view.devicePixelRatioF())))  # type: ignore[no-any-return]


def _longer_dashes(pen: QPen, factor: int) -> QPen:
    pen = QPen(pen)
    if dashes := pen.dashPattern():
        pen.setDashPattern([factor * length for length in dashes])
    return pen
