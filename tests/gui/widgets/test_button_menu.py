"""The menu of a button that is disabled while it is open."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.host import hosted
from PySide6.QtCore import Qt, QTimer
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QPushButton, QToolButton
from pytestqt.qtbot import QtBot

from devexplorer.gui.widgets import ButtonMenu

Button = QPushButton | QToolButton


@pytest.mark.parametrize("kind", [QPushButton, QToolButton])
def test_a_menu_that_is_open_closes_when_its_button_is_disabled(qtbot: QtBot, kind: type[Button]) -> None:
    button = hosted(qtbot, kind)
    menu = ButtonMenu(button)
    menu.addAction("One")
    button.setMenu(menu)
    closed_by(qtbot, button, lambda: button.setEnabled(False))
    button.setEnabled(True)
    closed_by(qtbot, button, lambda: QTest.keyClick(menu, Qt.Key.Key_Escape))


def closed_by(qtbot: QtBot, button: Button, close: Callable[[], None]) -> None:
    """Open the menu of a button, do something, and see the menu gone."""
    opened: list[bool] = []

    def act() -> None:
        opened.append(QApplication.activePopupWidget() is button.menu())
        close()

    QTimer.singleShot(0, button, act)
    button.showMenu()  # a tool button's returns when the menu is closed, a push button's at once
    qtbot.waitUntil(lambda: bool(opened))
    assert opened == [True]
    assert QApplication.activePopupWidget() is None
