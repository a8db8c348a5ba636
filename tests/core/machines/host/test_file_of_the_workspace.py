"""A window that comes later knows which file the workspace has, and whether that holds everything, whatever happened to
the engine before."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
from fakes.hosts import READY, HostHere, WindowHere

from devexplorer.core.files.records import OpenWorkspace, WorkspaceFile
from devexplorer.core.files.state import FilesState
from devexplorer.core.machines.records import SnapshotEnd
from devexplorer.core.records import (
    BuildModel,
    EngineReady,
    JobEnded,
    ObjectChanged,
    ObjectSnapshot,
    Rebuilt,
    Undid,
    UndoState,
)
from devexplorer.core.session.state import State

MLP = ObjectSnapshot(name="mlp", kind="model", type="MLP", rows=(), bytes_by_device={}, tensors_by_device={})
UNSAVED = [pytest.param(False, id="all of it in the file"), pytest.param(True, id="changed since")]


@pytest.fixture
def host(tmp_path: Path) -> Iterator[HostHere]:
    made = HostHere(tmp_path)
    made.say(READY)
    yield made
    made.close()


def saved(path: str, request: int = 3, *, opened: bool = False) -> WorkspaceFile:
    return WorkspaceFile(request=request, path=path, again=OpenWorkspace(path=path), opened=opened)


def work(host: HostHere, *, changed: bool) -> None:
    """A model, saved, and moved maybe."""
    request = host.session.send(BuildModel(recipe="mlp", name="mlp"))
    host.say(ObjectChanged(request=request, snapshot=MLP), JobEnded(request=request, ok=True, time_unix_s=1.0))
    host.say(saved("/far/w.devexplorer"), UndoState(title="building", kept_bytes=0, contents=4, request=3))
    if changed:
        host.say(UndoState(title="moving", kept_bytes=0, contents=5))


def follow(host: HostHere) -> tuple[WindowHere, State]:
    """What a new window knows, which stays connected."""
    window = WindowHere(host)
    window.connect()
    window.wait_for(SnapshotEnd)
    return window, known(window)


def known(window: WindowHere) -> State:
    state = State()
    for record in window.got:
        if hasattr(record, "event"):
            state.apply(record.event)
    return state


def check(state: State, *, changed: bool) -> None:
    assert state.part(FilesState).workspace_file is not None
    assert state.part(FilesState).workspace_file.path == "/far/w.devexplorer"
    assert state.part(FilesState).unsaved_work is changed


def rebuilt(host: HostHere) -> None:
    """The new engine does again what it was given."""
    (again,) = host.engine.sent
    host.say(
        ObjectChanged(request=again.request, snapshot=MLP),
        UndoState(title="building", kept_bytes=0, contents=1, request=again.request),
        JobEnded(request=again.request, ok=True, time_unix_s=1.0),
    )


@pytest.mark.parametrize("changed", UNSAVED)
def test_after_an_engine_was_lost_and_its_work_was_restored(host: HostHere, changed: bool) -> None:
    work(host, changed=changed)
    host.engine.kill()
    host.until(lambda: len(host.engines) == 2)
    host.say(READY)
    rebuilt(host)
    window, state = follow(host)
    check(state, changed=changed)
    window.close()


@pytest.mark.parametrize("changed", UNSAVED)
@pytest.mark.parametrize("ready", [False, True])
def test_while_the_engine_is_lost_and_while_it_is_rebuilt(host: HostHere, changed: bool, ready: bool) -> None:
    work(host, changed=changed)
    host.engine.kill()
    host.until(lambda: len(host.engines) == 2)
    if ready:
        host.say(READY)
    window, state = follow(host)
    assert (state.engine is not None) is ready
    assert state.part(FilesState).workspace_file is not None
    if not ready:
        host.say(READY)
        window.wait_for(EngineReady)
    rebuilt(host)
    window.wait_for(Rebuilt)
    check(known(window), changed=changed)
    window.close()


def test_when_the_opening_of_another_file_was_undone(host: HostHere) -> None:
    work(host, changed=False)
    host.say(
        saved("/far/other.devexplorer", 7, opened=True),
        UndoState(title="opening", kept_bytes=0, contents=8, request=7),
        Undid(request=9, of=7),
        UndoState(title="building", kept_bytes=0, contents=4, request=9),
    )
    window, state = follow(host)
    check(state, changed=False)
    window.close()
