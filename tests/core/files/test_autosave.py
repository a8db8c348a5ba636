"""Unsaved work: when there is some, when a copy of it is made, and who may take what a crash has left."""

from __future__ import annotations

import os
import platform
import subprocess
from collections.abc import Callable
from pathlib import Path

import msgspec
import psutil
import pytest
from fakes.look_records import ENGINE

from devexplorer.core.files.autosave import INTERVAL_S, MOST_BYTES, QUIET_S, Autosave, discard
from devexplorer.core.files.records import NewWorkspace, OpenWorkspace, SaveWorkspace, WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.records import (
    Answer,
    BaseEvent,
    BenchPreparing,
    BuildModel,
    Cancel,
    Command,
    EngineLost,
    Event,
    JobEnded,
    JobStarted,
    Log,
    MatmulSpec,
    Move,
    ObjectChanged,
    ObjectRemoved,
    ObjectSnapshot,
    Rebuilt,
    Undid,
    Undo,
    UndoState,
)
from devexplorer.core.session.state import State


class Desk:
    """A state that hears what an engine would say, and an autosave with a clock that stands."""

    def __init__(self, folder: Path) -> None:
        self.state, self.now, self.folder = State(), 100.0, folder
        self.sent: list[Command] = []
        self.notes: list[Event] = []
        self.requests = self.asides = 0
        self.state.apply(ENGINE)
        self.autosave = Autosave(
            lambda: self.state, self.send, self.notes.append, discard, lambda: "layout", folder, lambda: self.now
        )

    def send(self, command: Command, take: Callable[[BaseEvent], None]) -> int:
        self.asides -= 1
        self.sent.append(msgspec.structs.replace(command, request=self.asides))
        return self.asides

    def did(self, command: Command, contents: int, *events: Event) -> None:
        """A command has been carried out, with these contents afterwards."""
        self.requests += 1
        request = self.requests
        self.state.apply(JobStarted(request=request, title="", time_unix_s=0.0, command=command))
        for event in events:
            self.state.apply(event)
        self.state.apply(UndoState(request=request, title="it", kept_bytes=0, contents=contents))
        self.state.apply(JobEnded(request=request, ok=True, time_unix_s=0.0))

    def build(self, contents: int) -> None:
        snapshot = ObjectSnapshot(
            name="mlp", kind="model", type="MLP", rows=(), bytes_by_device={"cpu": 8}, tensors_by_device={"cpu": 1}
        )
        self.did(BuildModel(recipe="mlp"), contents, ObjectChanged(snapshot=snapshot))

    def move(self, contents: int) -> None:
        self.did(Move(targets=("mlp",), device="cpu"), contents)

    def file(self, path: str, contents: int, *, copy: bool = False, lost: tuple[str, ...] = ()) -> None:
        again = OpenWorkspace(path="/w")
        event = WorkspaceFile(request=self.requests + 1, path=path, again=again, opened=copy, copy=copy, lost=lost)
        self.did(SaveWorkspace(path="/w"), contents, event)

    def after(self, seconds: float) -> list[Command]:
        """What is sent when so much time has passed in which nothing happened."""
        self.autosave.beat()
        self.now += seconds
        self.sent.clear()
        self.autosave.beat()
        return list(self.sent)

    def copied(self, *, ok: bool = True, words: str = "") -> None:
        """The engine has written the copy, or has not."""
        request = self.sent[-1].request
        self.autosave.take(Answer(request=request, title="", words=words, failed=not ok))
        self.autosave.take(JobEnded(request=request, ok=ok, time_unix_s=0.0))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path / "autosave")


def test_work_is_what_neither_a_file_nor_build_would_bring_back(desk: Desk) -> None:
    state = desk.state
    assert not state.part(FilesState).unsaved_work
    desk.build(1)
    assert not state.part(FilesState).unsaved_work, "Build makes it again"
    desk.move(2)
    assert state.part(FilesState).unsaved_work
    desk.move(1)
    assert not state.part(FilesState).unsaved_work, "undone"
    desk.move(3)
    desk.file("/w", 3)
    assert not state.part(FilesState).unsaved_work
    desk.build(4)
    assert state.part(FilesState).unsaved_work, "the file does not have it"
    desk.move(3)
    assert not state.part(FilesState).unsaved_work
    desk.did(Move(targets=("mlp",), device="cpu"), 5, ObjectRemoved(name="mlp"))
    assert not state.part(FilesState).unsaved_work, "nothing is here"


