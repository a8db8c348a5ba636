"""A panel is folded, enlarged, put into a window; keys with digits on keyboards that have none in their first level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from devexplorer.core.records import DeviceInfo
from devexplorer.gui.shell.panel_room import FOLDED_PX
from devexplorer.gui.widgets import HEADER_PX
from devexplorer.gui.widgets.digit_keys import FIRST_SCAN_CODE

CARD = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", memory_total_bytes=16 << 30, simulated=True)
CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, CARD)
    quiet.window.activateWindow()
    yield quiet
    quiet.close()


def heading(quiet: QuietWindow, panel: QWidget) -> QPoint:
    return panel.mapTo(quiet.window.workbench, QPoint(panel.width() // 2, HEADER_PX // 2))


def double_click(quiet: QuietWindow, panel: QWidget) -> None:
    child = quiet.window.workbench.childAt(heading(quiet, panel))
    QTest.mouseDClick(child, LEFT, pos=child.mapFrom(quiet.window.workbench, heading(quiet, panel)))
    quiet.settle()


def sizes(quiet: QuietWindow) -> dict[str, list[int]]:
    return {name: splitter.sizes() for name, splitter in quiet.window.workbench.splitters.items()}


def test_a_double_click_on_the_heading_enlarges_and_escape_brings_the_rest_back(quiet: QuietWindow) -> None:
    window, before = quiet.window, sizes(quiet)
    double_click(quiet, window.inspector)
    assert window.inspector.size() == window.workbench.size()
    assert not window.objects.isVisible()
    assert not window.memory.isVisible()
    QTest.keyClick(window, Qt.Key.Key_Escape)
    quiet.settle()
    assert window.objects.isVisible()
    assert sizes(quiet) == before


def test_below_the_heading_a_double_click_is_the_panels_own(quiet: QuietWindow) -> None:
    window = quiet.window
    QTest.mouseDClick(window.inspector, LEFT, pos=QPoint(50, 150))
    quiet.settle()
    assert window.objects.isVisible()


def test_a_layout_that_comes_on_show_is_whole(quiet: QuietWindow) -> None:
    window = quiet.window
    double_click(quiet, window.objects)
    window.workbench.show_layout("measure")
    quiet.settle()
    assert window.memory.isVisible()
    window.workbench.show_layout("explore")
    quiet.settle()
    assert window.inspector.isVisible()


def test_a_folded_panel_gives_its_room_to_its_neighbours_and_has_it_again(quiet: QuietWindow) -> None:
    window, before = quiet.window, sizes(quiet)
    window.objects.tree.setFocus()
    window.workbench.room.toggle_fold(window.inspector)
    quiet.settle()
    assert window.inspector.width() == FOLDED_PX
    assert window.objects.width() > before["panels"][0]
    plots = window.memory.height()
    window.workbench.room.toggle_fold(window.objects)
    quiet.settle()
    assert window.objects.height() <= HEADER_PX, "the whole row is folded"
    assert window.memory.height() > plots
    for panel in (window.objects, window.inspector):
        window.workbench.room.toggle_fold(panel)
    quiet.settle()
    assert sizes(quiet) == before


def test_the_pages_fold_to_their_tabs_by_key_and_by_menu(quiet: QuietWindow) -> None:
    window, dock = quiet.window, quiet.window.bottom_dock
    height = dock.height()
    dock.tabs.tabBar().setFocus()
    QTest.keyClick(dock.tabs.tabBar(), Qt.Key.Key_F, CTRL_SHIFT)
    quiet.settle()
    assert dock.height() == HEADER_PX
    where = heading(quiet, dock)
    QTest.mouseClick(window.workbench, Qt.MouseButton.RightButton, pos=where)
    QApplication.sendEvent(
        window.workbench,
        QContextMenuEvent(QContextMenuEvent.Reason.Mouse, where, window.workbench.mapToGlobal(where)),
    )
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    [line] = [action for action in menu.actions() if action.text() == "Unfold"]
    menu.close()
    line.trigger()
    quiet.settle()
    assert dock.height() == height


def test_a_panel_has_a_window_of_its_own_until_that_is_closed(quiet: QuietWindow) -> None:
    window, before = quiet.window, sizes(quiet)
    room = window.workbench.room
    window.inspector.setFocus()
    room.detach(window.inspector, "Inspector")
    quiet.settle()
    own = room.windows[window.inspector]
    assert own.isVisible()
    assert own.windowTitle() == "DevExplorer: Inspector"
    assert window.inspector.window() is own
    assert window.inspector.isVisible()
    for layout in ("measure", "learn", "explore"):
        window.workbench.show_layout(layout)
        quiet.settle()
        assert window.inspector.window() is own, "it stays there whatever the window shows"
    own.close()
    quiet.settle()
    assert room.windows == {}
    assert window.inspector.window() is window
    assert window.inspector.isVisible()
    assert {name: size for name, size in sizes(quiet).items() if name in before} == before


@pytest.mark.parametrize(
    ("key", "modifier", "digit", "does"),
    [
        (Qt.Key.Key_Ampersand, Qt.KeyboardModifier.ControlModifier, 1, "move"),
        (Qt.Key.Key_Eacute, Qt.KeyboardModifier.AltModifier, 2, "layout"),
        (Qt.Key.Key_Ampersand, Qt.KeyboardModifier.NoModifier, 1, ""),
    ],
)
def test_digits_are_heard_on_a_keyboard_that_has_them_only_with_shift(
    quiet: QuietWindow, monkeypatch: pytest.MonkeyPatch, key: Qt.Key, modifier: Qt.KeyboardModifier, digit: int,
    does: str,
) -> None:  # fmt: skip
    moved: list[str] = []
    monkeypatch.setattr(quiet.window.controller, "move", moved.append)
    quiet.window.objects.take_focus()
    event = QKeyEvent(QEvent.Type.KeyPress, key, modifier, FIRST_SCAN_CODE + digit - 1, 0, 0)
    QApplication.sendEvent(QApplication.focusWidget(), event)
    assert moved == (["vgpu:0"] if does == "move" else [])
    assert quiet.window.workbench.layout_shown.name == ("measure" if does == "layout" else "explore")
