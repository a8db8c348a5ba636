"""The menu of recent files: newest first, at most ten, what is gone is greyed, and the palette finds them too."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.look_records import mlp, show
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication

from devexplorer.core.files.records import OpenWorkspace, WorkspaceFile
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.actions.palette import CommandPalette
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.files.recent import MOST_RECENT, remember_file


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    window = QuietWindow(qapp, tmp_path / "settings")
    yield window
    window.close()


def lines(quiet: QuietWindow) -> list[tuple[str, bool]]:
    """The menu as it is shown: its lines, and whether each can be chosen."""
    menu = files_of(quiet.window.context).recent
    menu.popup(quiet.window.pos())
    quiet.answered()
    found = [(action.text().split("\t")[0], action.isEnabled()) for action in menu.actions() if action.text()]
    menu.close()
    return found


def test_what_was_opened_or_saved_is_listed_the_newest_first(quiet: QuietWindow, tmp_path: Path) -> None:
    assert lines(quiet) == [("Clear", False)]
    for name in ("a.npy", "b&w.npy"):
        (tmp_path / name).write_bytes(b"\x93NUMPY....")
        files_of(quiet.window.context).opening.open([tmp_path / name])
        quiet.answered()
        QApplication.activeModalWidget().close()
        quiet.settle()
    saved = tmp_path / "gone.devexplorer"
    quiet.tell(WorkspaceFile(path=str(saved), again=OpenWorkspace(path=str(saved))))
    files_of(quiet.window.context).opening.open([tmp_path / "missing.npy"])
    quiet.answered()
    assert lines(quiet) == [("gone.devexplorer", False), ("b&&w.npy", True), ("a.npy", True), ("Clear", True)]
    menu = files_of(quiet.window.context).recent
    assert "is not there any more" in menu.actions()[0].toolTip()
    chosen: list[list[Path]] = []
    quiet.window.context.files_chosen.connect(chosen.append)
    menu.popup(quiet.window.pos())
    place = menu.actionGeometry(menu.actions()[2]).center()
    QTest.mouseMove(menu, place)
    QTest.mouseClick(menu, Qt.MouseButton.LeftButton, pos=place)
    assert chosen == [[tmp_path / "a.npy"]]
    quiet.answered()
    QApplication.activeModalWidget().close()
    quiet.settle()
    assert lines(quiet)[0][0] == "a.npy"

    QTest.mouseClick(quiet.window.toolbar.palette_button, Qt.MouseButton.LeftButton)
    quiet.settle()
    palette = quiet.window.findChild(CommandPalette)
    assert isinstance(palette, CommandPalette)
    QTest.keyClicks(palette.field, "b&w")
    QTest.keyClick(palette.field, Qt.Key.Key_Return)
    assert chosen[1:] == [[tmp_path / "b&w.npy"]]
    quiet.answered()
    QApplication.activeModalWidget().close()

    assert not quiet.window.objects.again.isVisible(), "the only workspace is gone"
    remember_file(quiet.window.context, tmp_path / "week&3.devexplorer")
    quiet.tell()
    assert quiet.window.objects.again.text() == "Open week&&3.devexplorer"
    QTest.mouseClick(quiet.window.objects.again, Qt.MouseButton.LeftButton)
    assert chosen[2:] == [[tmp_path / "week&3.devexplorer"]]
    quiet.answered()
    show(quiet.state, mlp())
    quiet.tell()
    assert not quiet.window.objects.again.isVisible()


def test_it_is_remembered_limited_and_cleared(quiet: QuietWindow, tmp_path: Path, qapp: QApplication) -> None:
    for number in range(MOST_RECENT + 3):
        remember_file(quiet.window.context, tmp_path / f"{number}.pt")
    quiet.app.stop()
    assert len(SettingsFile(tmp_path / "settings").load().of_features["recent_files"]) == MOST_RECENT
    again = QuietWindow(qapp, tmp_path / "settings")
    assert [text for text, _ in lines(again)] == [*(f"{12 - at}.pt" for at in range(MOST_RECENT)), "Clear"]
    files_of(again.window.context).recent.actions()[-1].trigger()
    assert lines(again) == [("Clear", False)]
    again.close()


def test_the_menu_file_has_it_below_open(quiet: QuietWindow) -> None:
    actions = quiet.window.toolbar.open_button.menu().actions()
    assert [action.text() for action in actions[:4]] == ["New workspace", "Open…", "Open recent", "Save workspace"]
