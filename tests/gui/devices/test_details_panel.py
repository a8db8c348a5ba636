"""Everything about one device."""

from __future__ import annotations

import pytest
from fakes.host import hosted
from fakes.look_records import CPU, server, server_sample
from PySide6.QtCore import QRect, Qt
from PySide6.QtGui import QColor, QImage
from PySide6.QtWidgets import QApplication, QListWidgetItem
from pytestqt.qtbot import QtBot

from devexplorer.core.devices.catalog import Catalog
from devexplorer.core.session.state import State
from devexplorer.gui.devices.details import DetailsPanel, FactsSheet
from devexplorer.gui.widgets.theme import THEMES, set_theme

LEFT = Qt.MouseButton.LeftButton


def panel_for(
    qtbot: QtBot, state: State, device: str | None = "cuda:0", width: int = 1264, height: int = 400
) -> DetailsPanel:
    panel = hosted(qtbot, lambda _: DetailsPanel(state), width, height)
    panel.set_device(device)
    return panel


def value(panel: DetailsPanel, title: str, label: str) -> str:
    return next(
        row.value for group in panel.sheet.groups if group.title == title for row in group.rows if row.label == label
    )


def item_of(sheet: FactsSheet, group: str, label: str) -> QListWidgetItem:
    title = next(at for at in range(sheet.count()) if sheet.item(at).text() == group)
    items = (sheet.item(at) for at in range(title + 1, sheet.count()))
    return next(item for item in items if said(item).startswith(f"{label}: "))


def said(item: QListWidgetItem) -> str:
    return item.data(Qt.ItemDataRole.AccessibleTextRole) or ""


def box_of(sheet: FactsSheet, group: str, label: str) -> QRect:
    return sheet.visualItemRect(item_of(sheet, group, label))


def test_before_a_device_is_chosen_the_first_gpu_is_shown(qtbot: QtBot) -> None:
    state = State()
    panel = panel_for(qtbot, state, None)
    assert panel.nothing.isVisible()
    assert panel.nothing.text() == "No device is known yet."
    state.set_catalog(Catalog((CPU,)))
    panel.refresh()
    assert panel.title.text() == "cpu"
    state.set_catalog(Catalog(tuple(device.info for device in server(2).devices.values())))
    panel.refresh()
    assert panel.sheet.isVisible()
    assert panel.title.text() == "cuda:0"
    panel.set_device("cuda:1")
    assert panel.title.text() == "cuda:1"


def test_a_device_that_leaves_is_not_shown_any_more(qtbot: QtBot) -> None:
    state = server(2)
    panel = panel_for(qtbot, state, "cuda:1")
    state.set_catalog(Catalog((CPU,)))
    panel.refresh()
    assert panel.nothing.isVisible()
    assert panel.nothing.text() == "cuda:1 is not available."
    assert not panel.sheet.isVisible()


def test_only_the_rows_that_changed_are_painted_again(qtbot: QtBot) -> None:
    state = server(1)
    panel = panel_for(qtbot, state)
    QApplication.processEvents()
    painted: list[int] = []
    panel.sheet.model().dataChanged.connect(lambda first, last: painted.extend(range(first.row(), last.row() + 1)))
    panel.refresh()
    assert painted == []
    state.apply(server_sample(0, temperature_c=71.0, fan_percent=50.0))
    panel.refresh()  # two fans have rows of their own
    assert {said(panel.sheet.item(at)) for at in painted} == {"temperature: 71 °C"}


@pytest.mark.parametrize("height", range(634, 1060, 71))
def test_groups_are_whole_where_there_is_room_for_their_columns(qtbot: QtBot, height: int) -> None:
    panel = panel_for(qtbot, server(1), width=1478, height=height)
    QApplication.processEvents()
    for group in panel.sheet.groups:
        assert len({box_of(panel.sheet, group.title, row.label).left() for row in group.rows}) == 1, group.title


def test_the_filter_keeps_what_holds_every_word(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(1))
    qtbot.keyClicks(panel.filter, "memory mhz")
    assert [(group.title, [row.label for row in group.rows]) for group in panel.sheet.groups] == [
        ("Clocks", ["memory", "memory clock (requested)"])
    ]
    qtbot.keyClicks(panel.filter, " nonsense")
    assert panel.nothing.isVisible()
    assert panel.nothing.text() == "No fact about cuda:0 holds “memory mhz nonsense”."
    panel.filter.clear()
    assert len(panel.sheet.groups) == 9
    qtbot.keyClicks(panel.filter, "thrott")  # the word that cards and alerts use
    assert [row.label for group in panel.sheet.groups for row in group.rows] == ["throttled by"]


def test_everything_can_be_copied_as_text_also_while_a_filter_hides_it(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(1))
    qtbot.keyClicks(panel.filter, "fan")
    qtbot.mouseClick(panel.copy_button, LEFT)
    text = QApplication.clipboard().text()
    assert text.startswith("cuda:0: NVIDIA H100 80GB HBM3\n\nIdentity\n")
    assert "GPU-00000000-1b2c-4d5e-8f90-0123456789ab" in text
    assert "—  (this card replaces rows instead)" in text


def test_a_value_is_copied_with_a_click_and_ctrl_c(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(1))
    qtbot.mouseClick(panel.sheet.viewport(), LEFT, pos=box_of(panel.sheet, "Identity", "bus id").center())
    qtbot.keyClick(panel.sheet, Qt.Key.Key_C, Qt.KeyboardModifier.ControlModifier)
    assert QApplication.clipboard().text() == "00000000:18:00.0"


def test_rows_are_walked_with_the_arrow_keys_and_scrolled_to(qtbot: QtBot) -> None:
    panel = panel_for(qtbot, server(1), width=300, height=200)
    QApplication.processEvents()
    panel.sheet.setFocus()
    for _ in range(40):
        qtbot.keyClick(panel.sheet, Qt.Key.Key_Down)
    current = panel.sheet.currentItem()
    assert said(current)
    assert panel.sheet.viewport().rect().contains(panel.sheet.visualItemRect(current))
    assert panel.sheet.verticalScrollBar().value() > 0
    qtbot.keyClick(panel.sheet, Qt.Key.Key_Up)
    assert panel.sheet.currentItem() is not current


@pytest.mark.parametrize("name", THEMES)
def test_a_warning_has_a_sign_and_the_colour_of_warnings(qtbot: QtBot, name: str) -> None:
    panel = panel_for(qtbot, server(1))
    set_theme(THEMES[name])
    box = box_of(panel.sheet, "Activity", "throttled by")
    image = panel.sheet.viewport().grab(box).toImage()
    assert any(_near(image, x, y, THEMES[name].warning) for x in range(image.width()) for y in range(image.height()))
    other = panel.sheet.viewport().grab(box_of(panel.sheet, "Activity", "encoder")).toImage()
    assert not any(
        _near(other, x, y, THEMES[name].warning) for x in range(other.width()) for y in range(other.height())
    )


def _near(image: QImage, x: int, y: int, colour: str) -> bool:
    wanted, there = QColor(colour), image.pixelColor(x, y)
    return all(abs(a - b) < 12 for a, b in zip(wanted.getRgb()[:3], there.getRgb()[:3], strict=True))
