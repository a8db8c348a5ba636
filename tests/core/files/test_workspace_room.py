"""Opening a workspace where its values do not fit beside what is here: that goes first, and neither a bad file nor a
failure loses anything."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from places import Place, place_of

from devexplorer.core.base import BadInput, Cancelled, DoesNotFit, ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.records import NewTensor, Remove, Undo
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.machine import VirtualMachine

ROWS = 10
"""Of 1 MiB."""
Fill = Callable[[int], None]


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu", "Tesla T4") as made:
        yield made


@pytest.fixture
def fill(place: Place) -> Iterator[Fill]:
    """Take all memory of the card but so many MiB."""
    blocks = []

    def take(left_mib: int) -> None:
        machine = place.registry.backend("vgpu:0")
        assert isinstance(machine, VirtualMachine)
        blocks.append(meta_empty((machine.device_free_bytes("vgpu:0") - (left_mib << 20),), torch.uint8, "vgpu:0"))

    yield take
    blocks.clear()


@pytest.fixture
def path(place: Place, tmp_path: Path) -> Path:
    """A file with 10 MiB on the card, on which there is another tensor of that size now."""
    path = tmp_path / "w.devexplorer"
    place.do(NewTensor(name="saved", shape=(ROWS, 1 << 18), fill="rand", device="vgpu:0"))
    place.do(SaveWorkspace(path=str(path)))
    place.do(Remove(names=("saved",)))
    place.do(NewTensor(name="here", shape=(ROWS, 1 << 18), fill="rand", device="vgpu:0", seed=1))
    return path


def values(place: Place, name: str) -> torch.Tensor:
    return place.workspace.tensor_named(name).cpu()


def test_what_is_here_goes_first_and_one_undo_brings_it_back(place: Place, path: Path, fill: Fill) -> None:
    before = values(place, "here")
    fill(4)
    place.do(OpenWorkspace(path=str(path), replace=True))
    assert place.workspace.names == ("saved",)
    assert str(place.workspace.tensor_named("saved").device) == "vgpu:0"
    place.do(Undo())
    assert place.workspace.names == ("here",)
    assert str(place.workspace.tensor_named("here").device) == "vgpu:0"
    assert torch.equal(values(place, "here"), before)


def test_a_bad_file_is_noticed_before_anything_goes(place: Place, path: Path, fill: Fill) -> None:
    here = place.workspace.tensor_named("here")
    fill(4)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    with pytest.raises(BadInput, match="its checksum does not match"):
        place.do(OpenWorkspace(path=str(path), replace=True))
    assert place.workspace.tensor_named("here") is here


def test_a_failure_while_it_is_read_brings_everything_back(place: Place, path: Path, fill: Fill) -> None:
    before = values(place, "here")
    fill(4)
    cancelled = ProgressMonitor(lambda done, text, part="": None, lambda: not place.workspace.names)
    with pytest.raises(Cancelled):
        dispatch(place.workspace, OpenWorkspace(path=str(path), replace=True), cancelled)
    assert place.workspace.names == ("here",)
    assert str(place.workspace.tensor_named("here").device) == "vgpu:0"
    assert torch.equal(values(place, "here"), before)


def test_what_is_too_large_for_undo_goes_only_if_there_is_room_then(place: Place, path: Path, fill: Fill) -> None:
    place.workspace.history.budget_bytes = 1000
    here = place.workspace.tensor_named("here")
    other = place.workspace.drop(("here",))  # the card's memory is somebody else's
    fill(4)
    place.do(NewTensor(name="small", shape=(2,), device="vgpu:0"))
    with pytest.raises(DoesNotFit, match="this workspace needs"):
        place.do(OpenWorkspace(path=str(path), replace=True))
    assert place.workspace.names == ("small",)
    place.do(Remove(names=("small",)))
    other()
    assert place.workspace.tensor_named("here") is here
    del here, other
    words = place.do(OpenWorkspace(path=str(path), replace=True)).answer.words
    assert place.workspace.names == ("saved",)
    assert "This cannot be undone" in words
