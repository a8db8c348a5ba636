"""Dropped and chosen files open according to their type; Ctrl+O chooses, Ctrl+Q quits; a model that failed is not
offered again."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from threading import Event, Thread, Timer, current_thread, main_thread
from typing import IO, Any

import numpy as np
import pytest
from fakes import recordings
from fakes.look_records import ENGINE, VGPU
from fakes.quiet_window import QuietWindow
from PySide6.QtCore import QEvent, QMimeData, QPoint, QPointF, Qt, QUrl
from PySide6.QtGui import QDragEnterEvent, QDragMoveEvent, QDropEvent
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QDialog, QFileDialog, QWidget

from devexplorer.core.files.records import FileContents, FileListed, ListFile
from devexplorer.core.isolation.model_source import parse
from devexplorer.core.memory.records import OpenSnapshot
from devexplorer.core.records import EngineLost
from devexplorer.core.session.session import PollResult
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.files.tensor_files import LoadFileDialog
from devexplorer.gui.recording.actions import Replaying

NETS = """from torch import nn
class Block(nn.Module):
    def __init__(self, width): ...
class Net(nn.Module): ...
def wide():
    return Block(512)
"""
CONFIGURED = "class Net(nn.Module):\n    def __init__(self, cfg): ..."


@pytest.fixture
def quiet(qapp: QApplication, tmp_path: Path) -> Iterator[QuietWindow]:
    quiet = QuietWindow(qapp, tmp_path / "settings", VGPU)
    yield quiet
    quiet.close()


@pytest.fixture
def files(tmp_path: Path) -> Path:
    np.save(tmp_path / "a.npy", np.ones(3))
    np.save(tmp_path / "b.npy", np.ones(3))
    recordings.write(tmp_path / "run.devrec", 5)
    (tmp_path / "snapshot.pickle").write_bytes(b"\x80\x04}\x8c\x08segments]s.")
    (tmp_path / "nets.py").write_text("def make(): ...\n")
    (tmp_path / "notes.txt").write_text("hello")
    return tmp_path


def let_go(quiet: QuietWindow, *files: Path | str, on: QWidget | None = None) -> bool:
    """Drag files over the window, or a part of it, and let go; whether they were taken."""
    data = QMimeData()
    data.setUrls([QUrl.fromLocalFile(str(file)) if isinstance(file, Path) else QUrl(file) for file in files])
    both = Qt.DropAction.CopyAction | Qt.DropAction.MoveAction
    left, none = Qt.MouseButton.LeftButton, Qt.KeyboardModifier.NoModifier
    place = QPoint(2, 2)
    enters = QDragEnterEvent(place, both, data, left, none)
    enters.setAccepted(False)
    QApplication.sendEvent(on or quiet.window, enters)
    if not enters.isAccepted():
        return False
    QApplication.sendEvent(on or quiet.window, QDragMoveEvent(place, both, data, left, none))
    event = QDropEvent(QPointF(place), both, data, left, none)
    QApplication.sendEvent(on or quiet.window, event)
    assert event.dropAction() == Qt.DropAction.CopyAction, "the file stays where it is"
    quiet.settle()
    return event.isAccepted()


def drop(quiet: QuietWindow, *paths: Path) -> bool:
    """The same, and wait until it is known what they are."""
    taken = let_go(quiet, *paths)
    quiet.answered()
    return taken


def dialogs(quiet: QuietWindow) -> list[QDialog]:
    return [dialog for dialog in quiet.window.findChildren(QDialog) if dialog.isVisible()]


def test_the_only_class_of_a_file_is_chosen_though_it_needs_arguments_and_no_button_moves(
    quiet: QuietWindow, files: Path
) -> None:
    (files / "net.py").write_text(NETS.split("class Net")[0])
    quiet.window.actions_by_id["open_model"].trigger()
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    quiet.settle()
    place = dialog.accept_button.pos()
    dialog.show_file(files / "net.py")
    quiet.answered()
    assert dialog.factory.text() == "Block"
    assert dialog.message.text().startswith("Block needs width=… in Options.")
    for kind in range(dialog.kind.count()):
        dialog.kind.setCurrentIndex(kind)
        quiet.settle()
        assert dialog.accept_button.pos() == place


def test_the_models_in_a_file_are_listed_and_one_click_chooses(quiet: QuietWindow, files: Path) -> None:
    (files / "nets.py").write_text(NETS)
    assert drop(quiet, files / "nets.py")
    quiet.answered()
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    assert [tuple(cell.text for cell in row.cells) for row in dialog.table.rows] == [
        ("Block", "class", "width"), ("Net", "class", ""), ("wide", "function", ""),
    ]  # fmt: skip
    assert dialog.table.isVisible()
    assert dialog.message.text() == "Choose a class or function of the file."
    assert not dialog.accept_button.isEnabled()

    def choose(row: int) -> None:
        where = dialog.table.visualRect(dialog.table.rows_model.index(row, 0)).center()
        QTest.mouseClick(dialog.table.viewport(), Qt.MouseButton.LeftButton, pos=where)

    choose(0)
    assert dialog.factory.text() == "Block"
    assert dialog.message.text().startswith("Block needs width=… in Options.")
    QTest.keyClicks(dialog.options, "width=8")
    assert "Block() is called" in dialog.message.text()
    assert dialog.command().source == f"{files}/nets.py:Block?width=8"
    dialog.options.clear()
    choose(1)
    assert dialog.command().source == f"{files}/nets.py:Net"
    dialog.file.set_path(str(files / "gone.py"))
    assert not dialog.table.rows
    dialog.reject()


def test_a_configuration_beside_the_code_is_filled_in_until_something_is_typed(quiet: QuietWindow, files: Path) -> None:
    (files / "nets.py").write_text(NETS.replace("class Net(nn.Module): ...", CONFIGURED).partition("def wide")[0])
    (files / "config.yaml").write_text("width: 8")
    drop(quiet, files / "nets.py")
    quiet.answered()
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    assert (dialog.factory.text(), dialog.options.text()) == ("Net", "cfg=@config.yaml"), "all that Net needs is there"
    assert "Net() is called with config.yaml" in dialog.message.text()
    assert dialog.accept_button.isEnabled()
    assert dialog.command().source == f"{files}/nets.py:Net?cfg=@config.yaml"
    dialog.table.select_key("Block")
    assert dialog.options.text() == ""
    dialog.table.select_key("Net")
    assert dialog.options.text() == "cfg=@config.yaml"
    dialog.options.setText("cfg=@small.json")
    dialog.table.select_key("Block")
    assert dialog.options.text() == "cfg=@small.json"
    dialog.reject()


@pytest.mark.parametrize("name", ["nets.py", "nets.ipynb"])
def test_the_only_model_of_a_file_is_chosen_at_once(quiet: QuietWindow, files: Path, name: str) -> None:
    text = "from torch import nn\nclass Net(nn.Module): ...\n"
    notebook = {"cells": [{"cell_type": "code", "source": text}]}
    (files / name).write_text(text if name.endswith(".py") else json.dumps(notebook))
    drop(quiet, files / name)
    quiet.answered()
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    assert dialog.factory.text() == "Net"
    assert dialog.accept_button.isEnabled()
    assert dialog.command().source == f"{files / name}:Net"
    dialog.reject()


def test_a_relative_path_is_the_file_that_was_looked_at(
    quiet: QuietWindow, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (files / "package").mkdir()
    (files / "package" / "nets.py").write_text("from torch import nn\nclass Net(nn.Module): ...\n")
    drop(quiet, files / "nets.py")
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    monkeypatch.chdir(files)
    dialog.file.set_path("package/nets.py")
    quiet.answered()
    dialog.factory.setText("Net")
    command = dialog.command()
    file = files / "package" / "nets.py"
    assert parse(command.source).file(command.folder) == file
    assert str(file) in dialog.message.text()
    dialog.reject()


def test_a_dialog_that_was_closed_is_told_nothing(quiet: QuietWindow, files: Path) -> None:
    (files / "nets.py").write_text(NETS)
    drop(quiet, files / "nets.py")
    [dialog] = dialogs(quiet)
    dialog.reject()
    quiet.settle()
    QApplication.sendPostedEvents(None, QEvent.Type.DeferredDelete)
    quiet.answered()
    assert dialogs(quiet) == []


def test_several_files_open_one_after_the_other_each_by_what_it_is(quiet: QuietWindow, files: Path) -> None:
    assert drop(
        quiet, files / "a.npy", files / "snapshot.pickle", files / "b.npy", files / "notes.txt", files / "nets.py"
    )
    assert [command for command in quiet.sent if isinstance(command, OpenSnapshot)] == [
        OpenSnapshot(path=str(files / "snapshot.pickle"))
    ]
    assert quiet.window.banner.isVisible()
    assert quiet.window.banner.words.full_text.startswith(
        "notes.txt cannot be opened: DevExplorer opens a workspace (.devexplorer), a model (.py, .ipynb)"
    )
    for name in ("a.npy", "b.npy"):
        [dialog] = dialogs(quiet)
        assert isinstance(dialog, LoadFileDialog)
        assert dialog.file.path == files / name
        assert ListFile(path=str(files / name)) in quiet.sent, "it is looked into at once"
        QTest.keyClick(dialog, Qt.Key.Key_Escape)
        quiet.settle()
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    QTest.keyClick(dialog, Qt.Key.Key_Escape)
    quiet.settle()
    assert dialogs(quiet) == []


def test_after_a_refusal_nothing_of_the_file_before_is_shown(quiet: QuietWindow, files: Path) -> None:
    (files / "lfs.pt").write_text("version https://git-lfs.github.com/spec/v1\noid sha256:00\n")
    drop(quiet, files / "lfs.pt")
    assert ListFile(path=str(files / "lfs.pt")) not in quiet.sent, "the inspector tells of no file"
    contents = FileContents(path="a.npy", form="npy", entries=(), bytes=9, count=1)
    quiet.tell(FileListed(request=1, contents=contents))
    drop(quiet, files / "lfs.pt")
    assert "git lfs pull" in quiet.window.banner.words.full_text
    assert ListFile(path=str(files / "lfs.pt")) in quiet.sent, "its refusal takes the place of what is shown"


def test_no_part_of_the_window_keeps_a_dropped_file_to_itself(
    quiet: QuietWindow, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for spec in quiet.window.bottom_dock.specs:
        quiet.window.bottom_dock.show_page(spec.name)
        quiet.settle()
    opened: list[list[Path]] = []
    monkeypatch.setattr(files_of(quiet.window.context).opening, "open", opened.append)
    parts = [widget for widget in quiet.window.findChildren(QWidget) if widget.window() is quiet.window]
    takers = [widget for widget in parts if widget.acceptDrops()]
    assert len(takers) > 20
    for number, widget in enumerate(takers, start=1):
        let_go(quiet, files / "a.npy", on=widget)
        assert opened == [[files / "a.npy"]] * number, f"{widget} of {widget.parent()}"
    assert not let_go(quiet, "https://example.org/w.pt"), "no file of this machine"


def test_a_file_that_is_dropped_on_a_field_for_files_is_its_path(quiet: QuietWindow, files: Path) -> None:
    assert drop(quiet, files / "nets.py")
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, OpenModelDialog)
    assert dialog.file.path == files / "nets.py"
    assert dialog.message.text() == "Enter the class or function that creates the model."
    assert dialog.message.property("words") == "dim", "what is not typed yet is no mistake"
    assert not dialog.file.edit.acceptDrops()
    let_go(quiet, files / "other.py", on=dialog.file)
    assert dialog.file.path == files / "other.py"
    dialog.reject()


def test_a_dropped_recording_is_shown(quiet: QuietWindow, files: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    shown: list[Path] = []
    monkeypatch.setattr(Replaying, "open", lambda _, file: shown.append(file))
    drop(quiet, files / "run.devrec")
    assert shown == [files / "run.devrec"]
    assert not quiet.window.banner.isVisible()
    again = files / "again.devrec"
    again.write_bytes((files / "run.devrec").read_bytes())
    drop(quiet, files / "run.devrec", again)
    assert shown[1:] == [files / "run.devrec"]
    assert "only one recording" in quiet.window.banner.words.full_text


class Silence:
    """A session in which nothing happens."""

    def drain(self) -> PollResult:
        return PollResult([], None)


def test_a_slow_disk_keeps_its_own_thread_waiting_and_not_the_window(
    quiet: QuietWindow, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    heartbeat = quiet.app._heart(Silence())
    heartbeat.stop()
    reads, readers, read = Event(), list[Thread](), Path.open

    def slow(path: Path, *arguments: Any, **others: Any) -> IO[Any]:
        if path.parent == files:
            readers.append(current_thread())
            assert reads.wait(60)
        return read(path, *arguments, **others)

    rescue = Timer(20.0, reads.set)  # a window that waits fails this test, and does not stop it
    rescue.start()
    monkeypatch.setattr(Path, "open", slow)
    assert let_go(quiet, files / "notes.txt")
    assert not reads.is_set(), "the window goes on while the disk is slow"
    heartbeat.tick()
    assert not quiet.window.banner.isVisible()
    reads.set()
    rescue.cancel()
    assert quiet.app.background.join(10.0)
    assert not quiet.window.banner.isVisible(), "what came of it is for the next beat"
    heartbeat.tick()
    assert quiet.window.banner.words.full_text.startswith("notes.txt cannot be opened")
    assert readers
    assert main_thread() not in readers


def test_what_the_window_was_started_with_waits_for_the_engine(quiet: QuietWindow, files: Path) -> None:
    heartbeat = quiet.app._heart(Silence())
    heartbeat.stop()
    quiet.tell(EngineLost(reason="It was ended by SIGKILL.", will_restart=True, time_unix_s=quiet.now))
    quiet.app.files = (files / "a.npy", files / "notes.txt")
    heartbeat.tick()
    quiet.answered()
    assert dialogs(quiet) == []
    quiet.tell(ENGINE)
    for _ in range(2):
        heartbeat.tick()
        quiet.answered()
    [dialog] = dialogs(quiet)
    assert isinstance(dialog, LoadFileDialog)
    assert quiet.window.banner.words.full_text.startswith("notes.txt cannot be opened")
    dialog.reject()
    quiet.settle()
    assert dialogs(quiet) == [], "each is opened once"


def test_where_the_engine_cannot_be_started_it_says_so_and_shows_a_recording(
    quiet: QuietWindow, files: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shown: list[Path] = []
    monkeypatch.setattr(Replaying, "open", lambda _, file: shown.append(file))
    heartbeat = quiet.app._heart(Silence())
    heartbeat.stop()
    quiet.tell(EngineLost(reason="It was ended by SIGKILL.", will_restart=False, time_unix_s=quiet.now))
    quiet.app.files = (files / "a.npy", files / "run.devrec")
    heartbeat.tick()
    quiet.answered()
    assert dialogs(quiet) == []
    assert shown == [files / "run.devrec"]
    assert quiet.window.banner.words.full_text == "The engine is not ready yet."


def test_ctrl_o_chooses_any_number_of_files_of_any_kind(quiet: QuietWindow, files: Path) -> None:
    press(quiet, Qt.Key.Key_O)
    [chooser] = dialogs(quiet)
    assert isinstance(chooser, QFileDialog)
    assert chooser.fileMode() == QFileDialog.FileMode.ExistingFiles
    for suffix in ("*.py", "*.safetensors", "*.npy", "*.devrec", "*.pickle"):
        assert suffix in chooser.nameFilters()[0]
    chooser.filesSelected.emit([str(files / "a.npy"), str(files / "nets.py")])
    chooser.close()
    quiet.answered()
    assert [type(dialog) for dialog in dialogs(quiet)] == [LoadFileDialog]
    dialogs(quiet)[0].reject()
    quiet.settle()
    dialogs(quiet)[0].reject()


def test_ctrl_q_quits(quiet: QuietWindow, monkeypatch: pytest.MonkeyPatch) -> None:
    quits: list[bool] = []
    monkeypatch.setattr(QApplication, "quit", lambda *_: quits.append(True))
    press(quiet, Qt.Key.Key_Q)
    assert quits
    assert not quiet.window.isVisible()


def press(quiet: QuietWindow, key: Qt.Key) -> None:
    quiet.window.activateWindow()
    quiet.settle()
    quiet.window.objects.tree.setFocus()
    QTest.keyClick(quiet.window.objects.tree, key, Qt.KeyboardModifier.ControlModifier)
    quiet.settle()


def test_what_earlier_versions_remembered_is_still_offered(quiet: QuietWindow) -> None:
    quiet.window.context.remember(recent_models=(("net.py:Net", "/somewhere"), ("torchvision:resnet50", "")))
    recent = files_of(quiet.window.context).models.recent
    assert [one.source for one in recent] == ["net.py:Net", "torchvision:resnet50"]
