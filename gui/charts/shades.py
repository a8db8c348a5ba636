"""A scale of one hue that only changes in lightness, from the panel's grey to the device's colour and beyond. Main
thread.

It can be read without telling colours apart and printed in grey, and colour still means device.
"""

from __future__ import annotations

from PySide6.QtGui import QColor

from devexplorer.gui.widgets.theme import Theme

STEPS = 64


def ramp(theme: Theme, colour: str) -> list[QColor]:
    """`STEPS` colours from low to high; lightness rises (dark theme) or falls (light theme) all the way.

    Mixed in linear light, at a pace that makes even steps of lightness (L* of CIE 1976 is about the cube root of
    light).
    """
    low = QColor(theme.bar_free)
    end = QColor("#FFFFFF") if theme.is_dark else QColor("#000000")
    high = _mixed(QColor(colour), end, 0.2)
    light = [_luminance(low) ** (1 / 3), _luminance(high) ** (1 / 3)]
    result = []
    for step in range(STEPS):
        wanted = (light[0] + (light[1] - light[0]) * step / (STEPS - 1)) ** 3
        share = (wanted - light[0] ** 3) / (light[1] ** 3 - light[0] ** 3)
        result.append(_mixed(low, high, share))
    return result


def _linear(value: float) -> float:
    return value / 12.92 if value <= 0.04045 else ((value + 0.055) / 1.055) ** 2.4


def _light(colour: QColor) -> tuple[float, float, float]:
    return _linear(colour.redF()), _linear(colour.greenF()), _linear(colour.blueF())


def _encoded(value: float) -> float:
    return 12.92 * value if value <= 0.0031308 else 1.055 * value ** (1 / 2.4) - 0.055


def _mixed(one: QColor, other: QColor, share: float) -> QColor:
    parts = (a + (b - a) * share for a, b in zip(_light(one), _light(other), strict=True))
    return QColor.fromRgbF(*(min(max(_encoded(part), 0.0), 1.0) for part in parts))


def _luminance(colour: QColor) -> float:
    red, green, blue = _light(colour)
    return 0.2126 * red + 0.7152 * green + 0.0722 * blue


def contrast(one: QColor, other: QColor) -> float:
    """Contrast of WCAG 2.2, from 1 to 21."""
    dark, light = sorted((_luminance(one), _luminance(other)))
    return (light + 0.05) / (dark + 0.05)
