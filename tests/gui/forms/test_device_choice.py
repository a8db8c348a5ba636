from __future__ import annotations

import pytest
from fakes.look_records import CPU, VGPU, state_with
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QHBoxLayout, QLineEdit, QPushButton, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.forms.device_choice import DeviceChoice


@pytest.mark.parametrize("kind", [QPushButton, QComboBox, QLineEdit])
def test_a_click_beside_the_open_list_goes_to_what_is_there(qtbot: QtBot, kind: type[QWidget]) -> None:
    page, choice, other = QWidget(), DeviceChoice(state_with(CPU, VGPU)), kind()
    qtbot.addWidget(page)
    row = QHBoxLayout(page)
    row.addWidget(choice, 0, Qt.AlignmentFlag.AlignTop)
    row.addStretch(1)
    row.addWidget(other, 0, Qt.AlignmentFlag.AlignTop)
    page.resize(600, 300)
    page.show()
    reached = []
    if isinstance(other, QComboBox):
        other.addItem("an empty list does not open")
    elif isinstance(other, QPushButton):
        other.clicked.connect(lambda: reached.append("clicked"))
    menu = choice.menu()
    menu.popup(choice.mapToGlobal(QPoint(0, choice.height())))
    where = menu.mapFromGlobal(other.mapToGlobal(other.rect().center()))
    assert not menu.rect().contains(where)
    QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=where)
    QApplication.processEvents()
    assert not menu.isVisible()
    if isinstance(other, QComboBox):
        assert other.view().isVisible()
        other.hidePopup()
    elif isinstance(other, QLineEdit):
        assert page.focusWidget() is other
    else:
        assert reached == ["clicked"]
