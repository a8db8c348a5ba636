"""Closing a window with unsaved work asks; a session that ended without being closed leaves a copy, which the next one
offers."""

from __future__ import annotations

import json
import os
import platform
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import torch
from fakes.hands import CTRL, Hands
from fakes.window import open_window
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QLineEdit

from devexplorer.core.files import workspace_commands
from devexplorer.core.files.records import SaveWorkspace
from devexplorer.core.files.workspace_writing import write
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.files.questions import LossQuestion, SaveQuestion

Start = Callable[[], Hands]


@pytest.fixture
def start(qapp: QApplication, tmp_path: Path) -> Iterator[Start]:
    windows: list[Hands] = []

    def make() -> Hands:
        windows.append(open_window(qapp, tmp_path / "settings", "2x Tesla T4", Hands))
        return windows[-1].ready()

    yield make
    for window in windows:
        window.end()


def questions() -> list[SaveQuestion]:
    return [one for one in QApplication.topLevelWidgets() if isinstance(one, SaveQuestion) and one.isVisible()]


def work(hands: Hands) -> None:
    """A model on another device than Build gives it."""
    hands.build("mlp")
    hands.point("mlp")
    hands.press(Qt.Key.Key_1, CTRL)
    hands.on("mlp", "vgpu:0")


def name_it(hands: Hands, path: Path) -> None:
    name = hands.dialog(QFileDialog).findChild(QLineEdit, "fileNameEdit")
    assert isinstance(name, QLineEdit)
    name.setText(str(path))
    QTest.keyClick(name, Qt.Key.Key_Return)


def test_nothing_is_asked_where_nothing_would_be_lost(start: Start) -> None:
    hands = start()
    work(hands)
    assert hands.window.isWindowModified()
    hands.press(Qt.Key.Key_Z, CTRL)
    hands.on("mlp", "cpu")
    assert not hands.window.isWindowModified()
    assert hands.window.close(), "Build makes this again"
    assert not questions()


def test_the_window_stays_or_is_saved_and_closes_itself(start: Start, tmp_path: Path) -> None:
    hands, path = start(), tmp_path / "work.devexplorer"
    work(hands)
    assert hands.window.windowTitle() == "DevExplorer[*]"
    assert not hands.window.close()
    question = hands.dialog(SaveQuestion)
    assert question.words.text() == "1 object not saved to a file."
    assert question.focusWidget() is question.accept_button
    assert not hands.window.close()
    assert len(questions()) == 1, "once"
    QTest.keyClick(question, Qt.Key.Key_Escape)
    hands.until(lambda: not questions(), "Escape stays")
    assert hands.window.isVisible()

    assert not hands.window.close()
    hands.click(hands.dialog(SaveQuestion).accept_button)
    QTest.keyClick(hands.dialog(QFileDialog), Qt.Key.Key_Escape)
    hands.until(
        lambda: not [one for one in QApplication.topLevelWidgets() if isinstance(one, QDialog) and one.isVisible()]
    )
    hands.press(Qt.Key.Key_S, CTRL)
    name_it(hands, path)
    hands.until(lambda: not hands.window.isWindowModified(), "saved")
    assert hands.window.isVisible(), "to save is not to close, where choosing a name was given up"
    assert hands.window.windowTitle() == "DevExplorer: work.devexplorer[*]"

    first = path.read_bytes()
    graph = torch.ones(2, requires_grad=True) * 2
    hands.engines[-1].engine.workspace.add("y", graph)
    hands.press(Qt.Key.Key_2, CTRL)
    hands.on("mlp", "vgpu:1")
    assert hands.window.isWindowModified()
    assert not hands.window.close()
    question = hands.dialog(SaveQuestion)
    assert question.words.text() == "work.devexplorer does not have the latest changes."
    hands.click(question.accept_button)
    loss = hands.dialog(LossQuestion)
    assert path.read_bytes() != first
    assert loss.windowTitle() == "Close anyway?"
    assert loss.words.text() == "These would be lost:\n• the graph that computed y"
    QTest.keyClick(loss, Qt.Key.Key_Return)  # an Enter too many
    hands.until(lambda: files_of(hands.window.context).workspaces._question is None, "answered")
    assert hands.window.isVisible()
    assert not hands.window.close()
    hands.click(hands.dialog(LossQuestion).accept_button)
    hands.until(lambda: not hands.window.isVisible(), "saved and closed")