def test_a_new_workspace_has_no_file_until_it_is_undone(desk: Desk) -> None:
    state = desk.state
    desk.build(1)
    desk.file("/w", 1)
    before = state.part(FilesState).workspace_file
    new = WorkspaceFile(request=desk.requests + 1, path="", again=NewWorkspace(), opened=True)
    desk.did(NewWorkspace(), 2, ObjectRemoved(name="mlp"), new)
    assert (state.part(FilesState).workspace_file, state.part(FilesState).unsaved_work) == (new, False)
    desk.build(3)
    assert not state.part(FilesState).unsaved_work, "Build makes it again, and there is no file"
    desk.move(4)
    assert state.part(FilesState).unsaved_work
    [command] = desk.after(QUIET_S)
    assert isinstance(command, SaveWorkspace)
    assert command.copy_of == ""
    desk.did(Undo(), 1, Undid(of=new.request))
    assert (state.part(FilesState).workspace_file, state.part(FilesState).unsaved_work) == (before, False)
    desk.build(5)
    assert state.part(FilesState).unsaved_work, "its file does not have it"


def test_what_a_file_cannot_hold_is_known_while_it_has_everything_else(desk: Desk) -> None:
    files = desk.state.part(FilesState)
    desk.build(1)
    desk.file("/w", 1, lost=("the graph that computed y",))
    assert (files.unsaved_work, files.lost_anyway) == (
        False,
        ("the graph that computed y",),
    )
    desk.move(2)
    assert (files.unsaved_work, files.lost_anyway) == (True, ()), "the next Save says what it cannot hold"
    desk.move(1)
    assert files.lost_anyway
    desk.state.apply(EngineLost(reason="", will_restart=True, time_unix_s=0.0))
    desk.build(1)
    desk.state.apply(Rebuilt(restored=("mlp",), lost=()))
    assert (files.unsaved_work, files.lost_anyway) == (False, ()), "it is gone"


@pytest.mark.parametrize(("changed", "lost"), [(False, ()), (False, ("t: gone",)), (True, ())])
def test_after_a_crash_of_the_engine_the_same_is_saved_as_before(
    desk: Desk, changed: bool, lost: tuple[str, ...]
) -> None:
    desk.build(1)
    desk.file("/w", 1)
    if changed:
        desk.move(2)
    desk.state.apply(EngineLost(reason="", will_restart=True, time_unix_s=0.0))
    desk.build(1)
    desk.state.apply(Rebuilt(restored=("mlp",), lost=lost))
    assert desk.state.part(FilesState).unsaved_work is (changed or bool(lost))


def test_a_copy_that_is_opened_is_still_unsaved(desk: Desk) -> None:
    desk.build(1)
    desk.file("/w", 2, copy=True)
    assert desk.state.part(FilesState).unsaved_work
    [command] = desk.after(QUIET_S)
    assert isinstance(command, SaveWorkspace)
    assert (command.copy_of, command.layout) == ("/w", "layout")


def test_a_copy_is_made_at_a_quiet_moment_and_not_too_often(desk: Desk) -> None:
    desk.build(1)
    assert desk.after(1000) == [], "no work"
    desk.move(2)
    assert desk.after(QUIET_S - 1) == []
    desk.move(3)
    assert desk.after(QUIET_S - 1) == []
    [command] = desk.after(1)
    assert isinstance(command, SaveWorkspace)
    assert command.request < 0
    assert command.most_bytes == MOST_BYTES
    assert Path(command.path).parent == desk.folder
    assert desk.folder.stat().st_mode & 0o077 == 0
    assert desk.after(0.5) == [], "it is under way"
    desk.sent[:] = [command]
    desk.copied()
    assert desk.after(1000) == [], "there is a copy"
    desk.move(4)
    assert len(desk.after(QUIET_S)) == 1
    desk.copied()
    desk.move(5)
    assert desk.after(INTERVAL_S - 1) == []
    assert len(desk.after(1)) == 1


