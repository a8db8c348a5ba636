"""Third-party models, from opening to undo: one story of each, on every kind of place."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from fakes.other_models import BLOCK, LAYERS, SOURCES, TIED, TYPES
from places import Place
from torch import Tensor, nn

from devexplorer.core.files.records import FileListed, ListFile, LoadCheckpoint, OpenModel, Save
from devexplorer.core.parameters.records import SetTraining
from devexplorer.core.records import EditElement, Forward, Move, NewTensor, Redo, Undo
from devexplorer.core.split.records import Hopped, Join, PlanSplit, Split, SplitPlanned
from devexplorer.core.workspace.changes import CommandResult

pytest.importorskip("transformers")


def logits(place: Place, name: str) -> Tensor:
    """The model's output for the ids, on the CPU."""
    place.do(Forward(target=name, input="ids", output="logits"))
    made = place.workspace.tensor_named("logits").detach().cpu()
    place.do(Undo())
    return made


def tied(place: Place, name: str, opened: str) -> bool:
    """Whether the embedding and the output layer are one Parameter, in the model and in the window's snapshot."""
    model = place.workspace.get(name)
    assert isinstance(model, nn.Module)
    first, second = TIED[opened]
    rows = {row.path: row for row in place.snapshot(name).rows}
    return model.get_parameter(first) is model.get_parameter(second) and rows[second].tied_to == first


def values(model: nn.Module | Tensor) -> dict[str, Tensor]:
    assert isinstance(model, nn.Module)
    return {key: value.detach().cpu().clone() for key, value in model.state_dict().items()}


def same(one: dict[str, Tensor], other: dict[str, Tensor]) -> bool:
    return one.keys() == other.keys() and all(torch.equal(value, other[key]) for key, value in one.items())


def by_layer_and_split(place: Place, name: str, opened: str, expected: Tensor) -> None:
    """Move one layer to the second device and undo it; then split the model over both."""
    assert place.second is not None
    layer = BLOCK[opened]
    place.do(Move(targets=(f"{name}:{layer}",), device=place.second))
    rows = {row.path: row for row in place.snapshot(name).rows}
    assert rows[layer].devices == (place.second,)
    assert {
        row.devices for path, row in rows.items() if row.kind == "parameter" and not path.startswith(f"{layer}.")
    } == {(place.first,)}
    assert tied(place, name, opened)
    failed = place.answer(Forward(target=name, input="ids"))
    assert failed.failed
    assert layer in failed.words
    place.do(Undo())
    assert set(place.snapshot(name).bytes_by_device) == {place.first}

    size = sum(place.snapshot(name).bytes_by_device.values())
    budgets = {place.first: int(size * 0.7), place.second: size}
    planned = place.do(PlanSplit(target=name, budgets=budgets))
    (event,) = planned.events
    assert isinstance(event, SplitPlanned)
    assert {block.path for block in event.plan.blocks if block.path.rpartition(".")[0] == layer.rpartition(".")[0]}
    place.do(Split(target=name, device_map={block.path: block.device for block in event.plan.blocks}))
    assert set(place.snapshot(name).bytes_by_device) == {place.first, place.second}
    assert place.snapshot(name).hops
    assert tied(place, name, opened)
    (hopped,) = place.do(Forward(target=name, input="ids")).events
    assert isinstance(hopped, Hopped)
    assert {(hop.source, hop.destination) for hop in hopped.hops} >= {(place.first, place.second)}
    assert all(hop.simulated == (place.kind == "vgpu") for hop in hopped.hops)
    assert torch.allclose(logits(place, name), expected, atol=1e-5)


