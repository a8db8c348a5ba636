"""Behaviour 24: tensors, lists, dicts and state dicts are saved and loaded, to another device too, and in part; keys
are compared first."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.files.records import (
    CheckpointCompared,
    CompareCheckpoint,
    FileListed,
    ListFile,
    Load,
    LoadCheckpoint,
    Save,
)
from devexplorer.core.records import BuildModel, NewTensor, Remove, Undo

FORMS = pytest.mark.parametrize("form", ["safetensors", "pt"])


def tensor(place: Place, name: str) -> Tensor:
    found = place.workspace.get(name)
    assert isinstance(found, Tensor)
    return found


def model(place: Place, name: str) -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


@FORMS
def test_a_tensor_is_saved_and_loaded_with_its_code(place: Place, tmp_path: Path, form: str) -> None:
    place.do(NewTensor(fill="rand", shape=(2, 3), device=place.first))
    path = str(tmp_path / f"x.{form}")
    saved = place.do(Save(targets=("x",), path=path, form=form)).answer
    assert saved.title == "x is saved"
    assert path in saved.code
    loaded = place.do(Load(path=path, device=place.first, name="again")).answer
    assert torch.equal(tensor(place, "again").cpu(), tensor(place, "x").cpu())
    assert "2×3 float32" in loaded.words
    line = {"safetensors": "load_file(", "pt": f'map_location="{place.first}", weights_only=True'}[form]
    assert line in loaded.code


@FORMS
def test_loading_to_another_device_explains_map_location(place: Place, tmp_path: Path, form: str) -> None:
    place.do(NewTensor(fill="rand", shape=(4,), device=place.first))
    path = str(tmp_path / f"x.{form}")
    place.do(Save(targets=("x",), path=path, form=form))
    if place.second is None:
        assert place.offers_virtual_gpus(Load(path=path, device="cuda:0"))
        return
    held = place.held(place.second)
    answer = place.do(Load(path=path, device=place.second)).answer
    assert str(tensor(place, "x2").device) == place.second
    assert place.held(place.second) == held + 16
    facts = {fact.label: fact.value for fact in answer.facts}
    if form == "pt":
        assert "map_location=" in answer.words
    else:
        assert facts["saved on"] == place.first
        assert f"It was saved on {place.first}" in answer.words
    place.do(Undo())
    assert place.workspace.names == ("x",)


@FORMS
def test_several_tensors_are_one_file_and_come_back_under_their_names(place: Place, tmp_path: Path, form: str) -> None:
    place.do(NewTensor(name="x", fill="rand", shape=(4,), device=place.first))
    place.do(NewTensor(name="y", fill="ones", shape=(2, 2), dtype="int64"))
    path = str(tmp_path / f"both.{form}")
    place.do(Save(targets=("x", "y"), path=path, form=form))
    place.do(Load(path=path, name="old"))
    assert torch.equal(tensor(place, "old.x"), tensor(place, "x").cpu())
    assert tensor(place, "old.y").dtype == torch.int64


def test_lists_and_dicts_of_torch_are_taken_apart(place: Place, tmp_path: Path) -> None:
    path = str(tmp_path / "nested.pt")
    torch.save({"weights": [torch.ones(2), torch.zeros(3)], "step": 5}, path)
    (event,) = place.do(ListFile(path=path)).events
    assert isinstance(event, FileListed)
    assert [entry.key for entry in event.contents.entries] == ["weights/0", "weights/1"]
    place.do(Load(path=path, entries=("weights/1",), device=place.first, name="zeros"))
    assert tensor(place, "zeros").tolist() == [0, 0, 0]


@FORMS
def test_a_state_dict_goes_into_a_model_where_it_is(place: Place, tmp_path: Path, form: str) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first, seed=1))
    path = str(tmp_path / f"mlp.{form}")
    place.do(Save(targets=("mlp",), path=path, form=form))
    place.do(BuildModel(recipe="mlp", seed=2, name="other"))
    answer = place.do(LoadCheckpoint(target="other", path=path)).answer
    mine, theirs = model(place, "mlp").state_dict(), model(place, "other").state_dict()
    assert all(torch.equal(mine[key].cpu(), theirs[key]) for key in mine)
    assert place.snapshot("other").bytes_by_device.keys() == {"cpu"}
    assert "each to the device of its tensor: cpu" in answer.words
    assert "load_state_dict(" in answer.code
    assert "strict=True" in answer.code


def test_missing_and_unexpected_keys_are_shown_before_and_refused(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    path = str(tmp_path / "other.pt")
    torch.save({"0.weight": torch.rand(256, 20), "0.bias": torch.rand(256), "3.bias": torch.rand(10)}, path)
    (event,) = place.do(CompareCheckpoint(target="mlp", path=path)).events
    assert isinstance(event, CheckpointCompared)
    assert event.comparison.missing == ("2.weight", "2.bias")
    assert event.comparison.unexpected == ("3.bias",)
    before = place.snapshot("mlp")
    answer = place.answer(LoadCheckpoint(target="mlp", path=path))
    assert answer.failed
    assert "2 keys (2.weight, …) are missing in the file" in answer.words
    assert place.snapshot("mlp") == before
    assert not place.answer(answer.offers[0].command).failed


def test_the_whole_workspace_is_saved_and_built_again(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="tied", device=place.first, seed=4))
    place.do(NewTensor(fill="rand", shape=(3,)))
    path = str(tmp_path / "workspace.safetensors")
    place.do(Save(targets=(), path=path))
    old = {key: value.cpu() for key, value in model(place, "tied").state_dict().items()}
    place.do(Remove(names=("tied", "x")))
    answer = place.do(Load(path=path, device=place.first)).answer
    assert place.workspace.names == ("tied", "x")
    assert all(torch.equal(value.cpu(), old[key]) for key, value in model(place, "tied").state_dict().items())
    assert model(place, "tied").get_parameter("2.weight") is model(place, "tied").get_parameter("4.weight")
    assert "built again as the sample model tied" in answer.words


class Payload:
    def __init__(self, marker: Path) -> None:
        self.marker = marker

    def __reduce__(self) -> object:
        return Path.touch, (self.marker,)


def test_code_in_a_file_never_runs(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    marker, path = tmp_path / "ran", str(tmp_path / "hostile.pt")
    torch.save({"0.weight": torch.rand(256, 20), "0.bias": Payload(marker)}, path)
    for command in (ListFile(path=path), Load(path=path), LoadCheckpoint(target="mlp", path=path, partial=True)):
        answer = place.answer(command)
        assert "0.bias (builtins.getattr) is a Python object: not read" in answer.words
        assert "it can run any code; do not load it" in answer.words
        assert "safe_globals" not in answer.words
    assert not marker.exists()