def test_a_copy_waits_for_benchmarks_and_makes_way_for_the_user(desk: Desk) -> None:
    desk.build(1)
    desk.move(2)
    desk.state.apply(BenchPreparing(run=7, spec=MatmulSpec(device="cpu", m=1, n=1, k=1), simulated=False))
    assert desk.after(1000) == []
    desk.state.runs.clear()
    [command] = desk.after(QUIET_S)
    desk.autosave.make_way()
    cancel = desk.sent[-1]
    assert isinstance(cancel, Cancel)
    assert cancel.job == command.request
    desk.sent[:] = [command]
    desk.autosave.take(Answer(request=command.request, title="", words="", failed=True, cancelled=True))
    desk.autosave.take(JobEnded(request=command.request, ok=False, time_unix_s=0.0))
    assert not desk.notes
    assert len(desk.after(INTERVAL_S)) == 1, "it is tried again"


def test_what_cannot_be_copied_is_said_once(desk: Desk) -> None:
    desk.build(1)
    for contents in (2, 3):
        desk.move(contents)
        assert len(desk.after(INTERVAL_S)) == 1
        desk.copied(ok=False, words="it takes 2 GiB, and 1 GiB is the most")
        assert desk.after(1000) == []
    [note] = desk.notes
    assert isinstance(note, Log)
    assert "2 GiB" in note.text


def written(desk: Desk, command: Command) -> Path:
    assert isinstance(command, SaveWorkspace)
    path = Path(command.path)
    path.write_text("a workspace")
    desk.sent[:] = [command]
    desk.copied()
    return path


def test_a_copy_goes_when_it_is_not_needed_any_more(desk: Desk) -> None:
    desk.build(1)
    desk.move(2)
    path = written(desk, desk.after(QUIET_S)[0])
    desk.autosave.beat()
    assert path.exists()
    desk.file("/w", 2)
    desk.autosave.beat()
    assert not path.exists()
    desk.move(3)
    path = written(desk, desk.after(INTERVAL_S)[0])
    desk.autosave.end(keep=True)
    assert path.exists()
    desk.autosave.end(keep=False)
    assert not path.exists()


def test_only_what_an_ended_window_of_this_machine_has_left_is_taken(desk: Desk) -> None:
    folder, node, gone = desk.folder, platform.node(), 2**22 + 1
    folder.mkdir()
    began = int(psutil.Process().create_time())
    kept = [f"{node}-{os.getpid()}-{began}.devexplorer", f"elsewhere-{gone}-1.devexplorer", "notes.txt"]
    left = [f"{node}-{gone}-{number}.devexplorer" for number in range(5)]
    for number, name in enumerate([*kept, *left]):
        (folder / name).write_text(name)
        os.utime(folder / name, (1000 + number, 1000 + number))
    reused = f"{node}-{os.getpid()}-1.devexplorer"
    (folder / reused).write_text("an older process had this number")
    os.utime(folder / reused, (5000, 5000))
    (folder / f".{left[0]}.{gone}.part").write_text("unfinished")
    found = desk.autosave.look()
    assert found is not None
    assert found.saved_unix_s == 5000
    assert found.path.read_text() == "an older process had this number"
    there = {path.name for path in folder.iterdir()}
    assert there == {*kept, *left[-2:], found.path.name}
    assert desk.autosave.look() is not None
    discard(found.path)
    discard(found.path)


def test_a_process_that_has_ended_and_that_nobody_has_waited_for_is_gone(desk: Desk) -> None:
    process = subprocess.Popen(["sleep", "60"])
    began = int(psutil.Process(process.pid).create_time())
    process.kill()
    os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
    desk.folder.mkdir()
    (desk.folder / f"{platform.node()}-{process.pid}-{began}.devexplorer").write_text("left")
    found = desk.autosave.look()
    process.wait()
    assert found is not None
    assert found.path.read_text() == "left"