def test_a_window_that_is_being_saved_closes_itself_and_asks_only_if_that_failed(
    start: Start, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hands, path = start(), tmp_path / "work.devexplorer"
    let_go, outcomes = Event(), [OSError("no space left"), None]

    def held(*given: Any) -> int:
        assert let_go.wait(20)
        if (outcome := outcomes.pop(0)) is not None:
            raise outcome
        return write(*given)

    monkeypatch.setattr(workspace_commands, "write", held)
    work(hands)
    for fails in (True, False):
        let_go.clear()
        hands.press(Qt.Key.Key_S, CTRL)
        name_it(hands, path)
        hands.until(lambda: hands.state.running(SaveWorkspace) is not None, "saving")
        assert not hands.window.close()
        assert not questions()
        let_go.set()
        hands.until(lambda: hands.state.running(SaveWorkspace) is None, "saved, or not")
        if fails:
            assert hands.window.isVisible()
            assert not hands.window.close()
            QTest.keyClick(hands.dialog(SaveQuestion), Qt.Key.Key_Escape)
            hands.until(lambda: not questions(), "Escape stays")
    hands.until(lambda: not hands.window.isVisible(), "closed")
    assert path.exists()


def test_a_copy_is_offered_after_a_crash_and_is_unsaved_work_until_it_is_saved(start: Start, tmp_path: Path) -> None:
    hands, folder = start(), tmp_path / "autosave"
    hands.window.context.work.keep_copies(hands.session, folder)
    hands.app.background.join(10)
    autosave = files_of(hands.window.context).copy.autosave
    assert autosave is not None
    work(hands)
    hands.press(Qt.Key.Key_S, CTRL)
    name_it(hands, tmp_path / "work.devexplorer")
    hands.until(lambda: not hands.window.isWindowModified(), "saved")
    hands.press(Qt.Key.Key_2, CTRL)
    hands.on("mlp", "vgpu:1")
    answer, done = hands.state.answer, hands.state.done_count
    assert autosave.copy()
    hands.until(lambda: not autosave.copy(), "copied")
    [copy] = folder.iterdir()
    assert (hands.state.answer, hands.state.done_count) == (answer, done), "nothing of it is seen"
    assert hands.window.isWindowModified(), "a copy is no file of the user's"
    copy.rename(copy.with_name(f"{platform.node()}-{2**22 + 1}-1.devexplorer"))  # as a window that is gone has left it
    files_of(hands.window.context).workspaces._lose = True
    hands.end()

    again = start()
    again.window.context.work.keep_copies(again.session, folder)
    banner = again.window.banner
    again.until(banner.isVisible, "offered")
    assert banner.words.full_text.startswith(
        "The last session ended unexpectedly. A copy of its unsaved work was kept at"
    )
    assert [banner.action_button.text(), banner.close_button.text()] == ["Restore", "Discard"]
    again.click(banner.action_button)
    again.until(lambda: "mlp" in again.state.objects, "restored")
    again.on("mlp", "vgpu:1")
    assert not banner.isVisible()
    assert again.window.windowTitle() == "DevExplorer: work.devexplorer[*]"
    assert again.window.isWindowModified(), "that file does not have it"
    assert again.window.inspector.title.text() == "The unsaved work is back"
    assert not again.window.close()
    again.click(again.dialog(SaveQuestion).discard_button)
    assert not again.window.isVisible()
    again.app.stop()
    assert list(folder.iterdir()) == []


def test_a_copy_can_be_discarded(start: Start, tmp_path: Path) -> None:
    hands, folder = start(), tmp_path / "autosave"
    folder.mkdir()
    (folder / f"{platform.node()}-{2**22 + 1}-1.devexplorer").write_text("damaged")
    hands.window.context.work.keep_copies(hands.session, folder)
    hands.until(hands.window.banner.isVisible, "offered")
    hands.click(hands.window.banner.action_button)
    hands.until(lambda: hands.state.answer is not None and hands.state.answer.failed, "refused")
    assert len(list(folder.iterdir())) == 1, "what could not be opened stays"
    assert hands.window.actions_by_id["restore_copy"].isEnabled()
    copy = files_of(hands.window.context).copy
    assert copy.found is not None
    copy.offer(copy.found)
    hands.click(hands.window.banner.close_button)
    assert hands.app.background.join(10)
    assert list(folder.iterdir()) == []
    hands.window.refresh_actions()
    assert not hands.window.actions_by_id["restore_copy"].isEnabled()


TERMINATED = """
import json, os, signal, sys
from pathlib import Path
from PySide6.QtCore import QTimer
from PySide6.QtWidgets import QApplication
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import NewTensor
from devexplorer.gui.files.questions import SaveQuestion
from devexplorer.gui.shell.app import open_window
from devexplorer.gui.shell.main_window import MainWindow
qt = QApplication(sys.argv[:1])
seen, step = {"banner": "", "asked": False}, [0]
def copied():
    folder = Path(os.environ["XDG_STATE_HOME"], "devexplorer", "autosave")
    return any(f"-{os.getpid()}-" in path.name and path.stem[-1].isdigit() for path in folder.glob("*.devexplorer"))
def look():
    window = next(one for one in qt.topLevelWidgets() if isinstance(one, MainWindow))
    seen["asked"] |= any(isinstance(one, SaveQuestion) for one in qt.topLevelWidgets())
    if window.banner.isVisible() and window.banner.action_button.text() == "Restore":
        seen["banner"] = window.banner.words.full_text
    if step[0] == 0 and window.state.engine is not None:
        step[0] = 1
        window.controller.send(NewTensor(name="t", shape=(4,)))
    elif step[0] == 1 and window.state.part(FilesState).unsaved_work and (sys.argv[1] == "at once" or copied()):
        step[0] = 2
        os.kill(os.getpid(), signal.SIGTERM)
timer = QTimer()
timer.timeout.connect(look)
timer.start(20)
code = open_window()
print(json.dumps(seen), flush=True)
sys.exit(code)
"""


def test_a_signal_asks_nothing_and_leaves_a_copy(tmp_path: Path) -> None:
    variables = {**os.environ, "QT_QPA_PLATFORM": "offscreen", "XDG_CONFIG_HOME": str(tmp_path / "config"),
                 "XDG_STATE_HOME": str(tmp_path / "state")}  # fmt: skip
    seen = []
    for when in ("with a copy", "at once"):
        done = subprocess.run(
            [sys.executable, "-c", TERMINATED, when],
            env=variables,
            capture_output=True,
            text=True,
            timeout=90,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        assert "Traceback" not in done.stderr
        seen.append(json.loads(done.stdout.splitlines()[-1]))
    assert not any(item["asked"] for item in seen)
    assert not seen[0]["banner"]
    assert "A copy of its unsaved work was kept" in seen[1]["banner"]
    copies = list((tmp_path / "state" / "devexplorer" / "autosave").iterdir())
    assert len(copies) == 2, "that of the second, and that of the first, which was not decided about"
