"""A curve on a screen with several device pixels to one of the layout: as wide, and its dashes as long as elsewhere."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pyqtgraph as pg
import pytest
from PySide6.QtGui import QColor, QImage, QPainter, QPen
from pytestqt.qtbot import QtBot

from devexplorer import gui
from devexplorer.gui.plots.curve_item import CurveItem


def painted(item: pg.PlotCurveItem, ratio: int) -> np.ndarray[tuple[int, int], np.dtype[np.uint8]]:
    """How much each device pixel of 200 x 20 is covered."""
    image = QImage(200 * ratio, 20 * ratio, QImage.Format.Format_ARGB32)
    image.setDevicePixelRatio(ratio)
    image.fill(QColor("transparent"))
    with QPainter(image) as painter:
        item.paint(painter, None, None)
    return np.frombuffer(image.constBits(), np.uint8).reshape(image.height(), -1, 4)[:, :, 3].copy()


@pytest.mark.parametrize("ratio", [1, 2, 3])
def test_a_curve_is_one_pixel_of_the_layout_wide_and_keeps_its_dashes(qtbot: QtBot, ratio: int) -> None:
    pen = QPen(QColor("red"))
    pen.setCosmetic(True)
    pen.setDashPattern([10, 10])
    item = CurveItem([0.0, 200.0], [10.5, 10.5], pen=pen, antialias=True)
    covered = painted(item, ratio)
    assert 0.9 * ratio <= covered.max(axis=1).sum() / 255 <= 1.1 * ratio
    edges = np.count_nonzero(np.diff((covered.max(axis=0) > 100).astype(int)))
    assert edges == pytest.approx(19, abs=2)  # ten dashes and the gaps between them
    assert item.opts["pen"].dashPattern() == [10, 10]


def test_no_chart_draws_hairlines_on_such_a_screen() -> None:
    sources = {path.name: path.read_text() for folder in gui.__path__ for path in Path(folder).rglob("*.py")}
    assert "curve_item.py" in sources
    assert not [name for name, text in sources.items() if re.search(r"Plot(Curve|Data)Item\(|canvas\.plot\(", text)]


@pytest.mark.parametrize("values", [[1.0, np.nan, 5.0, 2.0], [np.nan, 3.0], [7.0], []])
def test_it_reaches_as_far_as_its_values_do(qtbot: QtBot, values: list[float]) -> None:
    times = np.arange(float(len(values)))
    item, original = (
        kind(times, np.array(values), pen=pg.mkPen("red", width=1)) for kind in (CurveItem, pg.PlotCurveItem)
    )
    for axis in (0, 1):
        assert item.dataBounds(axis) == original.dataBounds(axis)
        assert item.dataBounds(axis, orthoRange=(0.5, 6.0)) == original.dataBounds(axis, orthoRange=(0.5, 6.0))
