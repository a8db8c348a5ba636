"""No message moves anything: what somebody is about to click stays where it is, on every page of every layout."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from unittest.mock import Mock

import pytest
from fakes import bench_runs, stored_runs
from fakes.full_window import every_page, fill
from fakes.host import hosted
from fakes.look_records import VGPU
from fakes.quiet_window import QuietWindow
from msgspec.structs import replace
from PySide6.QtCore import QPoint, QRect, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QAbstractButton, QAbstractItemView, QApplication, QComboBox, QLineEdit, QTabBar, QWidget
from pytestqt.qtbot import QtBot

from devexplorer.core.records import MatmulSpec
from devexplorer.gui.widgets.table import Cell, Column, RowsModel, RowsTable, TableRow, numbers

CONTROLS = (QAbstractButton, QAbstractItemView, QComboBox, QLineEdit, QTabBar)
LONG = "A message of which no window has room for every word, because it goes on and on. " * 5


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, VGPU, replace(VGPU, id="vgpu:1"), size=(1280, 800))
    fill(quiet)
    yield quiet
    quiet.close()


def places(window: QWidget) -> dict[QWidget, QRect]:
    """Where every visible control is on the screen."""
    shown = [control for kind in CONTROLS for control in window.findChildren(kind) if control.isVisible()]
    return {control: QRect(control.mapToGlobal(QPoint(0, 0)), control.size()) for control in shown}


def moved(before: dict[QWidget, QRect], after: dict[QWidget, QRect]) -> list[str]:
    """Those that are shown before and after, at another place or with another size."""
    return [
        f"{type(control).__name__} {control.accessibleName() or getattr(control, 'text', str)()}:"
        f" {where.getRect()} → {after[control].getRect()}"
        for control, where in before.items()
        if control in after and after[control] != where
    ]


def messages(quiet: QuietWindow) -> dict[str, Callable[[], None]]:
    window = quiet.window
    return {
        "hint": lambda: window.hint("Select an object first."),
        "long hint": lambda: window.hint(LONG),
        "error": lambda: window.say(LONG, error=True),
        "alert": lambda: window.banner.say(LONG, error=True, about="alarms", action="Show alerts"),
        "offer": lambda: window.banner.say("Recorded to a.devrec.", passing=True, about="recorded", action="Open"),
    }


def test_no_message_of_the_window_moves_a_control(quiet: QuietWindow) -> None:
    window = quiet.window
    for _, where in every_page(quiet):
        window.banner.clear()
        quiet.settle()
        before = places(window)
        for name, say in messages(quiet).items():
            say()
            quiet.settle()
            assert window.banner.isVisible()
            assert moved(before, places(window)) == [], f"{name}, {where}"
            QTest.mouseClick(window.banner.close_button, Qt.MouseButton.LeftButton)
            quiet.settle()
            assert moved(before, places(window)) == [], f"after {name}, {where}"


def test_what_is_wrong_with_a_field_moves_no_control(quiet: QuietWindow) -> None:
    window, found = quiet.window, list[str]()
    for name, where in every_page(quiet):
        page = window.bottom_dock.page(name)
        for field in page.findChildren(QLineEdit):
            if field.isVisible() and field.isEnabled() and not field.isReadOnly():
                text, before = field.text(), places(window)
                for typed in ("?!", "", text):
                    field.selectAll()
                    QTest.keyClick(field, Qt.Key.Key_Delete)
                    QTest.keyClicks(field, typed)
                    quiet.settle()
                    found += [
                        f"{where}, '{typed}' in {field.accessibleName()}: {it}" for it in moved(before, places(window))
                    ]
    assert not found, "\n".join(found)


def test_what_the_history_says_and_asks_moves_no_control(quiet: QuietWindow) -> None:
    pytest.importorskip("devexplorer.gui.history")
    page = quiet.window.bottom_dock.show_page("history")
    page.set_source(Mock())
    page.show_runs(stored_runs.fifty()[:2], 2)
    page.table.choose([page.model.runs[0].id])
    quiet.settle()
    before = places(quiet.window)
    page.say(LONG, True)
    quiet.settle()
    assert page.message.isVisible()
    assert moved(before, places(quiet.window)) == []
    for button in (page.tags_button, page.delete_button):
        QTest.mouseClick(button, Qt.MouseButton.LeftButton)
        quiet.settle()
        assert page.question.isVisible()
        assert moved(before, places(quiet.window)) == []
        QTest.mouseClick(page.question.no, Qt.MouseButton.LeftButton)
        quiet.settle()
        assert places(quiet.window) == before


def test_no_choice_of_devices_and_no_run_moves_a_button_of_the_form(quiet: QuietWindow) -> None:
    page = quiet.window.bottom_dock.show_page("benchmark").matmul
    quiet.window.banner.clear()  # its own buttons give way to what runs
    quiet.settle()
    before = places(quiet.window)
    for devices in (("vgpu:0", "vgpu:1"), ("cpu", "vgpu:0", "vgpu:1"), ("cpu",)):
        page.devices.choose(devices)
        quiet.settle()
        assert moved(before, places(quiet.window)) == [], devices
    for run in (101, 102):
        bench_runs.begin(quiet.state, run, MatmulSpec(device="cpu", m=64, n=64, k=64, seconds=30.0), simulated=False)
        quiet.tell()
        assert page.stop_button.isEnabled()
        assert moved(before, places(quiet.window)) == [], run


def test_columns_keep_their_places_when_there_is_more_to_scroll(qtbot: QtBot) -> None:
    model = RowsModel([Column("name"), numbers("size"), Column("note")])
    table = hosted(qtbot, lambda _: RowsTable(model, "Files", [80, 60, 60], stretched=0), 400, 200)
    model.set_rows([TableRow(0, (Cell("a"), Cell("1"), Cell("")))])
    QApplication.processEvents()
    before = [table.columnViewportPosition(column) for column in range(3)]
    model.set_rows([TableRow(number, (Cell("a"), Cell("1"), Cell(""))) for number in range(100)])
    QApplication.processEvents()
    assert table.verticalScrollBar().maximum() > 0
    assert [table.columnViewportPosition(column) for column in range(3)] == before


@pytest.fixture
def no_double_clicks(qapp: QApplication) -> Iterator[None]:
    usual_ms = qapp.doubleClickInterval()
    qapp.setDoubleClickInterval(0)
    yield
    qapp.setDoubleClickInterval(usual_ms)


@pytest.mark.usefixtures("no_double_clicks")
def test_a_click_on_a_row_that_is_half_in_sight_scrolls_nothing(qtbot: QtBot, quiet: QuietWindow) -> None:
    tree = quiet.window.objects.tree
    tree.expandAll()
    quiet.settle()
    bar, view = tree.verticalScrollBar(), tree.viewport()
    if tree.indexAt(QPoint(60, view.height() - 1)).row() == tree.indexAt(QPoint(60, view.height() - 6)).row():
        quiet.resize(1280, 806)
    at = QPoint(60, view.height() - 2)
    assert bar.maximum() > 0
    assert tree.visualRect(tree.indexAt(at)).bottom() > view.height(), "half in sight"
    for modifier in (Qt.KeyboardModifier.NoModifier, Qt.KeyboardModifier.ControlModifier):
        before = bar.value()
        QTest.mouseClick(view, Qt.MouseButton.LeftButton, modifier, at)
        qtbot.wait(150)  # Qt scrolls 100 ms after what is no double click any more
        assert bar.value() == before
