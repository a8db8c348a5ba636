"""A panel is folded, enlarged, put into a window; keys with digits on keyboards that have none in their first level."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.look_records import MEASURED
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QEvent, QPoint, Qt
from PySide6.QtGui import QContextMenuEvent, QKeyEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu, QWidget

from devexplorer.core.records import DeviceInfo
from devexplorer.core.session import SettingsFile
from devexplorer.gui.shell.layouts import LAYOUTS
from devexplorer.gui.shell.panel_room import FOLDED_PX
from devexplorer.gui.shell.workbench import TITLES
from devexplorer.gui.widgets import HEADER_PX, PAINT_MS
from devexplorer.gui.widgets.keyboard import FIRST_SCAN_CODE

CARD = DeviceInfo(id="vgpu:0", kind="virtual", name="Tesla T4", memory_total_bytes=16 << 30, simulated=True)
CTRL_SHIFT = Qt.KeyboardModifier.ControlModifier | Qt.KeyboardModifier.ShiftModifier
LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, CARD)
    quiet.tell(*MEASURED)
    quiet.window.workbench.show_layout("explore")  # with the plot of throughput
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


def test_each_panel_of_each_layout_is_enlarged_and_gives_the_room_back(quiet: QuietWindow) -> None:
    """Those that gave way have no width for a moment, the cards of Monitor too."""
    bench = quiet.window.workbench
    for layout in LAYOUTS:
        bench.show_layout(layout.name)
        quiet.settle()
        for panel in (bench._panel(part) for part in bench.arrangement.panels):
            bench.room.enlarge(panel)
            quiet.settle()
            assert panel.size() == bench.size()
            bench.room.restore()
            quiet.settle()
            assert all(bench._panel(part).isVisible() for part in bench.arrangement.panels)


def test_a_layout_gets_its_first_places_and_sizes_back(quiet: QuietWindow) -> None:
    bench, before = quiet.window.workbench, sizes(quiet)
    for splitter in (bench.root, bench.splitters["workspace"]):
        first, second, *rest = splitter.sizes()
        splitter.keep([first - 40, second + 40, *rest])
    bench.room.fold(quiet.window.inspector, "Inspector")
    bench.room.detach(quiet.window.memory, "Memory")
    quiet.settle()
    assert sizes(quiet) != before
    where = heading(quiet, quiet.window.objects)
    QApplication.sendEvent(bench, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, where, bench.mapToGlobal(where)))
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    assert [action.text() for action in menu.actions()].count("Reset the layout") == 1
    menu.close()
    rail = quiet.window.rail
    place = rail.buttons["explore"].geometry().center()
    QApplication.sendEvent(rail, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, place, rail.mapToGlobal(place)))
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu), "where the layouts are"
    [line] = menu.actions()
    menu.close()
    line.trigger()
    quiet.settle()
    assert sizes(quiet) == before
    assert all(bench._panel(part).isVisible() for part in bench.arrangement.panels)
    assert not bench.remembered()["detached"]


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
    window, before, room = quiet.window, sizes(quiet), quiet.window.workbench.room
    room.toggle_fold(window.inspector, "Inspector")
    quiet.settle()
    heading = room.folded[window.inspector]
    assert not window.inspector.isVisible(), "only its heading is left"
    assert heading.width() == FOLDED_PX
    assert window.objects.width() > before["panels"][0]
    plots = window.memory.height()
    room.toggle_fold(window.objects, "Objects")
    quiet.settle()
    assert heading.height() == room.folded[window.objects].height() == HEADER_PX, "the whole row is folded"
    assert window.memory.height() > plots
    for panel in (window.objects, window.inspector):
        QTest.mouseClick(room.folded[panel].button, LEFT)
    quiet.settle()
    assert window.inspector.isVisible()
    assert sizes(quiet) == before


def test_the_title_of_a_folded_panel_is_whole(quiet: QuietWindow) -> None:
    bench = quiet.window.workbench
    for layout in LAYOUTS:
        bench.show_layout(layout.name)
        for part in bench.arrangement.panels:
            panel = bench._panel(part)
            bench.room.fold(panel, TITLES.get(part, part.capitalize()))
            quiet.settle()
            button = bench.room.folded[panel].button
            assert button.width() >= button.sizeHint().width(), button.text()
            bench.room.unfold(panel)


def test_the_pages_fold_by_key_and_unfold_by_menu(quiet: QuietWindow) -> None:
    window, dock, room = quiet.window, quiet.window.bottom_dock, quiet.window.workbench.room
    height = dock.height()
    dock.tabs.tabBar().setFocus()
    QTest.keyClick(dock.tabs.tabBar(), Qt.Key.Key_F, CTRL_SHIFT)
    quiet.settle()
    heading = room.folded[dock]
    assert heading.height() == HEADER_PX
    assert QApplication.focusWidget() is heading.button, "the same key unfolds"
    where = heading.mapTo(window.workbench, QPoint(heading.width() - 20, HEADER_PX // 2))
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


def test_a_page_that_is_asked_for_is_seen_whatever_is_folded_or_enlarged(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.parameters")
    window, dock, room = quiet.window, quiet.window.bottom_dock, quiet.window.workbench.room
    room.toggle_fold(dock, "Pages")
    page = dock.show_page("values")
    quiet.settle()
    assert page.isVisible()
    room.enlarge(window.objects)
    quiet.settle()
    assert not page.isVisible()
    dock.show_page("values")
    quiet.settle()
    assert page.isVisible()
    room.enlarge(dock)
    dock.show_page("values")
    quiet.settle()
    assert room.enlarged is dock, "the pages are what has the room"


def test_a_folded_panel_stays_folded_in_the_layouts_that_have_it(quiet: QuietWindow) -> None:
    window, room = quiet.window, quiet.window.workbench.room
    room.toggle_fold(window.throughput, "Throughput")
    for layout in ("measure", "monitor", "explore"):
        window.workbench.show_layout(layout)
        quiet.settle()
        assert not window.throughput.isVisible()
        assert room.folded[window.throughput].isVisible() == (layout != "monitor")
    room.unfold(window.throughput)
    quiet.settle()
    assert window.throughput.isVisible()


def test_a_plot_in_its_window_follows_also_when_the_layout_has_none(
    quiet: QuietWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    window = quiet.window
    drawn: list[float] = []
    monkeypatch.setattr(window.memory, "refresh", drawn.append)
    window.workbench.show_layout("monitor")
    quiet.tell()
    assert drawn == [], "nobody sees it"
    window.workbench.show_layout("explore")
    window.workbench.room.detach(window.memory, "Memory")
    window.workbench.show_layout("monitor")
    drawn.clear()
    quiet.tell()
    assert drawn == [quiet.now]


def test_a_panel_has_a_window_of_its_own_until_that_is_closed(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.learn")
    window, before = quiet.window, sizes(quiet)
    room = window.workbench.room
    room.detach(window.inspector, "Inspector")
    room.toggle_fold(window.inspector, "Inspector")
    quiet.settle()
    assert not room.folded, "what has a window is not folded"
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


def test_f6_does_nothing_where_every_panel_has_a_window_of_its_own(quiet: QuietWindow) -> None:
    bench = quiet.window.workbench
    for name in bench.arrangement.panels:
        bench.room.detach(bench._panel(name), name)
    quiet.settle()
    focus = QApplication.focusWidget()
    quiet.window.actions_by_id["next_panel"].trigger()
    quiet.window.actions_by_id["last_panel"].trigger()
    assert QApplication.focusWidget() is focus


def test_panels_are_folded_or_in_their_windows_at_the_next_start(qapp: QApplication, tmp_path: Path) -> None:
    quiet = QuietWindow(qapp, tmp_path)
    room = quiet.window.workbench.room
    room.toggle_fold(quiet.window.inspector, "Inspector")
    quiet.window.workbench.show_layout("monitor")
    room.toggle_fold(quiet.window.workbench.cards, "Devices")
    room.detach(quiet.window.workbench.stack, "Plots")
    quiet.window.workbench.show_layout("explore")
    room.detach(quiet.window.memory, "Memory")
    room.windows[quiet.window.memory].setGeometry(40, 60, 350, 310)
    quiet.settle()
    settings = quiet.window.settings()
    assert settings.folded == ("cards", "inspector")
    assert settings.detached == ("memory", "stack")
    quiet.window.close()  # with its windows
    quiet.close()
    assert SettingsFile(tmp_path).load() == settings
    again = QuietWindow(qapp, tmp_path)
    bench = again.window.workbench
    assert again.window.settings().detached == ("memory", "stack"), "before they are shown, too"
    QTest.qWait(2 * PAINT_MS)
    again.settle()
    own = bench.room.windows[again.window.memory]
    assert own.isVisible()
    assert own.geometry().getRect() == (40, 60, 350, 310)
    plots = bench.room.windows[bench.stack]
    assert plots.isVisible()
    plots.close()
    assert not bench.stack.isVisible(), "the layout shown has no place for it"
    own.close()
    bench.room.detach(again.window.memory, "Memory")
    assert bench.room.windows[again.window.memory].geometry().getRect() == (40, 60, 350, 310)
    bench.room.windows[again.window.memory].close()
    assert again.window.memory.isVisible()
    assert again.window.inspector.isHidden()
    assert again.window.settings().folded == ("cards", "inspector"), "also what is not shown yet"
    bench.show_layout("monitor")
    again.settle()
    assert bench.stack.isVisible()
    assert bench.cards.isHidden()
    QTest.mouseClick(bench.room.folded[bench.cards].button, Qt.MouseButton.LeftButton)
    again.settle()
    assert bench.cards.isVisible()
    assert again.window.settings().folded == ("inspector",)
    again.close()


def test_the_keys_of_the_window_are_heard_in_the_window_of_a_panel(
    quiet: QuietWindow, monkeypatch: pytest.MonkeyPatch
) -> None:
    moved: list[str] = []
    monkeypatch.setattr(quiet.window.controller, "move", moved.append)
    quiet.tell()  # the keys are bound
    room = quiet.window.workbench.room
    room.detach(quiet.window.inspector, "Inspector")
    quiet.settle()
    own = room.windows[quiet.window.inspector]
    own.activateWindow()
    QTest.keyClick(own, Qt.Key.Key_1, Qt.KeyboardModifier.ControlModifier)
    assert moved == ["vgpu:0"]
    QTest.keyClick(own, Qt.Key.Key_3, Qt.KeyboardModifier.AltModifier)
    quiet.settle()
    assert quiet.window.workbench.layout_shown.name == "monitor"
    own.close()
