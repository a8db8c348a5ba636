"""A scale of one hue that only changes in lightness, from the panel's grey to the device's colour and beyond. Main
thread.

It can be read without telling colours apart and printed in grey, and colour still means device.
"""

from __future__ import annotations

import pyqtgraph as pg
from PySide6.QtGui import QColor

from devexplorer.gui.widgets import current_theme, device_colour

STEPS = 64


def ramp(device: int) -> list[QColor]:
    """`STEPS` colours of the device with this palette index, from low to high; lightness rises (dark theme) or falls
    (light theme) all the way, at an even pace: sRGB is close to even steps of lightness."""
    theme = current_theme()
    end = QColor("#FFFFFF" if theme.is_dark else "#000000")
    high = pg.ColorMap([0.0, 1.0], [QColor(device_colour(device)), end]).map(0.2, mode="qcolor")
    shades: list[QColor] = pg.ColorMap([0.0, 1.0], [QColor(theme.bar_free), high]).getLookupTable(
        nPts=STEPS, mode="qcolor"
    )
    return shades
