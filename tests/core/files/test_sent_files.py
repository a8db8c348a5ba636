"""What was sent from another machine (workspaces, snapshots, tensors) is called what it is called there, and the copy
that was read is named nowhere."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from msgspec.structs import replace
from places import Place, place_of
from safetensors.torch import load_file, save_file

from devexplorer.core.base import BadInput
from devexplorer.core.files.records import FileListed, ListFile, Load, OpenWorkspace, Save, SaveWorkspace, WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.memory import snapshot_file
from devexplorer.core.memory.records import OpenSnapshot, SnapshotOpened
from devexplorer.core.records import Answer, Command, NewTensor, SentFrom, UndoState
from devexplorer.core.session.state import State

COPY = "0f0f"
"""In the path of every copy."""


@pytest.fixture
def host() -> Iterator[Place]:
    with place_of("cpu") as made:
        yield made


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where copies are."""
    made = tmp_path / COPY
    made.mkdir()
    return made


def sent(name: str) -> SentFrom:
    return SentFrom(machine="laptop", path=f"/home/ada/{name}")


def hides_the_copy(answer: Answer) -> Answer:
    assert COPY not in str(answer.title) + answer.words + answer.code + "".join(fact.value for fact in answer.facts)
    return answer


def test_a_workspace_that_was_sent_has_no_file_here(
    host: Place, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.do(NewTensor(name="x", fill="randn", shape=(3,), seed=1))
    values = host.workspace.tensor_named("x").clone()
    host.do(SaveWorkspace(path=str(folder / "work.devexplorer")))
    opening = OpenWorkspace(path=str(folder / "work.devexplorer"), replace=True, sent_from=sent("work.devexplorer"))
    result = host.do(opening)
    answer = hides_the_copy(result.answer)
    assert answer.title == "work.devexplorer is open"
    assert answer.words.endswith("Its file stays on laptop; Save writes it there.")
    assert answer.facts[0].value == "laptop: /home/ada/work.devexplorer"
    assert host.workspace.history.state().title == "the opening of work.devexplorer"
    (event,) = result.events
    assert isinstance(event, WorkspaceFile)
    assert (event.path, event.sent_from) == ("", opening.sent_from)
    assert isinstance(event.again, OpenWorkspace)
    assert event.again.path == opening.path, "after a crash of the engine it is read again"

    state = State()
    state.apply(event)
    state.apply(UndoState(title=None, kept_bytes=0, contents=5))
    assert not state.part(FilesState).unsaved_work, "it is in the file of the other machine"

    monkeypatch.chdir(tmp_path)
    (folder / "work.devexplorer").rename(tmp_path / "work.devexplorer")
    assert "# From laptop: /home/ada/work.devexplorer; put the file beside this script" in answer.code
    made: dict[str, Any] = {}
    exec(answer.code, made)
    assert torch.equal(made["x"], values)
    with pytest.raises(BadInput) as refused:
        host.do(opening)
    assert str(refused.value) == "there is no file 'work.devexplorer'"


def test_what_is_in_a_file_that_was_sent(host: Place, folder: Path) -> None:
    copy = folder / "weights.safetensors"
    save_file({"a": torch.ones(2), "b": torch.ones(3)}, copy)
    result = host.do(ListFile(path=str(copy), sent_from=sent("weights.safetensors")))
    answer = hides_the_copy(result.answer)
    assert answer.facts[0].value.startswith("laptop: /home/ada/weights.safetensors, ")
    (event,) = result.events
    assert isinstance(event, FileListed)
    assert event.contents.path == str(copy), "what the next command reads"
    (offer,) = answer.offers
    assert offer.command == Load(path=str(copy), sent_from=sent("weights.safetensors"))


def test_a_snapshot_that_was_sent(host: Place, folder: Path) -> None:
    copy = folder / "snap.pickle"
    snapshot_file.save({"segments": [], "device_traces": []}, str(copy))

    def opening() -> Command:
        return OpenSnapshot(path=str(copy), sent_from=sent("snap.pickle"))

    result = host.do(opening())
    assert hides_the_copy(result.answer).title == "The allocator snapshot of snap.pickle of laptop"
    (event,) = result.events
    assert isinstance(event, SnapshotOpened)
    assert event.snapshot.source == "snap.pickle of laptop"
    copy.write_bytes(b"\x80\x04cos\nsystem\n.")
    answer = hides_the_copy(host.answer(opening()))
    assert answer.words.startswith("Snap.pickle was not opened: ")


# --- what is saved for another machine


def test_a_workspace_that_is_saved_for_another_machine_is_saved_once_it_is_there(host: Place, folder: Path) -> None:
    host.do(NewTensor(name="x", fill="randn", shape=(3,), seed=1))
    copy = folder / "work.devexplorer"
    result = host.do(SaveWorkspace(path=str(copy), overwrite=True, sent_to=sent("work.devexplorer")))
    answer = hides_the_copy(result.answer)
    assert answer.title == "work.devexplorer is written"
    assert answer.words.endswith("The window copies it to laptop.")
    assert answer.facts[0].value == "laptop: /home/ada/work.devexplorer"
    (event,) = result.events
    assert isinstance(event, WorkspaceFile)
    contents = host.workspace.history.contents
    assert (event.path, event.sent_from, event.on_its_way, event.contents) == (
        "", sent("work.devexplorer"), True, contents,
    )  # fmt: skip
    assert isinstance(event.again, OpenWorkspace)
    assert (event.again.path, event.again.sent_from) == (str(copy), sent("work.devexplorer"))
    assert b"/home/ada" not in copy.read_bytes(), "whoever gets the file need not know where it was"

    state = State()
    state.apply(event)
    state.apply(host.workspace.history.state())
    assert state.part(FilesState).changed
    state.apply(UndoState(title="more", kept_bytes=0, contents=contents + 1))
    state.apply(replace(event, on_its_way=False))
    assert state.part(FilesState).workspace_file is not None
    assert state.part(FilesState).changed, "what was done since is in no file"
    state.apply(UndoState(title="undone", kept_bytes=0, contents=contents))
    assert not state.part(FilesState).changed
    state.apply(UndoState(request=event.request, title="a window that comes later", kept_bytes=0, contents=contents))
    assert not state.part(FilesState).changed


def test_objects_and_snapshots_for_another_machine_are_called_what_they_become_there(
    host: Place, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.do(NewTensor(name="x", fill="randn", shape=(3,), seed=1))
    values = host.workspace.tensor_named("x").clone()
    saving = Save(targets=("x",), path=str(folder / "x.safetensors"), sent_to=sent("x.safetensors"))
    answer = hides_the_copy(host.do(saving).answer)
    assert answer.title == "x is written"
    assert answer.words.endswith(" The window copies it to laptop.")
    assert answer.facts[0].value == "laptop: /home/ada/x.safetensors"
    assert "# Written beside this script; the window brought it to laptop: /home/ada/x.safetensors" in answer.code
    monkeypatch.chdir(tmp_path)
    exec(answer.code, {"x": values})
    assert torch.equal(load_file("x.safetensors")["x"], values)
