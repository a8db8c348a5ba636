"""A callout points at its control where it lies beside it."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect
from PySide6.QtWidgets import QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.widgets.callout import ARROW_PX, WIDTH_PX, Callout


def test_it_lies_beside_what_it_must_not_cover_and_no_farther(qtbot: QtBot) -> None:
    """With cards below its button it was 296 pixels away in the window of 1000x650."""
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(1000, 650)
    window.show()
    callout = Callout(window)
    callout.say("1 of 2", "Click “Build” and choose vgg16-bn.", "")
    target, cards = QRect(134, 3, 95, 36), [QRect(79, top, 250, 90) for top in (92, 190, 288)]
    callout.place(target, window.rect(), (), [(card, 3.0) for card in cards])
    assert not any(callout.geometry().intersects(card) for card in (target, *cards))
    assert callout.x() - target.right() < 150
    assert callout.y() - target.bottom() < 150


@pytest.mark.parametrize("free_px", [0, 200])
def test_the_arrow_is_there_where_nothing_lies_between(qtbot: QtBot, free_px: int) -> None:
    window = QWidget()
    qtbot.addWidget(window)
    window.resize(WIDTH_PX + 40, 700)
    window.show()
    callout = Callout(window)
    callout.say("1 of 2", "Click it.", "")
    target = QRect(20, 10, 200, 30)
    between = [QRect(0, 41, WIDTH_PX + 40, free_px)] if free_px else []
    callout.place(target, window.rect(), (target, *between))
    far = callout.y() - target.bottom()
    assert (far > 100) == bool(free_px)
    picture = callout.grab().toImage()
    x = target.center().x() - callout.x()
    ratio = picture.devicePixelRatio()
    colours = {picture.pixelColor(int(x * ratio), int(y * ratio)).name() for y in range(1, ARROW_PX - 1)}
    beside = {picture.pixelColor(int((x + 40) * ratio), int(y * ratio)).name() for y in range(1, ARROW_PX - 1)}
    assert (colours != beside) == (not free_px), "an arrow is painted above the box"
