"""Files of this machine and of another one, opened in a window that shows either."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from fakes import recordings
from fakes.desk import Desk
from fakes.disk import files_in
from fakes.look_records import mlp
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QFileDialog

from devexplorer.core.files.kinds import WORKSPACE_START
from devexplorer.core.files.records import (
    FarFile,
    FileContents,
    FileEntry,
    FileListed,
    ListFile,
    Load,
    OpenModel,
    OpenWorkspace,
    SaveWorkspace,
    WorkspaceFile,
)
from devexplorer.core.files.script import script, with_commands
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.memory import snapshot_file
from devexplorer.core.memory.records import OpenSnapshot
from devexplorer.core.recording.feature import MAGIC
from devexplorer.core.records import BuildModel, JobEnded, JobStarted, ObjectChanged, SentFrom, Steps, UndoState
from devexplorer.core.session.journal import Surroundings
from devexplorer.core.session.settings import SettingsFile
from devexplorer.gui.files.actions import files_of
from devexplorer.gui.files.open_model import OpenModelDialog
from devexplorer.gui.files.questions import SaveQuestion
from devexplorer.gui.files.recent import choices, recent_files
from devexplorer.gui.files.tensor_files import LoadFileDialog
from devexplorer.gui.machines.copies import CopyDialog
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.machines.side import FarFileDialog
from devexplorer.gui.recording.actions import replaying_of

LEFT = Qt.MouseButton.LeftButton


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
    files_of(desk.window.context).opening.open([here_file])
    desk.dialog(LoadFileDialog).reject()
    desk.show_far()
    desk.choose_there(far_file)
    desk.dialog(LoadFileDialog).reject()
    room_of(desk.context).show(desk.app.shown.here)
    desk.until(lambda: desk.context.far is None)

    first, second = desk.recent()
    assert first.startswith("weights.npy\tforge: ")
    assert second.startswith("mine.npy\t")
    assert "forge" not in second
    desk.choose_recent(0)
    dialog = desk.dialog(LoadFileDialog)
    assert desk.context.machine is desk.far, "its machine is shown"
    assert (dialog.file.path, dialog.file.machine) == (far_file, "forge")
    dialog.reject()
    assert choices(desk.window.context)[0][:2] == ("Open recent weights.npy", f"forge: {desk.there}")

    room_of(desk.context).leave(desk.far)
    desk.choose_recent(0)
    desk.until(lambda: desk.said)
    assert desk.said == (
        "weights.npy is on forge, which is not connected: choose it in the menu Machine, then open the file."
    )
    assert desk.app.settings_file.save(desk.window.settings()) is None
    saved = SettingsFile(tmp_path).load().of_features
    assert saved["recent_files"] == (
        FarFile("forge", str(far_file)),
        str(here_file),
    )


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
    return files_in(tmp_path / "cache")


def test_a_recording_of_another_machine_is_brought_here_and_replayed(desk: Desk, tmp_path: Path) -> None:
    recordings.write(desk.there / "run.devrec", 5)
    desk.show_far()
    desk.choose_there(desk.there / "run.devrec")
    replaying = replaying_of(desk.window.context)
    desk.until(lambda: replaying.replay is not None and replaying.replay.view.opened)
    (copy,) = copies(tmp_path)
    assert copy.read_bytes() == (desk.there / "run.devrec").read_bytes()
    bar = replaying_of(desk.window.context).bar
    assert bar.title.full_text.startswith("run.devrec on forge, 2023-11-14")
    desk.until(lambda: desk.state.answer is not None)  # its facts come with one of the next beats
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
    assert replaying_of(desk.window.context).replay is None


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
    room_of(desk.context).show(desk.app.shown.here)
    desk.until(lambda: desk.said)
    assert desk.said == "run.devrec was not opened: forge is no longer shown."
    desk.until(lambda: not copies(tmp_path))
    assert replaying_of(desk.window.context).replay is None


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
    replaying = replaying_of(desk.window.context)
    desk.until(lambda: replaying.replay is not None and replaying.replay.view.opened)
    assert "mine.devrec" not in replaying_of(desk.window.context).bar.title.full_text, "as with this machine shown"
    assert not copies(tmp_path)
    desk.click(replaying_of(desk.window.context).bar.back)
    desk.until(lambda: desk.context.machine is desk.far and desk.state.recording is None)
    assert (tmp_path / "mine.devrec").exists()


def test_a_recording_that_ended_on_another_machine_is_offered(desk: Desk) -> None:
    recordings.write(desk.there / "run.devrec", 5)
    desk.show_far()
    replaying_of(desk.window.context).offer(desk.there / "run.devrec")
    assert desk.said == "Recorded to run.devrec on forge."
    desk.click(desk.window.banner.action_button)
    replaying = replaying_of(desk.window.context)
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


# --- sent there


def copies_there(desk: Desk) -> list[Path]:
    """What lies in the cache of copies of the other machine."""
    return files_in(desk.folder / "copies")


def test_tensors_of_this_machine_are_sent_and_loaded_there(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "mine.npy"
    np.save(file, np.ones(3))
    desk.show_far()
    desk.context.files_chosen.emit([file])
    dialog = desk.dialog(LoadFileDialog)
    (copy,) = copies_there(desk)
    assert (copy.name, copy.read_bytes()) == (file.name, file.read_bytes())
    assert dialog.file.edit.text() == f"{file} on this machine"
    origin = SentFrom(machine=platform.node(), path=str(file))
    desk.until(lambda: desk.host.engine.sent)
    (question,) = desk.host.engine.sent
    assert isinstance(question, ListFile)
    assert (question.path, question.sent_from) == (str(copy), origin)
    contents = FileContents(
        path=str(copy), form="npy", entries=(FileEntry("mine", (3,), "float64", 24),), bytes=24, count=1
    )
    desk.host.say(FileListed(request=question.request, contents=contents))
    desk.until(dialog.accept_button.isEnabled)
    desk.click(dialog.accept_button)
    desk.until(lambda: len(desk.host.engine.sent) == 2)
    load = desk.host.engine.sent[1]
    assert isinstance(load, Load)
    assert (load.path, load.sent_from, load.device) == (str(copy), origin, "cpu")
    assert copies_there(desk) == [copy], "after a crash of the engine it is loaded again"
    desk.host.say(
        JobStarted(request=load.request, title="", command=load, time_unix_s=1.0),
        JobEnded(request=load.request, ok=True, time_unix_s=1.0),
    )
    desk.until(lambda: desk.state.done)
    assert [(file.path, file.machine) for file in recent_files(desk.context)] == [(tmp_path / "mine.npy", "")]

    desk.context.files_chosen.emit([file])
    dialog = desk.dialog(LoadFileDialog)
    assert len(copies_there(desk)) == 2
    desk.click(dialog.cancel_button)
    desk.until(lambda: copies_there(desk) == [copy])


def test_a_workspace_of_this_machine_takes_the_place_of_that_of_the_other_after_the_question(
    desk: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "work.devexplorer"
    header = WORKSPACE_START + b'00000000"}}'  # as much as the window looks at
    file.write_bytes(len(header).to_bytes(8, "little") + header)
    desk.show_far()
    desk.host.say(
        ObjectChanged(snapshot=mlp()),
        UndoState(title="x", kept_bytes=0, contents=3),
        JobEnded(ok=True, time_unix_s=1.0),
    )
    desk.until(lambda: desk.state.part(FilesState).unsaved_work)
    for answer in ("cancel", "discard"):
        desk.context.files_chosen.emit([file])
        question = desk.dialog(SaveQuestion)
        (copy,) = copies_there(desk)
        assert question.windowTitle() == "Save before opening work.devexplorer on forge?"
        desk.click(question.cancel_button if answer == "cancel" else question.discard_button)
        if answer == "cancel":
            desk.until(lambda: not copies_there(desk))
    desk.until(lambda: desk.host.engine.sent)
    (command,) = desk.host.engine.sent
    assert isinstance(command, OpenWorkspace)
    assert (command.path, command.replace) == (str(copy), True)
    assert command.sent_from == SentFrom(machine=platform.node(), path=str(file))
    desk.host.say(WorkspaceFile(path="", sent_from=command.sent_from, again=command, opened=True))
    desk.until(lambda: desk.window.windowTitle() == "DevExplorer on forge: work.devexplorer[*]")
    desk.window.actions_by_id["save_workspace"].trigger()
    desk.until(lambda: len(desk.host.engine.sent) == 2)
    saving = desk.host.engine.sent[1]
    assert isinstance(saving, SaveWorkspace)
    assert saving.sent_to == command.sent_from, "it is saved back"


def test_a_snapshot_of_this_machine_is_sent(desk: Desk, tmp_path: Path) -> None:
    file = tmp_path / "snap.pickle"
    snapshot_file.save({"segments": [], "device_traces": []}, str(file))
    desk.show_far()
    files_of(desk.window.context).opening.open([file])
    desk.until(lambda: desk.host.engine.sent)
    (command,) = desk.host.engine.sent
    assert isinstance(command, OpenSnapshot)
    (copy,) = copies_there(desk)
    assert (command.path, command.sent_from) == (str(copy), SentFrom(machine=platform.node(), path=str(file)))


def test_a_model_is_put_where_the_user_says_and_its_code_runs_once_that_was_said_with_the_machine(
    desk: Desk, tmp_path: Path
) -> None:
    file = tmp_path / "nets.py"
    file.write_text("from torch import nn\nclass Net(nn.Module): ...\n")
    (desk.there / "nets.py").write_text("what was there")
    desk.show_far()
    desk.context.files_chosen.emit([file])
    place = desk.dialog(FarFileDialog)
    assert place.windowTitle() == "Put nets.py on forge"
    place.path.setText(str(desk.there))
    QTest.keyClick(place.path, Qt.Key.Key_Return)
    desk.until(lambda: place.message.text() == "nets.py exists; tick the box to replace it.")
    QTest.mouseClick(place.overwrite, LEFT)
    desk.click(place.accept_button)
    dialog = desk.dialog(OpenModelDialog)
    assert (desk.there / "nets.py").read_bytes() == file.read_bytes()
    desk.until(lambda: dialog.factory.text() == "Net")
    assert dialog.file.path == desk.there / "nets.py"
    desk.until(lambda: dialog.message.text().endswith("The code can do whatever you can do on forge."))
    assert not desk.host.engine.sent
    desk.click(dialog.accept_button)
    desk.until(lambda: desk.host.engine.sent)
    (command,) = desk.host.engine.sent
    assert isinstance(command, OpenModel)
    assert (command.source, command.folder) == (f"{desk.there}/nets.py:Net", str(desk.there))
    assert not copies_there(desk)


def test_a_model_that_imports_what_is_beside_it_is_one_line(desk: Desk, tmp_path: Path) -> None:
    (tmp_path / "layers.py").write_text("")
    (tmp_path / "nets.py").write_text("from layers import Block\nclass Net(Block): ...\n")
    desk.show_far()
    desk.context.files_chosen.emit([tmp_path / "nets.py"])
    desk.until(lambda: desk.said)
    assert desk.said == "nets.py imports layers beside it: put their folder on forge, then open nets.py there."


def test_files_are_sent_one_after_the_other_and_one_that_is_left_leaves_nothing(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.gui.machines.copies.LATE_MS", 0)
    np.save(tmp_path / "long.npy", np.zeros(5 << 18))
    np.save(tmp_path / "short.npy", np.ones(3))
    desk.show_far()
    desk.context.files_chosen.emit([tmp_path / "long.npy", tmp_path / "short.npy"])
    dialog = desk.dialog(CopyDialog)
    desk.until(lambda: dialog.bar.maximum() > 0)
    assert dialog.windowTitle() == "Open long.npy on forge"
    assert dialog.words.full_text.startswith("long.npy: sending to forge, ")
    desk.click(dialog.cancel_button)
    load = desk.dialog(LoadFileDialog)
    assert load.file.edit.text().endswith("short.npy on this machine")
    assert desk.said == "long.npy was not opened."
    desk.until(lambda: [path.name for path in copies_there(desk)] == ["short.npy"])
    load.reject()


def test_a_link_that_breaks_while_a_file_is_sent_is_one_line(
    desk: Desk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("devexplorer.gui.machines.copies.LATE_MS", 0)
    np.save(tmp_path / "long.npy", np.zeros(5 << 18))
    desk.show_far()
    desk.context.files_chosen.emit([tmp_path / "long.npy"])
    dialog = desk.dialog(CopyDialog)
    desk.until(lambda: dialog.bar.maximum() > 0)
    desk.route.refuse = CannotReach("no route to host", final=True)
    desk.route.link.cut()
    desk.until(lambda: desk.said.startswith("long.npy"))
    assert desk.said.startswith("long.npy could not be copied to forge. There is no connection to forge: ")
