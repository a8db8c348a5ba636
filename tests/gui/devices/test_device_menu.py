"""A click on a card, and its context menu, in the whole window."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.look_records import VGPU, mlp
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtGui import QContextMenuEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QMenu

from devexplorer.core.records import ObjectChanged
from devexplorer.gui.devices.card import DeviceItem

LEFT = Qt.MouseButton.LeftButton


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path, VGPU)
    quiet.window.activateWindow()
    quiet.tell(ObjectChanged(snapshot=mlp()))
    yield quiet
    quiet.close()


def card(quiet: QuietWindow) -> DeviceItem:
    return quiet.window.devices.items["vgpu:0"]


def choose(quiet: QuietWindow, words: str) -> None:
    """Open the card's menu and click the line that begins with `words`."""
    item = card(quiet)
    middle = item.rect().center()
    QApplication.sendEvent(item, QContextMenuEvent(QContextMenuEvent.Reason.Mouse, middle, item.mapToGlobal(middle)))
    menu = QApplication.activePopupWidget()
    assert isinstance(menu, QMenu)
    [line] = [line for line in menu.actions() if line.text().startswith(words)]
    assert line.isEnabled()
    QTest.mouseClick(menu, LEFT, pos=menu.actionGeometry(line).center())
    quiet.settle()


@pytest.mark.parametrize("by_keyboard", [False, True])
def test_a_click_or_enter_on_a_card_shows_the_device_and_a_click_on_the_object_shows_that_again(
    quiet: QuietWindow, by_keyboard: bool
) -> None:
    inspector, tree = quiet.window.inspector, quiet.window.objects.tree
    row = tree.visualRect(quiet.window.objects.model.index_of("mlp")).center()
    QTest.mouseClick(tree.viewport(), LEFT, pos=row)
    assert inspector.subtitle == "mlp"
    if by_keyboard:
        card(quiet).setFocus()
        QTest.keyClick(card(quiet), Qt.Key.Key_Return)
    else:
        QTest.mouseClick(card(quiet), LEFT)
    assert inspector.subtitle == "vgpu:0, simulated"
    QTest.mouseClick(tree.viewport(), LEFT, pos=row)
    assert inspector.subtitle == "mlp"


@pytest.mark.parametrize(("words", "tab"), [("Details", "device"), ("Processes", "processes")])
def test_the_menu_of_a_card_opens_its_pages(quiet: QuietWindow, words: str, tab: str) -> None:
    choose(quiet, words)
    assert quiet.window.bottom_dock.current == tab
    assert quiet.window.inspector.subtitle == "vgpu:0, simulated", "its card is selected"


def test_the_menu_of_a_card_leads_to_its_benchmark(quiet: QuietWindow) -> None:
    choose(quiet, "Benchmark")
    page = quiet.window.bottom_dock.page("benchmark")
    assert page.matmul.devices.chosen == ("vgpu:0",)
    assert quiet.window.focusWidget() is page.page.start_button


def test_the_menu_of_a_card_hides_it_in_every_plot_and_shows_it_again(quiet: QuietWindow) -> None:
    legends = [slot.plot.legend for slot in quiet.window.slots]
    choose(quiet, "Hide in the plots")
    assert not any(legend.shows("vgpu:0") for legend in legends)
    assert all(legend.shows("cpu") for legend in legends)
    choose(quiet, "Hide in the plots")
    assert all(legend.shows("vgpu:0") for legend in legends)
