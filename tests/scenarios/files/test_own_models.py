"""Third-party models (BERT, GPT-2, Llama, tiny and at full depth): open, inspect, move whole and by layer, run; ties
survive."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest
import torch
from fakes.other_models import BLOCK, LAYERS, SOURCES, TIED, TYPES
from places import Place
from torch import nn

from devexplorer.core.files.records import OpenModel
from devexplorer.core.records import Backward, Forward, Move, Redo, Undo

pytestmark = pytest.mark.usefixtures("warm_processes")

MODELS = sorted(SOURCES)


def opened(place: Place, name: str, device: str = "cpu") -> nn.Module:
    place.do(OpenModel(source=SOURCES[name], name=name, device=device))
    model = place.workspace.get(name)
    assert isinstance(model, nn.Module)
    return model


@pytest.mark.parametrize("name", MODELS)
def test_opened_and_shown(place: Place, name: str) -> None:
    outcome = place.do(OpenModel(source=SOURCES[name], name=name, device=place.first))
    snapshot = place.snapshot(name)
    assert outcome.changed == (snapshot,)
    assert snapshot.type == TYPES[name.partition("-")[0]]
    assert snapshot.source == SOURCES[name]
    assert set(snapshot.bytes_by_device) == {place.first}
    blocks = BLOCK[name].removesuffix(".1")
    assert sum(row.kind == "module" and row.path.rpartition(".")[0] == blocks for row in snapshot.rows) == LAYERS[name]
    first, second = TIED[name]
    assert {row.path: row.tied_to for row in snapshot.rows}[second] == first
    assert f"{first} and {second} are two names of one Parameter" in outcome.answer.words
    assert place.held(place.first) >= snapshot.bytes_by_device[place.first]


@pytest.mark.parametrize("name", MODELS)
def test_moved_whole_and_by_layer_it_stays_tied_and_runs(place: Place, name: str) -> None:
    model = opened(place, name)
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=(name,), device="cuda:0"))
    else:
        place.do(Move(targets=(f"{name}:{BLOCK[name]}",), device=place.first))
        assert len(place.snapshot(name).bytes_by_device) == 2
        place.do(Move(targets=(name,), device=place.first))
        assert set(place.snapshot(name).bytes_by_device) == {place.first}
    first, second = TIED[name]
    assert model.get_parameter(first) is model.get_parameter(second)
    words = place.do(Forward(target=name, output="y")).answer.words
    assert f"on {place.first}" in words
    assert "2×16 int64" in words
    output = place.workspace.get("y")
    assert isinstance(output, torch.Tensor)
    assert output.shape == (2, 16, 100)
    assert bool(output.isfinite().all())
    place.do(Backward(target=name))
    assert model.get_parameter(first).grad is not None
    assert model.get_parameter(second) is model.get_parameter(first)


@pytest.mark.parametrize("name", ["bert-tiny", "gpt2-tiny", "llama-tiny"])
def test_undone_and_done_again_it_has_the_same_values(place: Place, name: str) -> None:
    before = {
        path: tensor.detach().cpu().clone() for path, tensor in opened(place, name, place.first).state_dict().items()
    }
    place.do(Undo())
    assert name not in place.workspace.names
    place.do(Redo())
    after = place.workspace.get(name)
    assert isinstance(after, nn.Module)
    assert all(torch.equal(tensor.cpu(), before[path]) for path, tensor in after.state_dict().items())


def test_a_users_file_on_its_device_in_its_dtype(place: Place, tmp_path: Path) -> None:
    (tmp_path / "net.py").write_text(
        "from torch import nn\ndef make(width=3): return nn.Sequential(nn.Linear(4, width), nn.ReLU())\n"
    )
    outcome = place.do(
        OpenModel(
            source="net.py:make?width=5", folder=str(tmp_path), device=place.first, dtype="float64", name="my net"
        )
    )
    model = place.workspace.get("my net")
    assert isinstance(model, nn.Sequential)
    assert {(str(p.device), p.dtype) for p in model.parameters()} == {(place.first, torch.float64)}
    assert outcome.answer.title == f"my net is on {place.first}"
    assert f"2×5 float64 on {place.first}" in place.answer(Forward(target="my net")).words


def test_its_code_makes_the_same_model(place: Place, tmp_path: Path) -> None:
    (tmp_path / "beside.py").write_text("WIDTH = 6\n")
    (tmp_path / "net.py").write_text(
        "import random, numpy, torch\nfrom beside import WIDTH\nfrom torch import nn\n"
        "class Net(nn.Module):\n"
        "    def __init__(self):\n"
        "        super().__init__()\n"
        "        torch.set_default_dtype(torch.float64)\n"
        "        self.layer = nn.Linear(WIDTH + random.randrange(3), 2)\n"
        "        self.scale = nn.Parameter(torch.tensor(numpy.random.rand()))\n"
    )
    for source, name in (
        ("net.py:Net", "one"),
        ("net:Net", "two"),
        (SOURCES["gpt2-tiny"], "three"),
        (SOURCES["bert-tiny"], "four"),
    ):
        code = place.do(
            OpenModel(source=source, folder=str(tmp_path), name=name, seed=5, device=place.first)
        ).answer.code
        here = place.workspace.get(name)
        assert isinstance(here, nn.Module)
        scope: dict[str, nn.Module] = {}
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "path", list(sys.path))
            patch.setattr(sys, "dont_write_bytecode", True)
            with torch.random.fork_rng(devices=[]):
                exec(code, scope)
        assert torch.get_default_dtype() == torch.float32, "the code puts back what the model changed"
        there = scope[name].state_dict()
        assert here.state_dict().keys() == there.keys()
        assert all(torch.equal(tensor.cpu(), there[path].cpu()) for path, tensor in here.state_dict().items())
        assert {str(p.device) for p in scope[name].parameters()} == {place.first}
    for module in ("net", "beside"):
        sys.modules.pop(module, None)
