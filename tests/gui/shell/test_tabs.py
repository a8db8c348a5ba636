"""The tabs at the bottom: one height, the user's; a page that is larger scrolls. And the splitter that keeps sizes."""

from __future__ import annotations

import pytest
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QPushButton, QVBoxLayout, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import State
from devexplorer.gui.actions import Controller, TabSpec, WindowContext
from devexplorer.gui.shell.bottom_dock import BottomDock
from devexplorer.gui.widgets.persistent_splitter import KeptSplitter, share


class ButtonPage(QWidget):
    """A page that is one button, which needs so many pixels of height."""

    def __init__(self, height: int) -> None:
        super().__init__()
        button = QPushButton("button")
        button.setMinimumSize(300, height)
        QVBoxLayout(self).addWidget(button)

    def refresh(self) -> None:
        """It never changes."""


def three_rows(qtbot: QtBot, height: int = 800) -> tuple[KeptSplitter, BottomDock]:
    state, upper = State(), QWidget()
    upper.setMinimumHeight(50)
    controller = Controller(state, lambda _: 0, selection=tuple, say=str)
    context = WindowContext(upper, state, controller, Settings(), str)
    specs = [TabSpec("low", lambda _: ButtonPage(40), "x"), TabSpec("high", lambda _: ButtonPage(400), "x")]
    tabs = BottomDock(context, specs)
    splitter = KeptSplitter(Qt.Orientation.Vertical, [400, 200, 200], [200, 100, 120], 0, upper, QWidget(), tabs)
    splitter.setHandleWidth(8)
    qtbot.addWidget(splitter)
    splitter.resize(900, height + 16)
    splitter.show()
    return splitter, tabs


def click_tab(tabs: BottomDock, at: int) -> None:
    bar = tabs.tabs.tabBar()
    QTest.mouseClick(bar, Qt.MouseButton.LeftButton, pos=bar.tabRect(at).center())


def drag(splitter: KeptSplitter, handle: int, by: int) -> None:
    grip = splitter.handle(handle)
    middle = grip.rect().center()
    QTest.mousePress(grip, Qt.MouseButton.LeftButton, pos=middle)
    QTest.mouseMove(grip, middle + QPoint(0, by))
    QTest.mouseRelease(grip, Qt.MouseButton.LeftButton, pos=middle)


def test_no_tab_changes_the_height(qtbot: QtBot) -> None:
    splitter, tabs = three_rows(qtbot)
    assert splitter.sizes() == [400, 200, 200]
    for at in (1, 0, 1):
        click_tab(tabs, at)
        qtbot.wait(1)
        assert (tabs.tabs.currentIndex(), splitter.sizes()) == (at, [400, 200, 200])


def test_a_page_that_is_higher_than_the_tab_scrolls(qtbot: QtBot) -> None:
    _splitter, tabs = three_rows(qtbot)
    click_tab(tabs, 1)
    qtbot.wait(1)
    area = tabs.areas["high"]
    assert area.verticalScrollBar().maximum() > 0
    area.verticalScrollBar().setValue(area.verticalScrollBar().maximum())
    button = area.findChild(QPushButton)
    assert area.viewport().rect().contains(button.mapTo(area.viewport(), button.rect().bottomRight())), (
        "its end can be reached"
    )
    assert tabs.areas["low"].verticalScrollBar().maximum() == 0


def test_the_height_that_the_user_drags_stays_whatever_the_window_does(qtbot: QtBot) -> None:
    splitter, tabs = three_rows(qtbot)
    drag(splitter, 2, -60)
    assert splitter.sizes() == [400, 140, 260]
    click_tab(tabs, 1)
    for height in (516, 1016, 816):
        splitter.resize(900, height)
        assert sum(splitter.sizes()) == height - 16
    assert splitter.sizes() == [400, 140, 260]
    splitter.resize(900, 716)
    assert splitter.sizes() == [300, 140, 260], "the upper row gives way"
    assert splitter.kept[1:] == [140, 260], "what is remembered is what the user wanted"


@pytest.mark.parametrize(
    ("room", "sizes"),
    [
        (1000, [600, 200, 200]),
        (600, [200, 200, 200]),
        (510, [200, 150, 160]),  # both gave of what they have above their least, in proportion to it
        (420, [200, 100, 120]),
        (300, [80, 100, 120]),  # nothing is left to give
    ],
)
def test_the_first_takes_the_rest_and_the_others_give_way_only_then(room: int, sizes: list[int]) -> None:
    assert share(room, [400, 200, 200], [200, 100, 120], 0) == sizes


@pytest.mark.parametrize(("room", "sizes"), [(2000, [1400, 600]), (700, [450, 250])])
def test_a_share_grows_with_the_room_and_is_no_less_than_its_least(room: int, sizes: list[int]) -> None:
    assert share(room, [0, 0.3], [380, 250], 0) == sizes
