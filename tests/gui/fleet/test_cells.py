"""The texts of a fleet's grid: numbers of one card and of many, none wider than its column."""

from __future__ import annotations

import math

import pytest
from PySide6.QtGui import QFontMetrics
from pytestqt.qtbot import QtBot

from devexplorer.gui.fleet.model import GIB, MEMORY, POWER, WIDTHS, figure
from devexplorer.gui.widgets import Role, font
from devexplorer.gui.widgets.table import PAD_PX


@pytest.mark.parametrize(
    ("column", "first", "rest", "text"),
    [
        (MEMORY, 1.5 * GIB, 80.0 * GIB, "1.5 / 80"),
        (MEMORY, 640.0 * GIB, 5097.0 * GIB, "640 / 5,097"),
        (MEMORY, 12_400.0 * GIB, 24_850.0 * GIB, "12.1 / 24.3 TiB"),
        (POWER, 106.0, 700.0, "106 / 700"),
        (POWER, 842.0, 5600.0, "842 / 5,600"),
        (POWER, 6725.0, 44_800.0, "6.7 / 44.8 kW"),
        (POWER, 32_758.0, 218_400.0, "33 / 218 kW"),
        (POWER, 860_160.0, 5_734_400.0, "860 / 5,734 kW"),
        (POWER, 32_758.0, math.nan, "32.8 kW"),
        (POWER, 105.0, math.nan, "105"),
    ],
)
def test_sums_over_many_cards_fit_into_their_column(
    qtbot: QtBot, column: int, first: float, rest: float, text: str
) -> None:
    assert figure(column, first, rest) == text
    assert QFontMetrics(font(Role.TEXT)).horizontalAdvance(text) < WIDTHS[column] - PAD_PX
