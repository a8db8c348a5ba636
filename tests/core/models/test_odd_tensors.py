"""Unusual tensors: sparse, quantised, without values. Each command works or says why not."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.experiments.records import Ask
from devexplorer.core.files.records import OpenModel, Save
from devexplorer.core.parameters.records import (
    ClearGradients,
    Describe,
    Initialise,
    MakeOptimizer,
    SetRequiresGrad,
    TrainStep,
)
from devexplorer.core.records import Backward, Combine, Command, EditElement, Move, NewTensor, Redo, Remove, Undo

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def odd(kind: str) -> Tensor:
    match kind:
        case "sparse":
            return torch.eye(4).to_sparse()
        case "compressed":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # torch says that these are in beta
                return torch.eye(4).to_sparse_csr()
        case "without values":
            return torch.empty(2, 2, device="meta")
        case "quantised":
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                return torch.quantize_per_tensor(torch.ones(2, 2), 0.1, 0, torch.qint8)
        case "complex":
            return torch.ones(2, 2, dtype=torch.complex64).conj()
        case _:
            with torch.inference_mode():
                return torch.ones(2, 2)


QUESTIONS = ("type", "numpy", "item", "tolist", "is-leaf", "device", "cpu-numpy")


@pytest.mark.parametrize("kind", ["sparse", "compressed", "without values", "quantised", "complex", "inference"])
def test_every_command_works_or_says_in_one_line_why_not(place: Place, tmp_path: Path, kind: str) -> None:
    place.workspace.add("odd", odd(kind))
    commands: list[Command] = [
        *(Ask(target="odd", question=question) for question in QUESTIONS),
        Describe(target="odd"),
        EditElement(target="odd", index=(0, 0), value=2.0),
        Initialise(target="odd", rule="normal"),
        SetRequiresGrad(targets=("odd",), on=True),
        ClearGradients(target="odd"),
        Move(targets=("odd",), device="vgpu:0"),
        Move(targets=("odd",), device="vgpu:0", copy=True),
        Combine(left="odd", right="odd"),
        Save(targets=("odd",), path=str(tmp_path / "odd.pt"), form="pt"),
    ]
    for command in commands:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            answer = place.answer(command)  # anything but a refusal in words would be raised here
        assert answer.words
        assert "\n" not in answer.words
    place.do(Remove(names=("odd",)))
    assert "odd" not in place.workspace.names
    if place.workspace.history.state().title == "the removal of odd":
        place.do(Undo())
        assert place.workspace.tensor_named("odd").layout is odd(kind).layout


def test_an_element_of_a_complex_tensor_is_set_and_a_script_sets_it_too(place: Place) -> None:
    place.workspace.add("z", torch.zeros(2, dtype=torch.complex64))
    code = place.do(EditElement(target="z", index=(1,), value=2.5)).answer.code
    assert place.workspace.tensor_named("z").tolist() == [0, 2.5]
    z = torch.zeros(2, dtype=torch.complex64)
    exec(code, {"torch": torch, "z": z})
    assert z.tolist() == [0, 2.5]


class Sparse(nn.Module):
    """Gradients of its embedding are sparse, and so is a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(10, 4, sparse=True)
        self.register_buffer("mixing", torch.eye(4).to_sparse())

    def forward(self, ids: Tensor) -> Tensor:
        """Mixed embeddings."""
        out: Tensor = self.embedding(ids)
        return out


def test_sparse_gradients_are_kept_for_undo_counted_and_taken_back(place: Place) -> None:
    place.workspace.add("net", Sparse())
    place.do(NewTensor(name="ids", fill="text", text="[1, 2, 2]", dtype="int64"))
    place.do(Backward(target="net", input="ids"))
    net = place.workspace.get("net")
    assert isinstance(net, Sparse)
    once = net.embedding.weight.grad
    assert once is not None
    once = once.to_dense().clone()
    place.do(Backward(target="net", input="ids"))
    place.do(Undo())
    assert torch.equal(net.embedding.weight.grad.to_dense(), once)  # type: ignore[union-attr]
    assert place.workspace.history.state().kept_bytes > 0
    place.do(MakeOptimizer(target="net", kind="sgd"))
    place.do(TrainStep(target="net", input="ids"))
    place.do(Undo())
    place.do(Redo())
    place.do(MakeOptimizer(target="net", kind="adam"))
    weight = net.embedding.weight.detach().clone()
    assert "Adam does not support sparse gradients" in place.answer(TrainStep(target="net", input="ids")).words
    assert torch.equal(net.embedding.weight, weight)


def test_a_model_without_values_can_be_removed(place: Place) -> None:
    with torch.device("meta"):
        place.workspace.add("ghost", nn.Linear(3, 3))
    place.do(Remove(names=("ghost",)))
    place.do(Undo())
    assert place.workspace.names == ("ghost",)


def test_a_compiled_model_is_refused_on_opening(place: Place, tmp_path: Path) -> None:
    (tmp_path / "compiled.py").write_text(
        "import warnings\nimport torch\nfrom torch import nn\n\n\ndef net():\n    warnings.simplefilter('ignore')\n"
        "    return torch.jit.script(nn.Sequential(nn.Linear(2, 2)))\n"
    )
    answer = place.answer(OpenModel(source=f"{tmp_path}/compiled.py:net"))
    assert answer.failed
    assert "TorchScript" in answer.words
    assert place.workspace.names == ()
