"""Hops in a workspace file, in the script of a session that copies a model, in one that fails, and in the journal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from fakes.equality import everything
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.files.records import OpenWorkspace, SaveWorkspace
from devexplorer.core.records import BuildModel, Forward, Move, NewTensor
from devexplorer.core.session.journal import Journal
from devexplorer.core.split.records import InsertHops, Join, Split

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def test_a_split_model_with_its_hops_runs_again(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", name="mlp"))
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    children = [path for path, part in model.named_children() if list(part.parameters())]
    devices = {path: f"vgpu:{index % 2}" for index, path in enumerate(children)}
    for path, device in devices.items():
        place.do(Move(targets=(f"mlp:{path}",), device=device))
    place.do(InsertHops(target="mlp"))
    before, path = everything(place), str(tmp_path / "w.devexplorer")
    place.do(SaveWorkspace(path=path))
    place.do(OpenWorkspace(path=path, replace=True))
    assert everything(place) == before
    place.do(Forward(target="mlp"))
    hops = place.workspace.extras("mlp").hops
    assert hops is not None
    assert {hop.destination for hop in hops.latest} >= {"vgpu:0", "vgpu:1"}


def test_a_copy_of_a_model_with_hops_has_none_in_a_script_either(place: Place) -> None:
    names: dict[str, object] = {"torch": torch}
    for command in (
        BuildModel(recipe="mlp", name="net"),
        NewTensor(name="x", fill="rand", shape=(2, 20), device="vgpu:1"),
        InsertHops(target="net"),
        Move(targets=("net",), device="vgpu:0", copy=True),
        Move(targets=("net2:2",), device="vgpu:1"),
        Forward(target="net", input="x"),
    ):
        exec(place.do(command).answer.code, names)
    with pytest.raises(RuntimeError):
        exec("net2(x)", names)
    assert place.answer(Forward(target="net2", input="x")).failed


class Masked(nn.Module):
    """Keeps a mask that does not move, and counts its calls."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.mask = torch.ones(4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, masked."""
        self.calls += 1
        masked: Tensor = self.layer(x) * self.mask
        return masked


def test_a_forward_that_fails_with_hops_is_not_run_again(place: Place) -> None:
    model = Masked()
    place.workspace.add("own", nn.Sequential(nn.Linear(4, 4), model))
    place.do(Move(targets=("own:0",), device="vgpu:0"))
    place.do(Move(targets=("own:1",), device="vgpu:1"))
    place.do(InsertHops(target="own"))
    place.do(NewTensor(name="x", shape=(2, 4)))
    calls = model.calls
    assert "mask (not registered) is on cpu" in place.answer(Forward(target="own", input="x")).words
    assert model.calls == calls + 1


def test_after_a_restart_a_model_is_split_again() -> None:
    commands = [
        Split(target="m", device_map={"": "cpu"}),
        InsertHops(target="m"),
        Join(target="m", device="cpu"),
    ]
    journal = Journal()
    for command in commands:
        journal.add(command)
    assert [entry.repeated for entry in journal.replay()] == commands
