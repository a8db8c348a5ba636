"""What work concerns, and how it is called there."""

from __future__ import annotations

import pytest

from devexplorer.core.model_steps.kind import ModelSpec
from devexplorer.core.records import (
    BuildModel,
    Check,
    Command,
    Forward,
    MatmulSpec,
    Move,
    NewTensor,
    Remove,
    StartBenchmark,
    Steps,
)
from devexplorer.core.session import Progress, device_of, objects_of, verb_of

MOVE = Move(targets=("mlp:0", "x"), device="vgpu:0")
COPY = Move(targets=("x",), device="vgpu:1", copy=True)
MODEL = StartBenchmark(spec=ModelSpec(target="mlp", device="vgpu:0"))
MATMUL = StartBenchmark(spec=MatmulSpec(device="vgpu:0", m=8, n=8, k=8))


@pytest.mark.parametrize(
    ("command", "verb", "objects", "device"),
    [
        (MOVE, "moving", ["mlp", "x"], "vgpu:0"),
        (COPY, "copying", ["x"], "vgpu:1"),
        (Check(target="mlp", device="vgpu:0"), "checking", ["mlp"], None),
        (Steps(commands=(MOVE, Forward(target="mlp:0"))), "moving", ["mlp", "x", "mlp"], "vgpu:0"),
        (Steps(commands=(MOVE, Steps(commands=(COPY,)))), "copying", ["mlp", "x", "x"], None),
        (BuildModel(recipe="mlp", device="vgpu:0"), "building", [], "vgpu:0"),
        (MODEL, "measuring", ["mlp"], None),
        (MATMUL, "measuring", [], None),
        (NewTensor(), "working", [], "cpu"),
        (Remove(names=("x",)), "working", [], None),
    ],
)
def test_what_a_command_concerns(command: Command, verb: str, objects: list[str], device: str | None) -> None:
    assert verb_of(command) == verb
    assert list(objects_of(command)) == objects
    assert device_of(command) == device


def test_how_far_it_is_in_words() -> None:
    assert Progress("moving", 0.424, "moving mlp to vgpu:1").words == "moving 42 %"
    assert Progress("checking", None, "checking mlp").words == "checking"
