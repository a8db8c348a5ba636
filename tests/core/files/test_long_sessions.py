"""A long session of all actions, with undo and redo in between: as a script, and after a crash of its engine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fakes.other_models import BLOCK, SOURCES, TIED
from fakes.scripts import Here, look, script_gives_the_same

from devexplorer.core.experiments.records import Ask, Replicate
from devexplorer.core.files import records as rec
from devexplorer.core.parameters import records as lab
from devexplorer.core.records import (
    BuildModel,
    Combine,
    Command,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Redo,
    Remove,
    Undo,
)
from devexplorer.core.split.records import InsertHops, Join, Split

pytestmark = pytest.mark.usefixtures("warm_processes")

pytest.importorskip("transformers")
FACTORY = """
from torch import nn


def net(width=8):
    return nn.Sequential(nn.Linear(20, width), nn.BatchNorm1d(width), nn.ReLU(), nn.Linear(width, 20))
"""


@pytest.fixture
def here() -> Iterator[Here]:
    made = Here("2x Tesla T4")
    yield made
    made.close()


def first_half(folder: Path) -> list[Command]:
    """Everything in it can be repeated."""
    (folder / "own models.py").write_text(FACTORY)
    embedding, head = TIED["llama-tiny"]
    weights = str(folder / "the weights.safetensors")
    return [
        NewTensor(name="ids", fill="text", text="[[3, 1, 4, 1], [5, 9, 2, 6]]", dtype="int64"),
        rec.OpenModel(source=SOURCES["llama-tiny"], name="llama", seed=1),
        lab.SetTraining(target="llama", on=False),
        Undo(),
        Redo(),
        Move(targets=("llama", "ids"), device="vgpu:0"),
        Move(targets=(f"llama:{BLOCK['llama-tiny']}",), device="vgpu:1"),
        InsertHops(target="llama"),
        Undo(),
        Undo(),
        Split(target="llama", device_map={"": "vgpu:0", "model.layers.1": "vgpu:1"}),
        rec.Save(targets=("llama",), path=weights),
        lab.Initialise(target=f"llama:{embedding}", rule="normal", options={"std": 0.5}, seed=3),
        rec.LoadCheckpoint(target="llama", path=weights),
        Undo(),
        lab.Untie(target=f"llama:{head}"),
        lab.Tie(first=f"llama:{embedding}", second=f"llama:{head}"),
        rec.OpenModel(
            source=f"{folder}/own models.py:net?width=6", name="own one", device="vgpu:1", seed=4, inputs="3x20"
        ),
        NewTensor(name="x", fill="randn", shape=(3, 20), device="vgpu:1", seed=5, requires_grad=True),
        Ask(target="own one:0.weight", question="device"),
        lab.SetRequiresGrad(targets=("own one:3",), on=False),
        Undo(),
        Redo(),
        lab.MakeOptimizer(target="own one", kind="adam", learning_rate=0.1),
        EditElement(target="own one:1.running_mean", index=(2,), value=0.5),
        Move(targets=("own one:3",), device="cpu", dtype="bfloat16"),
        Undo(),
        Move(targets=("own one",), device="vgpu:0", copy=True),
        Replicate(target="own one2", devices=("vgpu:0", "cpu")),
        rec.Load(
            path=weights,
            entries=("model.norm.weight", "model.layers.0.input_layernorm.weight"),
            name="norm",
            device="vgpu:1",
        ),
        Combine(left="x", right="x", operator="*", name="square"),
        Move(targets=("own one2",), device="vgpu:1", dtype="float64"),
        Remove(names=("own one2-0",)),
        BuildModel(recipe="lazy-mlp", name="lazy", device="vgpu:0"),
        Split(target="lazy", device_map={"": "vgpu:0", "2": "vgpu:1"}),
        BuildModel(recipe="two-towers", name="towers", seed=6),
        Split(target="towers", device_map={"query": "vgpu:0", "item": "vgpu:1"}),
        Join(target="towers", device="vgpu:1"),
        Undo(),
        Redo(),
    ]


def everything(here: Here) -> dict[str, Any]:
    workspace = here.engine.engine.workspace
    return {name: look(name, workspace.get(name)) for name in workspace.names}


def test_after_the_death_of_the_engine_what_can_be_repeated_is_there_and_the_rest_is_named(
    here: Here, tmp_path: Path
) -> None:
    for command in first_half(tmp_path):
        here.do(command)
    expected = everything(here)
    first = here.die()
    assert first.lost == ()
    assert set(first.restored) == set(expected)
    assert everything(here) == expected
    here.do(Undo())
    here.do(Redo())
    assert everything(here) == expected

    here.do(Forward(target="towers", output="kept"))
    here.do(lab.TrainStep(target="own one", input="x"))
    second = here.die()
    assert "kept: the result of a forward pass" in second.lost
    assert [line for line in second.lost if line.startswith("own one, ")] == [
        "own one, a step of the optimizer: it cannot be repeated",
        "own one, gradients of a backward pass: it cannot be repeated",
        "own one, running statistics changed by a forward pass: it cannot be repeated",
    ]
    assert everything(here) == expected
    script_gives_the_same(here, tmp_path)  # lost objects are no longer part of the session


def test_an_object_that_is_called_like_what_scripts_are_made_of_leaves_that_alone(here: Here, tmp_path: Path) -> None:
    for name in ("torch", "copy", "zoo", "print", "nn"):
        here.do(NewTensor(name=name, shape=(2,)))
        here.do(Move(targets=(name,), device="vgpu:0", copy=True))
    here.do(BuildModel(recipe="mlp", name="float"))
    here.do(Forward(target="float"))
    script_gives_the_same(here, tmp_path)
