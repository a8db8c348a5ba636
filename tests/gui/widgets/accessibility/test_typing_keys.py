"""A letter typed into a combo box selects an item, and triggers no shortcut of the window."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtGui import QAction, QKeySequence
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.widgets import TypingKeys


def test_letters_choose_in_a_list_and_are_shortcuts_elsewhere(qapp: QApplication, qtbot: QtBot):
    window = QWidget()
    qtbot.addWidget(window)
    keys = TypingKeys(qapp, window)
    layout = QVBoxLayout(window)
    combo, button = QComboBox(), QPushButton("elsewhere")
    combo.addItems(["bfloat16", "float32"])
    for widget in (combo, button):
        layout.addWidget(widget)
    started: list[str] = []
    for key in ("F", "Ctrl+B"):
        action = QAction(key, window)
        action.setShortcut(QKeySequence(key))
        action.triggered.connect(lambda _checked=False, key=key: started.append(key))
        window.addAction(action)
    window.show()
    qtbot.waitActive(window)
    combo.setFocus()
    qtbot.waitUntil(combo.hasFocus)
    QTest.keyClick(window.windowHandle(), Qt.Key.Key_F)
    assert (combo.currentText(), started) == ("float32", [])
    QTest.keyClick(window.windowHandle(), Qt.Key.Key_B, Qt.KeyboardModifier.ControlModifier)
    assert started == ["Ctrl+B"]
    button.setFocus()
    qtbot.waitUntil(button.hasFocus)
    QTest.keyClick(window.windowHandle(), Qt.Key.Key_F)
    assert started == ["Ctrl+B", "F"]
    qapp.focusChanged.disconnect(keys._focus_changed)
