"""A workspace that was saved is opened by another process of the operating system: everything is equal."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from fakes.equality import everything
from places import place_of
from torch import nn

from devexplorer.core.files.records import OpenModel, SaveWorkspace
from devexplorer.core.parameters.records import MakeOptimizer, SetRequiresGrad, SetTraining, TrainStep
from devexplorer.core.records import Backward, BuildModel, Move, NewTensor
from devexplorer.core.split.records import Split

TESTS = Path(__file__).parents[2]
OWN = """
import torch
from torch import nn

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.first = nn.Linear(4, 8)
        self.norm = nn.BatchNorm1d(8)
        self.last = nn.Linear(8, 4)
        self.tied = nn.Linear(4, 8)
        self.tied.weight = self.first.weight
        self.register_buffer("mask", torch.ones(8), persistent=False)

    def forward(self, x):
        return self.tied(self.last(self.norm(self.first(x)) * self.mask))
"""
OPEN = """
import json, sys
from fakes.equality import everything
from places import place_of
from devexplorer.core.files.records import OpenWorkspace, RunModelCode
from devexplorer.core.parameters.records import TrainStep
from devexplorer.core.records import Forward
with place_of("cpu") as place:
    words = place.do(OpenWorkspace(path=sys.argv[1])).answer.words
    stored = type(place.workspace.get("own")).__name__
    place.do(RunModelCode(target="own"))
    found = {name: repr(value) for name, value in everything(place).items()}
    for name in ("own", "trained"):
        place.do(TrainStep(target=name))
    place.do(Forward(target="split"))
    hops = sorted({hop.destination for hop in place.workspace.extras("split").hops.latest})
    print(json.dumps({"words": words, "stored": stored, "found": found, "hops": hops}))
    place.workspace.drop(place.workspace.names)
"""
SAMPLES = ("mlp", "nested", "module-list", "tied", "lazy-mlp", "custom-layers", "two-towers", "lenet", "lstm")


@pytest.mark.usefixtures("warm_processes")
def test_everything_is_equal_in_a_new_process(tmp_path: Path) -> None:
    (tmp_path / "own_net.py").write_text(OWN)
    path = tmp_path / "w.devexplorer"
    with place_of("vgpu", "2x Tesla T4, NVIDIA A10") as place:
        for number, recipe in enumerate(SAMPLES):
            place.do(
                BuildModel(recipe=recipe, name=recipe, seed=number, device=("cpu", "vgpu:0", "vgpu:2")[number % 3])
            )
        place.do(SetTraining(target="lenet", on=False))
        place.do(SetRequiresGrad(targets=("nested",), on=False))
        place.do(Move(targets=("two-towers",), device="vgpu:1", dtype="bfloat16"))
        place.do(Backward(target="lstm"))
        place.do(BuildModel(recipe="mlp", name="trained", device="vgpu:2"))
        place.do(MakeOptimizer(target="trained", kind="adamw", learning_rate=0.02))
        place.do(TrainStep(target="trained"))
        place.do(BuildModel(recipe="mlp", name="split"))
        model = place.workspace.get("split")
        assert isinstance(model, nn.Module)
        blocks = [name for name, part in model.named_children() if list(part.parameters())]
        place.do(Split(target="split", device_map={name: f"vgpu:{at % 2}" for at, name in enumerate(blocks)}))
        place.do(OpenModel(source="own_net.py:Net", folder=str(tmp_path), name="own", inputs="2x4", device="vgpu:0"))
        place.do(MakeOptimizer(target="own", kind="momentum"))
        place.do(TrainStep(target="own"))
        place.do(NewTensor(name="t", shape=(3, 5), fill="randn", device="vgpu:1", dtype="float16"))
        place.workspace.add("grad", torch.ones(3, requires_grad=True))
        saved = place.do(SaveWorkspace(path=str(path))).answer.words
        before = {name: repr(value) for name, value in everything(place).items()}
        place.workspace.drop(place.workspace.names)
        place.workspace.history.cannot_undo()
    assert "not in it" not in saved
    done = subprocess.run(
        [sys.executable, "-c", OPEN, str(path)], cwd=tmp_path, env={**os.environ, "PYTHONPATH": str(TESTS)},
        capture_output=True, text=True, timeout=240, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    seen = json.loads(done.stdout.splitlines()[-1])
    assert seen["stored"] == "StoredModule", "its code waits for an answer"
    assert seen["hops"] == ["vgpu:0", "vgpu:1"]
    assert "is not here" not in seen["words"]
    assert set(seen["found"]) == set(before)
    for name, value in before.items():
        assert seen["found"][name] == value, name
