"""A curve on a screen with several device pixels to one of the layout: as wide, and its dashes as long as elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from PySide6.QtGui import QColor, QImage, QPainter, QPen
from PySide6.QtWidgets import QGraphicsItem, QGraphicsRectItem, QStyleOptionGraphicsItem
from pytestqt.qtbot import QtBot

from devexplorer import gui
from devexplorer.gui.plots.curves import CurveItem, LiveCurve, LiveCurves

Covered = np.ndarray[tuple[int, int], np.dtype[np.uint8]]


def painted(item: QGraphicsItem, ratio: int) -> Covered:
    """How much each device pixel of 200 x 20 is covered."""
    image = QImage(200 * ratio, 20 * ratio, QImage.Format.Format_ARGB32)
    image.setDevicePixelRatio(ratio)
    image.fill(QColor("transparent"))
    with QPainter(image) as painter:
        item.paint(painter, QStyleOptionGraphicsItem(), None)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)[:, :, 3].copy()


def dashed() -> QPen:
    pen = QPen(QColor("red"))
    pen.setCosmetic(True)
    pen.setDashPattern([10, 10])
    return pen


def assert_thin_and_dashed(covered: Covered, ratio: int) -> None:
    assert 0.9 * ratio <= covered.max(axis=1).sum() / 255 <= 1.1 * ratio
    edges = np.count_nonzero(np.diff((covered.max(axis=0) > 100).astype(int)))
    assert edges == pytest.approx(19, abs=2)  # ten dashes and the gaps between them


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_a_curve_is_one_pixel_of_the_layout_wide_and_keeps_its_dashes(qtbot: QtBot, ratio: int) -> None:
    item = CurveItem([0.0, 200.0], [10.5, 10.5], pen=dashed(), antialias=True)
    assert_thin_and_dashed(painted(item, ratio), ratio)
    assert item.opts["pen"].dashPattern() == [10, 10]


def test_no_chart_draws_hairlines_on_such_a_screen() -> None:
    sources = {path.name: path.read_text() for folder in gui.__path__ for path in Path(folder).rglob("*.py")}
    assert "curves.py" in sources
    assert not [name for name, text in sources.items() if re.search(r"Plot(Curve|Data)Item\(|canvas\.plot\(", text)]


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_live_curves_are_as_wide_and_their_dashes_as_long(qtbot: QtBot, ratio: int) -> None:
    parent = QGraphicsRectItem()
    item, curve = LiveCurves(parent), LiveCurve()
    curve.pen = dashed()
    curve.set_points(np.array([0.0, 200.0]), np.array([10.5, 10.5]))
    item.show_curves([curve])
    assert_thin_and_dashed(painted(item, ratio), ratio)


@pytest.mark.parametrize(
    ("values", "pieces", "extent"),
    [
        ([1.0, np.nan, 5.0, 2.0], [[(0.0, 1.0)], [(2.0, 5.0), (3.0, 2.0)]], (0.0, 1.0, 3.0, 5.0)),
        ([4.0], [[(0.0, 4.0)]], (0.0, 4.0, 0.0, 4.0)),
        ([4.0, 3.0], [[(0.0, 4.0), (1.0, 3.0)]], (0.0, 3.0, 1.0, 4.0)),
        ([np.nan, np.nan], [], (0.0, 0.0, 0.0, 0.0)),
        ([], [], (0.0, 0.0, 0.0, 0.0)),
    ],
)
def test_a_live_curve_is_as_many_lines_as_it_has_gaps_and_one(
    values: list[float], pieces: list[list[tuple[float, float]]], extent: tuple[float, ...]
) -> None:
    curve = LiveCurve()
    curve.set_points(np.arange(float(len(values))), np.array(values))
    assert [[(at.x(), at.y()) for at in piece.toList()] for piece in curve.pieces] == pieces
    assert curve.extent.getCoords() == pytest.approx(extent, abs=1e-5)


@pytest.mark.parametrize("times", [[50.0], [50.0, 50.5]])
def test_what_is_too_short_for_a_line_is_a_dot(qtbot: QtBot, times: list[float]) -> None:
    parent = QGraphicsRectItem()
    item, curve = LiveCurves(parent), LiveCurve()
    curve.pen = dashed()
    curve.set_points(np.array(times), np.full(len(times), 10.5))
    item.show_curves([curve])
    assert (painted(item, 1) > 100).sum() >= 9


def test_only_curves_that_are_shown_are_painted(qtbot: QtBot) -> None:
    parent = QGraphicsRectItem()
    item, curves = LiveCurves(parent), [LiveCurve() for _ in range(3)]
    for height, curve in enumerate(curves):
        curve.pen = dashed()
        curve.set_points(np.array([0.0, 200.0]), np.array([5.5 * height, 5.5 * height]))
    curves[1].is_shown = False
    item.show_curves(curves)
    assert item.boundingRect().getCoords() == (0.0, 0.0, 200.0, 11.0)
    rows = np.flatnonzero(painted(item, 1).max(axis=1) > 100)
    assert set(rows) & {5, 6} == set()
    assert set(rows) & {10, 11}