@pytest.mark.parametrize("opened", SOURCES)
def test_it_opens_moves_splits_runs_is_saved_and_loaded_and_all_of_it_is_undone(
    place: Place, tmp_path: Path, opened: str
) -> None:
    name = opened
    started = place.do(OpenModel(source=SOURCES[opened], name=name, seed=1))
    model = place.workspace.get(name)
    assert isinstance(model, nn.Module)
    start = values(model)

    # shown
    (snapshot,) = started.changed
    assert snapshot.type == TYPES[opened.removesuffix("-tiny")]
    layers = BLOCK[opened].rpartition(".")[0]
    assert sum(row.path.rpartition(".")[0] == layers for row in snapshot.rows) == LAYERS[opened]
    assert tied(place, name, opened)
    place.do(NewTensor(name="ids", fill="text", text="[[3, 1, 4, 1], [5, 9, 2, 6]]", dtype="int64"))
    place.do(SetTraining(target=name, on=False))  # without dropout
    expected = logits(place, name)
    assert expected.shape == (2, 4, 100)

    # whole, and by layer
    place.do(Move(targets=(name, "ids"), device=place.first))
    assert set(place.snapshot(name).bytes_by_device) == {place.first}
    assert tied(place, name, opened)
    assert torch.allclose(logits(place, name), expected, atol=1e-5)
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=(f"{name}:{BLOCK[opened]}",), device="cuda:0"))
        assert place.offers_virtual_gpus(Split(target=name, device_map={"": "cuda:0"}))
        planned = place.do(PlanSplit(target=name))
        assert any("virtual GPUs" in offer.label for offer in planned.answer.offers)
        assert not place.workspace.held_bytes_by_device().keys() - {"cpu"}
    else:
        by_layer_and_split(place, name, opened, expected)

    # saved: its state dict, and everything
    moved = values(model)
    for form in ("safetensors", "pt"):
        place.do(Save(targets=(name,), path=str(tmp_path / f"model.{form}"), form=form))
    place.do(Save(targets=(), path=str(tmp_path / "everything.safetensors")))
    listed = place.do(ListFile(path=str(tmp_path / "everything.safetensors"))).events[0]
    assert isinstance(listed, FileListed)
    assert listed.contents.form == "workspace"
    assert {entry.key for entry in listed.contents.entries} == {name, "ids"}
    assert listed.contents.count == len(start) + 1

    # back, and into another one
    embedding = TIED[opened][0]
    place.do(EditElement(target=f"{name}:{embedding}", index=(0, 0), value=42.0))
    assert not same(values(model), moved)
    place.do(LoadCheckpoint(target=name, path=str(tmp_path / "model.safetensors")))
    assert same(values(model), moved)
    place.do(Undo())
    place.do(LoadCheckpoint(target=name, path=str(tmp_path / "everything.safetensors")))
    assert same(values(model), moved)
    other = f"{name} again"
    place.do(OpenModel(source=SOURCES[opened], name=other, seed=2, device=place.first))
    place.do(SetTraining(target=other, on=False))
    assert not same(values(place.workspace.get(other)), moved)
    place.do(LoadCheckpoint(target=other, path=str(tmp_path / "model.pt")))
    assert same(values(place.workspace.get(other)), moved)
    assert tied(place, name, opened)
    assert tied(place, other, opened)
    assert torch.allclose(logits(place, other), expected, atol=1e-5)

    # together again
    if place.second is not None:
        place.do(Join(target=name, device="cpu"))
        assert set(place.snapshot(name).bytes_by_device) == {"cpu"}
        assert not place.snapshot(name).hops
        assert tied(place, name, opened)
        place.do(Move(targets=("ids",), device="cpu"))
        assert torch.equal(logits(place, name), expected)

    # and all the way back
    undone: list[CommandResult] = []
    while place.workspace.history.state().title is not None:
        undone.append(place.do(Undo()))
        if name in place.workspace.names:
            assert tied(place, name, opened)
    assert place.workspace.names == ()
    assert place.workspace.held_bytes_by_device() == {}
    assert undone[-1].removed == (name,)
    del model, started, snapshot, undone
    if place.kind == "vgpu":
        assert (place.allocated(place.first), place.allocated("vgpu:1")) == (0, 0)
    place.do(Redo())
    assert same(values(place.workspace.get(name)), start)
