"""A window with this machine and one behind a link, as somebody uses it who works with the files of both."""

from __future__ import annotations

from pathlib import Path
from typing import TypeVar

from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog

from devexplorer.core.machines.window.machines import FarMachine
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.machines.side import FarFileDialog
from fakes.two_machines import TwoMachines

D = TypeVar("D", bound=QDialog)


class Desk(TwoMachines):
    """This machine and forge, whose files are below `there`."""

    def __init__(self, qapp: QApplication, folder: Path) -> None:
        super().__init__(qapp, folder)
        self.folder, self.there = folder, folder / "there"
        self.there.mkdir()
        self.go_live()
        self.far: FarMachine = self.add()
        self.context = self.window.context

    def show_far(self) -> None:
        room_of(self.context).show(self.far)
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
        menu = files_of(self.window.context).recent
        menu.popup(QPoint(0, 0))
        lines = [action.text() for action in menu.actions() if action.text()][:-1]
        menu.close()
        return lines

    def choose_recent(self, number: int) -> None:
        menu = files_of(self.window.context).recent
        menu.popup(QPoint(0, 0))
        menu.setActiveAction(menu.actions()[number])
        QTest.keyClick(menu, Qt.Key.Key_Return)  # a click counts only where the pointer was not before the menu opened

    @property
    def said(self) -> str:
        return self.window.banner.words.full_text if self.window.banner.isVisible() else ""
