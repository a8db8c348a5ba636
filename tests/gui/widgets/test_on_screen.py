"""The window with its title bar fits the available area of the screen, wherever it was last time."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QRect, QSize
from PySide6.QtWidgets import QMainWindow
from pytestqt.qtbot import QtBot

from devexplorer.gui.widgets.on_screen import TITLE_BAR_PX, first_size, fit, fitted

LAPTOP = QRect(0, 27, 1366, 741)
"""1366x768 below a panel."""
SCALED = QRect(0, 0, 1280, 680)
"""2560x1440 at factor 2, above a panel."""
RIGHT = QRect(1366, 0, 1920, 1080)


@pytest.mark.parametrize(
    ("frame", "expected"),
    [
        (QRect(0, 0, 1440, 925), QRect(0, 27, 1366, 741)),  # the first window
        (QRect(100, 100, 1000, 650), QRect(100, 100, 1000, 650)),  # one that fits stays
        (QRect(100, 300, 1000, 650), QRect(100, 118, 1000, 650)),  # its lower edge was off
        (QRect(4000, 2000, 900, 600), QRect(466, 168, 900, 600)),  # of a screen that is not there any more
        (QRect(-50, -10, 900, 600), QRect(0, 27, 900, 600)),  # its title bar was off
    ],
)
def test_what_does_not_fit_is_moved_then_made_smaller(frame: QRect, expected: QRect) -> None:
    assert fitted(frame, [LAPTOP]) == expected


def test_a_window_across_two_screens_stays() -> None:
    assert fitted(QRect(1200, 100, 900, 600), [LAPTOP, RIGHT]) == QRect(1200, 100, 900, 600)
    assert fitted(QRect(1200, 100, 900, 900), [LAPTOP, RIGHT], home=1) == QRect(1366, 100, 900, 900)


@pytest.mark.parametrize("screen", [LAPTOP, QRect(0, 0, 1440, 900), SCALED])
def test_the_first_window_leaves_room_for_its_title_bar(screen: QRect) -> None:
    assert first_size(QSize(1440, 900), screen.size()).height() + TITLE_BAR_PX <= screen.height()
    assert first_size(QSize(1440, 900), QSize(2560, 1440)) == QSize(1440, 900)


def test_a_real_window_is_put_there(qtbot: QtBot) -> None:
    window = QMainWindow()
    qtbot.addWidget(window)
    window.setGeometry(300, 200, 1440, 900)
    window.show()
    fit(window, [LAPTOP])
    assert LAPTOP.contains(window.frameGeometry())
    window.showMaximized()
    before = window.geometry()
    fit(window, [QRect(0, 0, 400, 300)])
    assert window.geometry() == before, "a maximized window is the window manager's business"
