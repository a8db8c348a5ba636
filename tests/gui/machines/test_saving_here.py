"""What another machine saves for this one: written there, brought here, and known to be that machine's."""

from __future__ import annotations

import platform
from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.desk import Desk
from fakes.disk import files_in
from fakes.look_records import mlp
from fakes.stored_runs import matmul, stored
from PySide6.QtCore import Qt
from PySide6.QtTest import QTest
from PySide6.QtWidgets import QApplication, QComboBox, QPushButton

from devexplorer.core.files.kinds import WORKSPACE_START
from devexplorer.core.files.records import FarFile, OpenWorkspace, Save, SaveWorkspace, WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.window.link import CannotReach
from devexplorer.core.memory.records import SaveSnapshot
from devexplorer.core.records import (
    Answer,
    Cancel,
    Command,
    EngineLost,
    JobEnded,
    JobStarted,
    ObjectChanged,
    SentFrom,
    UndoState,
)
from devexplorer.gui.files.questions import SaveQuestion
from devexplorer.gui.files.recent import choices, remember_file
from devexplorer.gui.files.tensor_files import SaveFileDialog
from devexplorer.gui.forms.save_dialog import SaveDialog
from devexplorer.gui.history.page import HistoryPanel
from devexplorer.gui.machines.copies import CopyDialog
from devexplorer.gui.machines.room import room_of
from devexplorer.gui.machines.side import FarFileDialog
from devexplorer.gui.memory.snapshot_files import save_snapshot

MODIFIED = "DevExplorer on forge: work.devexplorer[*]"
HEADER = WORKSPACE_START + b'00000000"}}'
WORKSPACE = len(HEADER).to_bytes(8, "little") + HEADER
"""As much of one as the window looks at."""
LONG = bytes(range(256)) * 20_000
"""Twenty pieces."""


class SavingDesk(Desk):
    """forge has one object; its engine writes what the test says."""

    contents = 3

    def begin(self) -> None:
        """Show forge, with work in no file."""
        self.show_far()
        self.change()

    def change(self) -> None:
        """Something is done there."""
        self.contents += 1
        self.host.say(
            ObjectChanged(snapshot=mlp()),
            UndoState(title="x", kept_bytes=0, contents=self.contents),
            JobEnded(ok=True, time_unix_s=1.0),
        )
        self.until(lambda: self.state.part(FilesState).unsaved_work)

    def act(self, name: str) -> None:
        self.window.actions_by_id[name].trigger()

    def choose_machine(self, choice: QComboBox, name: str) -> None:
        """By the keyboard."""
        choice.setFocus()
        QTest.keyClick(choice, Qt.Key.Key_Down if choice.findText(name) > choice.currentIndex() else Qt.Key.Key_Up)
        assert choice.currentText() == name

    def choose_here(self, name: str) -> Path:
        """In the dialog that asks where to: on this machine, under this name."""
        self.choose_machine(self.dialog(FarFileDialog).machine, "this machine")
        chooser = self.dialog(SaveDialog)
        chooser.setDirectory(str(self.folder))
        chooser.name_field.setText(name)
        self.click(next(one for one in chooser.findChildren(QPushButton) if one.text().replace("&", "") == "Save"))
        return self.folder / name

    def command(self) -> Command:
        """The next one that forge's engine gets."""
        self.until(lambda: self.host.engine.sent)
        return self.host.engine.sent.pop(0)

    def ends(self, command: Command, *, words: str = "") -> None:
        """The command has ended; `words`: because of what it failed."""
        request = command.request
        self.host.say(
            JobStarted(request=request, title="saving", time_unix_s=1.0, command=command),
            Answer(request=request, title="Saving", words=words, failed=bool(words), time_unix_s=1.0),
            JobEnded(request=request, ok=not words, time_unix_s=1.0),
        )

    def write(self, data: bytes) -> SaveWorkspace:
        """forge's engine writes the workspace that it is asked to."""
        command = self.command()
        assert isinstance(command, SaveWorkspace)
        Path(command.path).write_bytes(data)
        again = OpenWorkspace(path=command.path, replace=True, sent_from=command.sent_to)
        self.host.say(
            JobStarted(request=command.request, title="saving", time_unix_s=1.0, command=command),
            WorkspaceFile(
                request=command.request, path="", sent_from=command.sent_to, again=again, on_its_way=True,
                contents=self.contents,
            ),
            UndoState(request=command.request, title="x", kept_bytes=0, contents=self.contents),
        )  # fmt: skip
        self.host.say(JobEnded(request=command.request, ok=True, time_unix_s=1.0))
        return command

    def save_here(self) -> Path:
        """By the keyboard's Save, for the first time."""
        self.act("save_workspace")
        place = self.choose_here("work.devexplorer")
        self.write(WORKSPACE)
        self.until(lambda: not self.state.part(FilesState).unsaved_work)
        return place

    def copies_there(self) -> list[Path]:
        return files_in(self.folder / "copies")

    def left_over(self) -> list[Path]:
        """Of files that were not completed."""
        return list(self.folder.glob(".*.part"))


