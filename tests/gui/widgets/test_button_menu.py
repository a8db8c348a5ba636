"""The menu of a button: one that is disabled while it is open, and a mouse that leaves while it is."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from fakes.host import hosted
from PySide6.QtCore import QPoint, Qt, QTimer
from PySide6.QtGui import QCursor
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


def test_a_button_does_not_look_pointed_at_when_its_menu_closed_and_the_mouse_is_elsewhere(qtbot: QtBot) -> None:
    button = hosted(qtbot, QPushButton)
    menu = ButtonMenu(button)
    menu.addAction("One")
    button.setMenu(menu)
    button.move(100, 100)
    QCursor.setPos(button.mapToGlobal(QPoint(-20, -20)))
    button.setAttribute(Qt.WidgetAttribute.WA_UnderMouse)  # as it was when the menu was opened
    closed_by(qtbot, button, lambda: QTest.keyClick(menu, Qt.Key.Key_Escape))
    qtbot.waitUntil(lambda: not button.underMouse())


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
