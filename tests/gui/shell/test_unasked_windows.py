"""No window opens, and nothing takes the focus, without a request: recordings, the engine's death, themes, every
page."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes import recordings
from fakes.opened_windows import OpenedWindows
from fakes.window import Driver, open_window
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.memory.records import OpenSnapshot
from devexplorer.gui.memory.snapshot_files import SnapshotDialog
from devexplorer.gui.recording.actions import replaying_of
from devexplorer.gui.shell.main_window import TABS


@pytest.fixture
def driver(qapp: QApplication, tmp_path: Path) -> Iterator[Driver]:
    driver = open_window(qapp, tmp_path, "2x Tesla T4", Driver).ready()
    yield driver
    driver.end()


def test_only_windows_that_were_asked_for_open(driver: Driver, qapp: QApplication, tmp_path: Path) -> None:
    recording = recordings.write(tmp_path / "forge.devrec", 20)
    opened = OpenedWindows(qapp, driver.window)
    try:
        driver.build("mlp")
        opened.take()  # the menu that a model was chosen from
        replaying_of(driver.window.context).open(recording)
        driver.heartbeat.stop()
        driver.until(
            lambda: driver.state.recording is not None and "cuda:1" in driver.state.devices, "a recording shown"
        )
        assert opened.take() == [], "a recording was opened"
        QTest.mouseClick(replaying_of(driver.window.context).bar.back, Qt.MouseButton.LeftButton)
        driver.until(lambda: "vgpu:1" in driver.state.devices, "this machine shown")
        assert opened.take() == [], "back to live"
        driver.engines[-1].kill()
        driver.until(lambda: len(driver.engines) == 2 and "mlp" in driver.state.objects, "another engine")
        assert opened.take() == [], "the engine died"
        for page in (tab.name for tab in TABS if tab.layout):  # the others are a window
            driver.window.bottom_dock.show_page(page)
            driver.heartbeat.tick()
            assert opened.take() == [], f"page {page}"
        driver.window.change_theme()
        assert opened.take() == [], "another theme"

        driver.window.controller.send(OpenSnapshot(device="vgpu:0"))
        driver.until(lambda: driver.window.findChild(SnapshotDialog) is not None, "the snapshot that was asked for")
        assert opened.take() == ["Allocator snapshot"]
        dialog = driver.window.findChild(SnapshotDialog)
        dialog.close()
        replaying_of(driver.window.context).open(recording)
        driver.heartbeat.stop()
        driver.until(lambda: "cuda:1" in driver.state.devices, "a recording shown")
        QTest.mouseClick(replaying_of(driver.window.context).bar.back, Qt.MouseButton.LeftButton)
        driver.until(lambda: "vgpu:1" in driver.state.devices, "this machine shown")
        assert opened.take() == [], "the snapshot that was closed stays closed"
        driver.window.controller.send(OpenSnapshot(device="vgpu:0"))
        driver.until(dialog.isVisible, "opened again")
        assert opened.take() == ["Allocator snapshot"]
    finally:
        opened.stop()
