"""Files of this machine and of another one, opened in a window that shows either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from fakes.two_machines import TwoMachines
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog

from devexplorer.core.machines.machines import FarMachine
from devexplorer.core.session.settings import FarFile, SettingsFile
from devexplorer.gui.files.load_file import LoadFileDialog
from devexplorer.gui.forms.far_file_dialog import FarFileDialog

LEFT = Qt.MouseButton.LeftButton
D = TypeVar("D", bound=QDialog)


class Desk(TwoMachines):
    """This machine and forge, whose files are below `there`."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        super().__init__(qapp, folder)
        self.there = folder / "there"
        self.there.mkdir()
        self.go_live()
        self.far: FarMachine = self.add()
        self.context = self.window.context

    def show_far(self) -> None:
        self.context.machines.show(self.far)
        self.until(lambda: self.state.engine is not None and not self.state.away)

    def dialog(self, kind: type[D]) -> D:
        found: list[D] = []

        def there() -> bool:
            found[:] = [one for one in self.window.findChildren(kind) if one.isVisible()]
            return bool(found)

        self.until(there)
        return found[-1]

    def choose_there(self, path: Path) -> None:
        """By the far machine's file dialog, as a user does."""
        self.window.actions_by_id["open"].trigger()
        dialog = self.dialog(FarFileDialog)
        dialog.path.setText(str(path))
        QTest.keyClick(dialog.path, Qt.Key.Key_Return)
        self.until(lambda: not dialog._asked)
        if dialog.accept_button.isEnabled():
            self.click(dialog.accept_button)
        else:
            dialog.reject()

    def recent(self) -> list[str]:
        """The lines of Open recent."""
        menu = self.window.recent
        menu.popup(QPoint(0, 0))
        lines = [action.text() for action in menu.actions() if action.text()][:-1]
        menu.close()
        return lines

    def choose_recent(self, number: int) -> None:
        menu = self.window.recent
        menu.popup(QPoint(0, 0))
        QTest.mouseClick(menu, LEFT, pos=menu.actionGeometry(menu.actions()[number]).center())

    @property
    def said(self) -> str:
        return self.window.banner.words.text() if self.window.banner.isVisible() else ""


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Desk]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = Desk(qapp, tmp_path)
    yield made
    made.end()


def test_a_file_of_another_machine_is_listed_with_it_and_opens_there(desk: Desk, tmp_path: Path) -> None:
    far_file, here_file = desk.there / "weights.npy", tmp_path / "mine.npy"
    for path in (far_file, here_file):
        np.save(path, np.ones(3))
    desk.window.opening.open([here_file])
    desk.dialog(LoadFileDialog).reject()
    desk.show_far()
    desk.choose_there(far_file)
    desk.dialog(LoadFileDialog).reject()
    desk.context.machines.show(desk.app.replaying.here)
    desk.until(lambda: desk.context.far is None)

    first, second = desk.recent()
    assert first.startswith("weights.npy\tforge: ")
    assert second.startswith("mine.npy\t")
    assert "forge" not in second
    desk.choose_recent(0)
    dialog = desk.dialog(LoadFileDialog)
    assert desk.context.far is desk.far, "its machine is on show"
    assert (dialog.file.path, dialog.file.machine) == (far_file, "forge")
    dialog.reject()
    title, place, _ = desk.window.recent.choices()[0]
    assert (title, place) == ("Open recent weights.npy", f"forge: {desk.there}")

    desk.context.machines.remove(desk.far)
    desk.choose_recent(0)
    desk.until(lambda: desk.said)
    assert desk.said == (
        "weights.npy is on forge, which is not connected: choose it in the menu Machine, then open the file."
    )
    assert desk.app.settings_file.save(desk.window.settings()) is None
    assert SettingsFile(tmp_path).load().recent_files == (FarFile("forge", str(far_file)), str(here_file))


def test_a_file_that_is_not_there_is_said_with_its_machine(desk: Desk) -> None:
    desk.show_far()
    desk.context.far_files_chosen.emit([desk.there / "nope.npy"])
    desk.until(lambda: desk.said)
    assert desk.said == "On forge: nope.npy cannot be read: No such file or directory."
    assert desk.recent() == []
    desk.window.actions_by_id["load"].trigger()
    dialog = desk.dialog(LoadFileDialog)
    for path, words in (
        (desk.there / "nope.npy", f"There is no file {desk.there}/nope.npy on forge."),
        (Path("/none/nope.npy"), "On forge: /none: no such file or directory."),
    ):
        dialog.file.set_path(str(path))
        desk.until(lambda: not dialog.message.text().startswith("Looking"))
        assert dialog.message.text() == words
    dialog.reject()
