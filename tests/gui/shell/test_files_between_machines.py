"""Files of this machine and of another one, opened in a window that shows either."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import numpy as np
import pytest
from fakes import recordings
from fakes.two_machines import TwoMachines
from PySide6.QtCore import QPoint, Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog

from devexplorer.core.machines.machines import FarMachine
from devexplorer.core.recording.format import MAGIC
from devexplorer.core.records import BuildModel, Steps
from devexplorer.core.session.script import Surroundings, script
from devexplorer.core.session.script_file import with_commands
from devexplorer.core.session.settings import FarFile, SettingsFile
from devexplorer.gui.files.load_file import LoadFileDialog
from devexplorer.gui.forms.far_file_dialog import FarFileDialog
from devexplorer.gui.machines.copies import CopyDialog

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


# --- brought here


def copies(tmp_path: Path) -> list[Path]:
    """What lies in the cache of copies of this machine."""
    return [path for path in (tmp_path / "cache").rglob("*") if path.is_file()]


def test_a_recording_of_another_machine_is_brought_here_and_replayed(desk: Desk, tmp_path: Path) -> None:
    recordings.write(desk.there / "run.devrec", 5)
    desk.show_far()
    desk.choose_there(desk.there / "run.devrec")
    replaying = desk.app.replaying
    desk.until(lambda: replaying.replay is not None and replaying.replay.view.opened)
    (copy,) = copies(tmp_path)
    assert copy.read_bytes() == (desk.there / "run.devrec").read_bytes()
    bar = desk.window.replay_bar
    assert bar.title.full_text.startswith("Recording of forge, 2023-11-14, run.devrec on forge")
    assert desk.state.answer is not None
    assert ("file", "run.devrec on forge") in [(fact.label, fact.value) for fact in desk.state.answer.facts]
    assert not [one for one in desk.window.findChildren(CopyDialog) if one.isVisible()]
    assert not desk.said

    desk.click(bar.back)
    desk.until(lambda: not copies(tmp_path))
    assert desk.context.machine is desk.far
    assert desk.state.recording is None
    assert desk.recent()[0].startswith("run.devrec\tforge: ")
    desk.choose_recent(0)
    desk.until(lambda: replaying.replay is not None and replaying.replay.view.opened)


def test_a_recording_on_its_way_shows_how_far_it_is_and_can_be_left(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.gui.machines.copies.LATE_MS", 0)
    (desk.there / "long.devrec").write_bytes(MAGIC + bytes(40 << 18))
    desk.show_far()
    desk.context.far_files_chosen.emit([desk.there / "long.devrec"])
    dialog = desk.dialog(CopyDialog)
    desk.until(lambda: dialog.bar.maximum() > 0)
    assert dialog.windowTitle() == "Open long.devrec from forge"
    assert dialog.words.full_text.startswith("long.devrec: sending to this machine, ")
    desk.click(dialog.cancel_button)
    desk.until(lambda: desk.said)
    assert desk.said == "long.devrec was not opened."
    desk.until(lambda: not copies(tmp_path))
    assert desk.app.replaying.replay is None


def test_a_recording_that_is_damaged_is_said_with_the_name_that_the_user_knows(desk: Desk, tmp_path: Path) -> None:
    (desk.there / "bad.devrec").write_bytes(MAGIC + bytes(200))
    desk.show_far()
    desk.context.far_files_chosen.emit([desk.there / "bad.devrec"])
    desk.until(lambda: desk.said)
    assert desk.said.startswith("Bad.devrec on forge ")
    assert "cache" not in desk.said
    desk.until(lambda: not copies(tmp_path))


def test_what_arrives_when_another_machine_is_on_show_is_not_opened(desk: Desk, tmp_path: Path) -> None:
    recordings.write(desk.there / "run.devrec", 5)
    desk.show_far()
    desk.context.far_files_chosen.emit([desk.there / "run.devrec"])
    desk.until(lambda: copies(tmp_path) or desk.window.findChildren(CopyDialog))
    desk.context.machines.show(desk.app.replaying.here)
    desk.until(lambda: desk.said)
    assert desk.said == "run.devrec was not opened: forge is not on show any more."
    desk.until(lambda: not copies(tmp_path))
    assert desk.app.replaying.replay is None


def test_a_recording_of_this_machine_is_replayed_while_another_is_on_show(desk: Desk, tmp_path: Path) -> None:
    recordings.write(tmp_path / "mine.devrec", 5)
    desk.show_far()
    desk.window.actions_by_id["replay"].trigger()
    dialog = desk.dialog(FarFileDialog)
    dialog.machine.setCurrentIndex(1)
    dialog.machine.activated.emit(1)
    chooser = desk.dialog(QFileDialog)
    assert chooser.windowTitle() == "Open a recording on this machine"
    chooser.filesSelected.emit([str(tmp_path / "mine.devrec")])
    chooser.reject()
    replaying = desk.app.replaying
    desk.until(lambda: replaying.replay is not None and replaying.replay.view.opened)
    assert "mine.devrec" not in desk.window.replay_bar.title.full_text, "as with this machine on show"
    assert not copies(tmp_path)
    desk.click(desk.window.replay_bar.back)
    desk.until(lambda: desk.context.machine is desk.far and desk.state.recording is None)
    assert (tmp_path / "mine.devrec").exists()


def test_a_recording_that_ended_on_another_machine_is_offered(desk: Desk) -> None:
    recordings.write(desk.there / "run.devrec", 5)
    desk.show_far()
    desk.context.recording_stopped.emit(desk.there / "run.devrec")
    assert desk.said == "Recorded to run.devrec on forge."
    desk.click(desk.window.banner.action_button)
    replaying = desk.app.replaying
    desk.until(lambda: replaying.replay is not None and replaying.replay.view.opened)


@pytest.mark.parametrize("there", [True, False])
def test_a_session_of_either_machine_is_repeated_on_the_one_on_show(desk: Desk, tmp_path: Path, there: bool) -> None:
    folder = desk.there if there else tmp_path
    path = folder / "session.py"
    path.write_text(with_commands(script((), Surroundings()), (BuildModel(recipe="mlp"),), Surroundings()))
    desk.show_far()
    chosen = desk.context.far_files_chosen if there else desk.context.files_chosen
    chosen.emit([path])
    desk.until(lambda: any(isinstance(command, Steps) for command in desk.host.engine.sent))
    assert desk.engine is not None
    assert not desk.engine.sent
    desk.until(lambda: not copies(tmp_path))
