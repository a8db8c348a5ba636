"""Behaviour 34: torch.save(net) needs its class to load and runs code when loaded: a state dict is better, and no such
file is opened."""

from __future__ import annotations

from pathlib import Path

import torch
from places import Place
from torch import nn

from devexplorer.core.files.records import ListFile, Load, LoadCheckpoint, Save
from devexplorer.core.records import BuildModel


def test_a_whole_model_is_written_with_a_warning_and_its_code(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="tied", device=place.first))
    path = str(tmp_path / "net.pt")
    answer = place.do(Save(targets=("tied",), path=path, form="module")).answer
    assert f'torch.save(tied, "{path}")' in answer.code
    for reason in (
        "names its class",
        "imports that class",
        "runs what the pickle says",
        "A state dict has the values alone",
    ):
        assert reason in answer.words
    there = torch.load(path, weights_only=False)
    assert isinstance(there, nn.Sequential)
    assert there[2].weight is there[4].weight
    own = place.workspace.get("tied")
    assert isinstance(own, nn.Module)
    assert torch.equal(there[0].weight.cpu(), own.get_parameter("0.weight").cpu())


def test_such_a_file_is_not_opened_and_what_it_wants_is_named(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    path = str(tmp_path / "net.pt")
    place.do(Save(targets=("mlp",), path=path, form="module"))
    before = place.snapshot("mlp")
    for command in (ListFile(path=path), Load(path=path, device=place.first), LoadCheckpoint(target="mlp", path=path)):
        answer = place.answer(command)
        assert answer.failed
        assert "it holds a whole model, not its values, and loading it would run code" in answer.words
        assert "torch.nn.modules.container.Sequential" in answer.words
        assert "state_dict()" in answer.words
        assert "only where you trust the file" in answer.words
        assert "weights_only=False" in answer.words
    assert place.workspace.names == ("mlp",)
    assert place.snapshot("mlp") == before


def test_the_state_dict_of_the_same_model_opens(place: Place, tmp_path: Path) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    path = str(tmp_path / "net.pt")
    place.do(Save(targets=("mlp",), path=path, form="pt"))
    assert not place.answer(LoadCheckpoint(target="mlp", path=path)).failed


def test_a_tensor_has_no_class_to_save(place: Place, tmp_path: Path) -> None:
    place.workspace.add("x", torch.ones(2))
    answer = place.answer(Save(targets=("x",), path=str(tmp_path / "x.pt"), form="module"))
    assert answer.failed
    assert "The format 'module' is for one model" in answer.words
