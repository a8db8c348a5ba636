"""The accessibility tree of the whole window: what takes the keyboard has a name and a role, what is painted says what
it shows."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from fakes.hands import Hands
from fakes.learner import SELDOM_S
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtGui import QAccessible, QAccessibleInterface
from PySide6.QtTest import QTest
from PySide6.QtWidgets import (
    QAbstractButton,
    QAbstractScrollArea,
    QApplication,
    QDialog,
    QFileDialog,
    QMenu,
    QTabWidget,
    QWidget,
)

from devexplorer.gui.plots.canvas import Canvas, PlotCanvas
from devexplorer.gui.widgets import Picture, reading_order
from devexplorer.gui.widgets import theme as themes
from devexplorer.gui.widgets.theme import THEMES, Theme

NO_ROLE = {QAccessible.Role.NoRole, QAccessible.Role.Client, QAccessible.Role.Grouping}
QT_CONTAINERS = (QAbstractScrollArea, QTabWidget)
"""Take the keyboard for what is in them; Qt gives them no role of their own."""


@pytest.fixture(scope="module")
def hands(qapp: QApplication, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Hands]:
    hands = open_window(qapp, tmp_path_factory.mktemp("settings"), "2x Tesla T4", Hands, SELDOM_S).ready()
    hands.build("mlp")
    hands.select("mlp")
    for spec in hands.window.bottom_dock.specs:  # a page may keep widgets for later, which no single test has to end
        hands.window.bottom_dock.show_page(spec.name)
        hands.until(lambda: True)
    yield hands
    hands.end()


def tree(widget: QWidget) -> Iterator[QAccessibleInterface]:
    """The interfaces below a widget that belong to widgets, itself first, as a screen reader walks them."""
    waiting = [QAccessible.queryAccessibleInterface(widget)]
    while waiting:
        node = waiting.pop()
        if node is None or not isinstance(node.object(), QWidget):
            continue
        yield node
        if not isinstance(node.object(), QMenu):
            waiting += [node.child(at) for at in range(node.childCount())]


def name(widget: QWidget) -> str:
    node = QAccessible.queryAccessibleInterface(widget)
    assert node is not None
    return node.text(QAccessible.Text.Name)


def nameless(root: QWidget) -> set[str]:
    """What can be seen and takes the keyboard or a click without saying what it is."""
    found = set()
    for node in tree(root):
        widget = node.object()
        assert isinstance(widget, QWidget)
        area = widget.parent()
        if not widget.isVisible() or (isinstance(area, QAbstractScrollArea) and area.viewport() is widget):
            continue
        if widget.focusPolicy() == Qt.FocusPolicy.NoFocus and not isinstance(widget, (QAbstractButton, Picture)):
            continue
        if widget.focusProxy() is not None or widget.parent() is None:
            continue
        words = node.text(QAccessible.Text.Name).strip()
        role = node.role()
        if not words or (role in NO_ROLE and not isinstance(widget, QT_CONTAINERS)):
            found.add(f"{type(widget).__name__} {words!r} {role.name} in {type(area).__name__}")
    return found


def test_every_page_of_every_layout_says_what_its_widgets_are(hands: Hands) -> None:
    missing = {}
    for spec in hands.window.bottom_dock.specs:
        hands.window.bottom_dock.show_page(spec.name)
        hands.until(lambda: True)
        if found := nameless(hands.window):
            missing[spec.name] = found
    assert missing == {}


def test_every_dialog_of_the_palette_says_what_its_widgets_are(hands: Hands) -> None:
    missing, opened = {}, 0
    for spec in hands.window.specs:
        if not spec.text.endswith("…") or spec.why_not() is not None:
            continue
        spec.run()
        hands.until(lambda: True)
        for dialog in [one for one in QApplication.topLevelWidgets() if isinstance(one, QDialog) and one.isVisible()]:
            opened += 1
            if not isinstance(dialog, QFileDialog) and (found := nameless(dialog)):
                missing[spec.text] = found
            assert dialog.windowTitle(), spec.text
            dialog.reject()
        hands.until(lambda: True)
    assert opened >= 10
    assert missing == {}


@pytest.mark.parametrize("theme", THEMES.values(), ids=list(THEMES))
def test_what_has_the_keyboard_can_be_seen(hands: Hands, qapp: QApplication, theme: Theme) -> None:
    """Each stop of the Tab key looks different while it has the focus."""
    window = hands.window
    themes.apply(qapp, theme)
    window.activateWindow()
    hands.until(window.isActiveWindow, "active")
    unseen, looked_at = {}, set[QWidget]()
    for spec in window.bottom_dock.specs:
        window.bottom_dock.show_page(spec.name)
        hands.until(lambda: True)
        for stop in reading_order(window.workbench):
            if stop in looked_at:
                continue  # it is beside more than one page
            window.rail.buttons["explore"].setFocus()
            QApplication.processEvents()
            before = stop.grab().toImage()
            stop.setFocus(Qt.FocusReason.TabFocusReason)
            QApplication.processEvents()
            if not stop.hasFocus():
                continue
            looked_at.add(stop)
            if stop.grab().toImage() == before:
                unseen[f"{type(stop).__name__} {stop.accessibleName()}"] = spec.name
    assert unseen == {}


def test_a_card_is_one_of_several_to_choose_and_says_its_figures(hands: Hands) -> None:
    hands.window.workbench.show_layout("explore")
    hands.until(lambda: True)
    card = hands.window.devices.items["vgpu:1"]
    node = QAccessible.queryAccessibleInterface(card)
    assert node is not None
    assert node.role() == QAccessible.Role.RadioButton
    assert "vgpu:1" in name(card)
    assert "simulated" in name(card)
    assert card.texts.used in node.text(QAccessible.Text.Description)
    assert not node.state().checked
    QTest.keyClick(card, Qt.Key.Key_Return)
    assert QAccessible.queryAccessibleInterface(card).state().checked


def test_a_plot_says_its_newest_values_and_those_at_the_cursor(hands: Hands) -> None:
    hands.window.workbench.show_layout("explore")
    plot = hands.window.memory.plot
    hands.until(lambda: all(not device.history.latest_unix_s < 0 for device in hands.state.devices.values()))
    canvas = plot.canvas
    assert isinstance(canvas, Canvas)
    node = QAccessible.queryAccessibleInterface(canvas)
    assert node is not None
    assert node.role() == QAccessible.Role.Chart
    words = node.text(QAccessible.Text.Description)
    assert "cpu " in words
    assert "vgpu:0 simulated " in words
    QTest.keyClick(canvas, Qt.Key.Key_Left)
    at_cursor = node.text(QAccessible.Text.Description)
    assert at_cursor.count(":") >= words.count(":") + 2, "it begins with the time of the cursor"
    QTest.keyClick(canvas, Qt.Key.Key_Escape)


def test_every_picture_and_plot_has_a_role_of_its_own(hands: Hands) -> None:
    """Also where it takes no keyboard."""
    for spec in hands.window.bottom_dock.specs:
        hands.window.bottom_dock.show_page(spec.name)
    for widget in hands.window.findChildren(QWidget):
        if isinstance(widget, (Picture, PlotCanvas)):
            node = QAccessible.queryAccessibleInterface(widget)
            assert node is not None
            assert node.role() in (QAccessible.Role.Graphic, QAccessible.Role.Chart), widget
