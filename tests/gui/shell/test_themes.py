"""Another theme while the window is open: all of it looks like a window that was opened in that theme."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.window import Driver, open_window
from PySide6.QtGui import QImage
from PySide6.QtWidgets import QApplication

from devexplorer.core.cli.arguments import parse
from devexplorer.core.session.state import Change
from devexplorer.gui.shell.main_window import MainWindow
from devexplorer.gui.widgets.theme import THEMES

NOW = 1_800_000_000.0
NOT_IN_A_SECOND_WINDOW = {"history", "learn", "roofline", "session"}
"""Pages that show what only the application gives them, what the history answers sooner or later, or the keyboard."""


def looks(window: MainWindow, *, redraw: bool = True) -> dict[str, QImage]:
    """The pages of all tabs, and what is above them; without `redraw` as the change of the theme has left them."""
    result = {}
    for spec in window.bottom_dock.specs:
        page = window.bottom_dock.show_page(spec.name)
        for _ in range(2):
            if redraw:
                window.refresh(~Change.NOTHING, NOW)
                window.refresh_texts()
            QApplication.processEvents()
        result[spec.name] = page.grab().toImage()
    for part in (window.toolbar, window.devices, window.inspector):
        result[type(part).__name__] = part.grab().toImage()
    return result


def different(one: dict[str, QImage], other: dict[str, QImage]) -> set[str]:
    return {name for name in one if one[name] != other[name]}


@pytest.fixture
def driver(qapp: QApplication, tmp_path: Path) -> Iterator[Driver]:
    driver = open_window(qapp, tmp_path, "2x Tesla T4", Driver)
    yield driver.ready()
    driver.end()


def test_the_whole_window_follows_the_theme(driver: Driver) -> None:
    window = driver.window
    driver.build("mlp")
    driver.select("mlp")
    driver.choose(window.toolbar.buttons["move"], "vgpu:1")
    driver.on("mlp", "vgpu:1")
    window.devices.choose("vgpu:1")
    window.context.select_device("vgpu:1")
    first = looks(window)  # now every page is there, and all but one of them are hidden
    window.change_theme()
    followed = looks(window, redraw=False)
    assert different(first, followed) == set(first)
    opened = MainWindow(driver.state, driver.app.controller, window.settings())
    opened.context.machine = window.context.machine  # this and the next are what the application gives
    opened.context.in_background = window.context.in_background
    opened.resize(window.size())
    opened.show()
    opened.objects.select("mlp")
    opened.devices.choose("vgpu:1")
    opened.context.select_device("vgpu:1")
    assert different(looks(opened), followed) <= NOT_IN_A_SECOND_WINDOW
    opened.close()


def test_every_theme_can_be_chosen_on_the_command_line() -> None:
    assert [parse(["--theme", name]).theme for name in THEMES] == list(THEMES)
