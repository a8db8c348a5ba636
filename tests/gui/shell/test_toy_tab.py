"""A new tab: registering its `TabSpec` is all that the window needs."""

from __future__ import annotations

import time

import pytest
import shiboken6
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QLabel

from devexplorer.core.feature import features
from devexplorer.core.records import Event, Log
from devexplorer.core.session.session import PollResult
from devexplorer.core.session.settings import Settings
from devexplorer.core.session.state import Change, State
from devexplorer.gui.actions import FILE, Controller, TabSpec, WindowContext
from devexplorer.gui.shell.bars.menus import palette_choices
from devexplorer.gui.shell.heartbeat import Heartbeat
from devexplorer.gui.shell.main_window import TABS, MainWindow


class ToyPage(QLabel):
    """Counts its redraws; shows what is selected."""

    def __init__(self, context: WindowContext) -> None:
        super().__init__()
        self.redraws = 0
        self.setText(", ".join(context.targets))

    def refresh(self) -> None:
        self.redraws += 1

    def show_targets(self, targets: tuple[str, ...]) -> None:
        self.setText(", ".join(targets))


def make(context: WindowContext) -> ToyPage:
    page = ToyPage(context)
    context.targets_selected.connect(page.show_targets)
    return page


TOY = TabSpec(
    "toy", make, "explore", redraw=Change.LOG, live=True, count=lambda state: len(state.log),
    action="Toy", tooltip="Shows that a tab is one line", key="Ctrl+Y", menu=FILE,
)  # fmt: skip


class Link:
    """In place of a session: its events wait for the next beat."""

    def __init__(self) -> None:
        self.waiting: list[Event] = []

    def drain(self) -> PollResult:
        events, self.waiting = self.waiting, []
        return PollResult(events, None)


@pytest.fixture
def window(qapp: QApplication) -> MainWindow:
    state = State()
    controller = Controller(state, lambda _command: 0, lambda: (), lambda _text: None)
    window = MainWindow(state, controller, Settings(), (*TABS, TOY))
    window.show()
    QApplication.processEvents()
    return window


def titles(window: MainWindow) -> list[str]:
    tabs = window.bottom_dock.tabs
    return [tabs.tabText(index) for index in range(tabs.count()) if tabs.isTabVisible(index)]


def test_it_is_among_the_tabs_the_menus_and_the_palette(window: MainWindow) -> None:
    feature_of = {"Values": "parameters", "Split": "split", "Doctor": "doctor", "Fit": "planner", "Script": "observe"}
    there = [title for title, feature in feature_of.items() if feature in features()]
    assert titles(window) == [*there, "Toy"]
    assert window.actions_by_id["page toy"] in window.toolbar.open_button.menu().actions()
    assert "Toy" in [choice.text for choice in palette_choices(window.specs, window.controller)]


def test_its_key_shows_it_and_makes_its_page_then(window: MainWindow) -> None:
    window.context.select_targets(("x",))
    assert window.findChild(ToyPage) is None
    window.activateWindow()
    QTest.keyClick(window.objects.tree, Qt.Key.Key_Y, Qt.KeyboardModifier.ControlModifier)
    QApplication.processEvents()
    page = window.findChild(ToyPage)
    assert isinstance(page, ToyPage)
    assert page.isVisible()
    assert page.text() == "x"
    window.context.select_targets(("y", "z"))
    assert page.text() == "y, z"


def test_the_heartbeat_redraws_it_for_its_changes_and_counts_behind_its_title(window: MainWindow) -> None:
    page, link = window.bottom_dock.show_page("toy"), Link()
    beat = Heartbeat(link, window.state, window, monotonic=lambda: 1.0)
    beat.tick()  # live numbers too: they are due at the first beat
    drawn = page.redraws
    beat.tick()
    assert page.redraws == drawn, "nothing changed"
    link.waiting.append(Log(level="info", text="hello", time_unix_s=time.time()))
    beat.tick()
    assert page.redraws == drawn + 1
    assert titles(window)[-1] == "Toy (1)"


def test_it_is_redrawn_with_live_numbers_only_while_visible(window: MainWindow) -> None:
    page = window.bottom_dock.show_page("toy")
    drawn = page.redraws
    window.refresh_texts()
    assert page.redraws == drawn + 1
    window.bottom_dock.show_page("benchmark")
    window.refresh_texts()
    window.refresh(Change.JOBS, time.time())
    assert page.redraws == drawn + 1


def test_it_ends_with_the_window(window: MainWindow) -> None:
    page = window.bottom_dock.show_page("toy")
    shiboken6.delete(window)
    assert not shiboken6.isValid(page)
