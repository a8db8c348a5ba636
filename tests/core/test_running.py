"""What a forward and a backward leave beside the model: gradients in inputs, graphs that other tensors hold, settings of the process."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.records.laboratory import MakeOptimizer, TrainStep
from devexplorer.core.records.messages import Backward, BuildModel, Combine, Command, Forward, NewTensor, Redo, Undo


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        made.do(BuildModel(recipe="mlp", name="net"))
        made.do(NewTensor(name="x", fill="rand", shape=(2, 20), requires_grad=True))
        made.do(MakeOptimizer(target="net", kind="sgd"))
        yield made


@pytest.mark.parametrize("command", [Backward(target="net", input="x"), TrainStep(target="net", input="x")])
def test_a_gradient_that_arrives_in_an_input_is_told_and_taken_back(place: Place, command: Command) -> None:
    told = {snapshot.name: snapshot for snapshot in place.do(command).changed}
    assert "grad" in {row.path for row in told["x"].rows}
    assert place.held("cpu") == sum(snapshot.bytes_by_device["cpu"] for snapshot in (place.snapshot("net"), place.snapshot("x")))
    undone = {snapshot.name: snapshot for snapshot in place.do(Undo()).changed}
    assert {row.path for row in undone["x"].rows} == {""}
    assert place.workspace.tensor_named("x").grad is None


def test_a_gradient_goes_through_a_result_to_where_it_came_from_and_again_after_undo(place: Place) -> None:
    place.do(Combine(left="x", right="x", operator="*", name="square"))
    outcome = place.do(Backward(target="net", input="square"))
    assert {snapshot.name for snapshot in outcome.changed} == {"net", "x"}
    assert "One arrived in x too." in outcome.answer.words
    assert "backward(retain_graph=True)" in outcome.answer.code
    place.do(Undo())
    place.do(Redo())  # the graph of the result is there still
    once = place.workspace.tensor_named("x").grad
    assert once is not None
    once = once.clone()
    place.do(Backward(target="net", input="square"))
    assert torch.allclose(place.workspace.tensor_named("x").grad, 2 * once)  # type: ignore[arg-type]


class Meddling(nn.Module):
    """Changes settings of the whole process while it runs."""

    def __init__(self, fails: bool) -> None:
        super().__init__()
        self.fails = fails
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output."""
        torch.set_default_dtype(torch.float64)
        torch.set_default_device("meta")
        if self.fails:
            raise ValueError("after that")
        out: Tensor = self.layer(x)
        return out


@pytest.mark.parametrize("fails", [False, True])
def test_settings_that_a_models_forward_changes_are_put_back(place: Place, fails: bool) -> None:
    place.workspace.add("own", Meddling(fails))
    place.workspace.add("fed", torch.ones(2, 4))
    for command in (Forward(target="own", input="fed"), Forward(target="own"), Backward(target="own", input="fed")):
        assert place.answer(command).failed == fails or command.input is None
        assert torch.get_default_dtype() is torch.float32
        assert torch.get_default_device() == torch.device("cpu")