@pytest.fixture
def desk(qapp: QApplication, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[SavingDesk]:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    made = SavingDesk(qapp, tmp_path)
    yield made
    made.end()


def test_a_workspace_is_saved_here_and_again_to_the_same_place(desk: SavingDesk) -> None:
    desk.begin()
    desk.act("save_workspace")
    dialog = desk.dialog(FarFileDialog)
    assert dialog.windowTitle() == "Save the workspace on forge"
    assert [dialog.machine.itemText(at) for at in range(2)] == ["forge", "this machine"]
    place = desk.choose_here("work.devexplorer")
    origin = SentFrom(machine=platform.node(), path=str(place))
    first = desk.write(WORKSPACE)
    assert (first.sent_to, first.overwrite) == (origin, True)
    assert Path(first.path).name == "work.devexplorer"
    assert Path(first.path).parent.parent.parent.parent == desk.folder / "copies", (
        "it is no file of that machine's user"
    )
    desk.until(lambda: not desk.state.part(FilesState).unsaved_work)
    assert place.read_bytes() == WORKSPACE
    assert desk.said == f"work.devexplorer was saved on this machine ({len(WORKSPACE)} B, verified)."
    assert (desk.window.windowTitle(), desk.window.isWindowModified()) == (MODIFIED, False)
    assert desk.copies_there() == [Path(first.path)], "with it the workspace is made again after a crash of the engine"
    assert desk.context.settings.of_features["recent_files"] == (FarFile("forge", str(place), here=True),)

    desk.change()
    assert desk.window.isWindowModified()
    desk.act("save_workspace")
    second = desk.write(WORKSPACE + b"more")
    assert second.sent_to == origin
    desk.until(lambda: not desk.state.part(FilesState).unsaved_work)
    assert place.read_bytes() == WORKSPACE + b"more"
    desk.until(lambda: desk.copies_there() == [Path(second.path)])
    assert not desk.left_over()


def test_what_is_changed_while_the_file_is_on_its_way_is_not_saved(desk: SavingDesk) -> None:
    desk.begin()
    desk.act("save_workspace")
    desk.choose_here("work.devexplorer")
    desk.write(LONG)
    desk.contents += 1
    desk.host.say(UndoState(title="y", kept_bytes=0, contents=desk.contents))
    desk.until(lambda: desk.state.part(FilesState).workspace_file)
    assert desk.state.part(FilesState).unsaved_work
    assert desk.window.isWindowModified()
    desk.host.say(UndoState(title="x", kept_bytes=0, contents=desk.contents - 1))
    desk.until(lambda: not desk.state.part(FilesState).unsaved_work)


def test_a_window_that_comes_later_knows_whose_the_workspace_is(desk: SavingDesk) -> None:
    desk.begin()
    place = desk.save_here()
    room_of(desk.context).leave(desk.far)
    desk.far = desk.add()
    desk.show_far()
    desk.until(lambda: desk.window.windowTitle() == MODIFIED)
    assert not desk.state.part(FilesState).unsaved_work
    desk.change()
    desk.act("save_workspace")
    command = desk.command()
    assert isinstance(command, SaveWorkspace)
    assert command.sent_to == SentFrom(machine=platform.node(), path=str(place))
    desk.ends(command, words="Enough.")
    desk.until(lambda: desk.said == "work.devexplorer could not be saved on this machine. Enough.")


@pytest.mark.parametrize("path", ["/home/ada/.bashrc", "known"])
def test_a_machine_cannot_name_a_file_here_that_the_user_has_not_chosen_for_it(
    desk: SavingDesk, tmp_path: Path, path: str
) -> None:
    if path == "known":  # a workspace of this machine
        path = str(tmp_path / "mine.devexplorer")
        remember_file(desk.context, Path(path), here=True)
    desk.begin()
    origin = SentFrom(machine=platform.node(), path=path)
    desk.host.say(WorkspaceFile(path="", sent_from=origin, again=OpenWorkspace(path="x"), request=9))
    desk.until(lambda: desk.state.part(FilesState).workspace_file)
    desk.act("save_workspace")
    dialog = desk.dialog(FarFileDialog)
    assert dialog.name.text() == Path(path).name, "where to is asked for"
    dialog.reject()
    assert not desk.host.engine.sent


def test_a_workspace_that_was_opened_from_here_is_saved_back(desk: SavingDesk, tmp_path: Path) -> None:
    file = tmp_path / "work.devexplorer"
    file.write_bytes(WORKSPACE)
    desk.show_far()
    desk.context.files_chosen.emit([file])
    opening = desk.command()
    assert isinstance(opening, OpenWorkspace)
    desk.host.say(WorkspaceFile(path="", sent_from=opening.sent_from, again=opening, opened=True, request=2))
    desk.until(lambda: desk.window.windowTitle() == MODIFIED)
    desk.change()
    desk.act("save_workspace")
    desk.write(LONG)
    desk.until(lambda: not desk.state.part(FilesState).unsaved_work)
    assert file.read_bytes() == LONG
    assert len(desk.copies_there()) == 2, "an Undo of the opening, and a Redo, find what was opened"


def test_recent_files_say_whose_workspace_it_is_and_open_it_there(desk: SavingDesk) -> None:
    desk.begin()
    place = desk.save_here()
    room_of(desk.context).show(desk.app.shown.here)
    desk.until(lambda: desk.context.far is None)
    (line,) = desk.recent()
    assert line.startswith("work.devexplorer\t")
    assert line.endswith(" workspace of forge")
    assert choices(desk.window.context)[0][1] == f"{place.parent}, workspace of forge"
    desk.choose_recent(0)
    assert desk.context.machine is desk.far, "its machine is shown"
    opening = desk.command()
    assert isinstance(opening, OpenWorkspace)
    assert opening.sent_from == SentFrom(machine=platform.node(), path=str(place))
    assert len(desk.recent()) == 1
    room_of(desk.context).leave(desk.far)
    desk.choose_recent(0)
    desk.until(lambda: desk.said.startswith("work.devexplorer holds"))
    assert desk.said == (
        "work.devexplorer holds the workspace of forge, which is not connected: choose it in the menu Machine, then"
        " open the file."
    )


def test_save_in_the_question_saves_here_and_goes_on(desk: SavingDesk) -> None:
    desk.begin()
    desk.save_here()
    desk.change()
    desk.act("new_workspace")
    question = desk.dialog(SaveQuestion)
    assert question.words.text() == "work.devexplorer does not have the latest changes."
    desk.click(question.accept_button)
    desk.write(LONG)
    desk.until(lambda: desk.host.engine.sent)
    assert type(desk.command()).__name__ == "NewWorkspace"
    assert not desk.state.part(FilesState).unsaved_work


# --- what goes wrong


def test_cancel_leaves_the_file_that_was_there(desk: SavingDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.gui.machines.copies.LATE_MS", 0)
    desk.begin()
    place = desk.save_here()
    for data in (None, LONG):
        desk.change()
        desk.act("save_workspace")
        if data is not None:
            desk.write(data)
        dialog = desk.dialog(CopyDialog)
        assert dialog.windowTitle() == "Save work.devexplorer on this machine"
        if data is None:
            command = desk.command()
            assert dialog.words.full_text == "work.devexplorer: saving on forge"
        else:
            desk.until(lambda: dialog.bar.maximum() > 0)  # noqa: B023
            assert dialog.words.full_text.startswith("work.devexplorer: sending to this machine, ")
        desk.click(dialog.cancel_button)
        desk.until(lambda: desk.said == "work.devexplorer was not saved.")
        if data is None:
            cancelling = desk.command()
            assert isinstance(cancelling, Cancel)
            assert cancelling.job == command.request
            desk.ends(command, words="Cancelled.")
        desk.until(lambda: not desk.left_over())
        assert place.read_bytes() == WORKSPACE
        assert desk.state.part(FilesState).unsaved_work


def test_a_connection_that_breaks_for_a_while_costs_nothing(desk: SavingDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.gui.machines.copies.LATE_MS", 0)
    desk.begin()
    desk.act("save_workspace")
    place = desk.choose_here("work.devexplorer")
    desk.write(LONG)
    dialog = desk.dialog(CopyDialog)
    desk.until(lambda: dialog.bar.maximum() > 0)
    desk.route.refuse = CannotReach("no route to host")
    desk.route.link.cut()
    desk.until(lambda: dialog.words.full_text == "work.devexplorer: waiting for the connection to forge")
    assert not place.exists()
    desk.route.refuse = None
    desk.far.session.reconnect()
    desk.until(lambda: not desk.state.part(FilesState).unsaved_work)
    assert place.read_bytes() == LONG


def test_a_connection_that_is_lost_is_one_line_and_nothing_half_written(desk: SavingDesk) -> None:
    desk.begin()
    place = desk.save_here()
    desk.change()
    desk.act("save_workspace")
    desk.write(LONG)
    desk.until(desk.left_over)
    desk.route.refuse = CannotReach("no route to host", final=True)
    desk.route.link.cut()
    desk.until(lambda: desk.said.startswith("work.devexplorer could"))
    assert desk.said == (
        "work.devexplorer could not be saved on this machine. There is no connection to forge: no route to host."
    )
    desk.until(lambda: not desk.left_over())
    assert place.read_bytes() == WORKSPACE
    assert desk.state.part(FilesState).unsaved_work


def test_what_cannot_be_written_there_or_here_is_one_line(desk: SavingDesk, tmp_path: Path) -> None:
    desk.begin()
    desk.act("save_workspace")
    desk.choose_here("work.devexplorer")
    desk.ends(desk.command(), words="'work.devexplorer' needs 9 GiB, and 1 GiB is free on that disk.")
    desk.until(lambda: desk.said.startswith("work.devexplorer could"))
    assert desk.said == (
        "work.devexplorer could not be saved on this machine. 'work.devexplorer' needs 9 GiB, and 1 GiB is free on that"
        " disk."
    )
    desk.window.banner.clear()
    desk.act("save_workspace")
    place = desk.choose_here("work.devexplorer")
    place.mkdir()
    desk.write(LONG)
    desk.until(lambda: desk.said.startswith("work.devexplorer could"))
    assert desk.said == f"work.devexplorer could not be saved on this machine. {place} is a folder."
    assert desk.state.part(FilesState).unsaved_work


def test_an_engine_that_ends_meanwhile_leaves_the_workspace_unsaved(desk: SavingDesk) -> None:
    desk.begin()
    desk.act("save_workspace")
    place = desk.choose_here("work.devexplorer")
    desk.write(LONG)
    desk.host.say(EngineLost(reason="It crashed.", will_restart=True, time_unix_s=1.0))
    desk.until(lambda: place.exists() and desk.said.startswith("work.devexplorer is saved"))
    assert desk.said == (
        "work.devexplorer is saved, but forge does not know that it is. The engine was restarted while the file was"
        " being sent; save again to be sure."
    )
    assert desk.state.part(FilesState).workspace_file is None


def test_the_window_closes_once_everything_is_saved(desk: SavingDesk, monkeypatch: pytest.MonkeyPatch) -> None:
    desk.begin()
    desk.act("save_workspace")
    place = desk.choose_here("work.devexplorer")
    assert not desk.window.close()
    assert desk.said == "The window closes when work.devexplorer is saved."
    assert desk.dialog(CopyDialog).isVisible()
    desk.write(LONG)
    desk.until(lambda: not desk.window.isVisible())
    assert place.read_bytes() == LONG


def test_the_window_stays_where_what_it_waited_for_is_left(desk: SavingDesk) -> None:
    desk.begin()
    desk.act("save_workspace")
    desk.choose_here("work.devexplorer")
    assert not desk.window.close()
    desk.click(desk.dialog(CopyDialog).cancel_button)
    desk.until(lambda: desk.said == "work.devexplorer was not saved.")
    assert desk.window.isVisible()


# --- other files


def test_the_selection_is_saved_here(desk: SavingDesk) -> None:
    desk.begin()
    desk.act("save_all")
    dialog = desk.dialog(SaveFileDialog)
    assert dialog.file.machine == "forge"
    desk.choose_machine(dialog.machine, "this machine")
    assert dialog.file.machine == "this machine"
    place = desk.folder / "weights.safetensors"
    dialog.file.edit.setText(str(place))
    assert dialog.message.text().startswith("Saves to weights.safetensors on this machine; ")
    desk.click(dialog.accept_button)
    command = desk.command()
    assert isinstance(command, Save)
    assert (command.sent_to, command.overwrite) == (SentFrom(machine=platform.node(), path=str(place)), True)
    assert Path(command.path).name == place.name
    Path(command.path).write_bytes(LONG)
    desk.ends(command)
    desk.until(place.exists)
    assert place.read_bytes() == LONG
    desk.until(lambda: not desk.copies_there())
    assert desk.state.part(FilesState).unsaved_work, "no workspace file"


def test_an_allocator_snapshot_is_saved_here(desk: SavingDesk) -> None:
    desk.begin()
    save_snapshot(desk.context, "cpu")
    place = desk.choose_here("snap.pickle")
    command = desk.command()
    assert isinstance(command, SaveSnapshot)
    assert command.sent_to == SentFrom(machine=platform.node(), path=str(place))
    Path(command.path).write_bytes(LONG)
    desk.ends(command)
    desk.until(place.exists)
    assert place.read_bytes() == LONG


def test_runs_of_the_history_there_are_exported_here(desk: SavingDesk) -> None:
    run = stored(matmul())
    desk.host.history.add(run.result, run.conditions)
    desk.begin()
    page = desk.context.show_tab("history")
    assert isinstance(page, HistoryPanel)
    desk.until(lambda: page.model.runs)
    next(action for action in page.export_button.menu().actions() if "JSON" in action.text()).trigger()
    place = desk.choose_here("runs.json")
    desk.until(place.exists)
    assert place.read_text().startswith("{")
    desk.until(lambda: desk.said.startswith("runs.json was saved on this machine ("))
