"""The tabs at the bottom: each has its height, and none makes room that only another one needs."""

from __future__ import annotations

from PySide6.QtCore import Qt
from PySide6.QtWidgets import QSplitter, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.gui.tabs import BottomTabs


def three_rows(qtbot: QtBot, heights: dict[str, int], sizes: list[int]) -> tuple[QSplitter, BottomTabs]:
    splitter = QSplitter(Qt.Orientation.Vertical)
    splitter.setHandleWidth(0)
    tabs = BottomTabs("tabs", heights)
    for widget in (QWidget(), QWidget(), tabs):
        splitter.addWidget(widget)
    for title, height in (("Low", 150), ("High", 400)):
        page = QWidget()
        inner = QWidget()
        inner.setMinimumHeight(height - 60)
        QVBoxLayout(page).addWidget(inner)
        tabs.add(page, title, height)
    tabs.follow(splitter)
    splitter.resize(900, sum(sizes))
    qtbot.addWidget(splitter)
    splitter.show()
    splitter.setSizes(sizes)
    return splitter, tabs


def test_a_tab_that_nobody_sees_needs_no_room(qtbot: QtBot) -> None:
    splitter, tabs = three_rows(qtbot, {}, [400, 200, 200])
    tabs.take_height()
    assert splitter.sizes() == [450, 200, 150]
    tabs.tabs.setCurrentIndex(1)
    qtbot.waitUntil(lambda: splitter.sizes()[2] == 400)
    tabs.tabs.setCurrentIndex(0)
    qtbot.waitUntil(lambda: splitter.sizes() == [450, 200, 150])


def test_the_first_tab_has_its_remembered_height_whichever_was_in_front_last(qtbot: QtBot) -> None:
    splitter, tabs = three_rows(qtbot, {"Low": 180, "High": 410}, [300, 190, 410])
    tabs.take_height()
    assert splitter.sizes() == [530, 190, 180]
