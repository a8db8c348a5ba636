"""Side effects of forward and backward outside the model: gradients in inputs, graphs held by other tensors, process
settings."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.parameters.records import MakeOptimizer, TrainStep
from devexplorer.core.records import Backward, BuildModel, Check, Combine, Command, Forward, Move, NewTensor, Redo, Undo

pytestmark = pytest.mark.usefixtures("warm_processes")


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("cpu") as made:
        made.do(BuildModel(recipe="mlp", name="net"))
        made.do(NewTensor(name="x", fill="rand", shape=(2, 20), requires_grad=True))
        made.do(MakeOptimizer(target="net", kind="sgd"))
        yield made


@pytest.mark.parametrize("command", [Backward(target="net", input="x"), TrainStep(target="net", input="x")])
def test_a_gradient_that_arrives_in_an_input_is_reported_and_taken_back(place: Place, command: Command) -> None:
    told = {snapshot.name: snapshot for snapshot in place.do(command).changed}
    assert "grad" in {row.path for row in told["x"].rows}
    assert place.held("cpu") == sum(
        snapshot.bytes_by_device["cpu"] for snapshot in (place.snapshot("net"), place.snapshot("x"))
    )
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


class Masked(nn.Module):
    """Keeps a mask that does not move, draws noise on the CPU when it is told to, and counts its calls."""

    def __init__(self, noisy: bool = False) -> None:
        super().__init__()
        self.noisy = noisy
        self.layer = nn.Linear(4, 4)
        self.mask = torch.ones(4)
        self.calls = 0

    def forward(self, x: Tensor) -> Tensor:
        """The layer's output, masked."""
        self.calls += 1
        if self.noisy:
            noise = torch.randn(4)
            x = x + noise
        out: Tensor = self.layer(x) * self.mask
        return out


def line_of(text: str) -> int:
    return next(number for number, line in enumerate(Path(__file__).read_text().splitlines(), start=1) if text in line)


@pytest.fixture
def cards() -> Iterator[Place]:
    with place_of("vgpu") as made:
        made.do(NewTensor(name="x", shape=(2, 4), device="vgpu:0"))
        yield made


def test_an_attribute_that_stayed_behind_is_named_with_the_line(cards: Place) -> None:
    pytest.importorskip("devexplorer.core.doctor")
    cards.workspace.add("own", Masked())
    cards.do(Move(targets=("own",), device="vgpu:0"))
    answer = cards.answer(Forward(target="own", input="x"))
    line = line_of("self.layer(x) * self.mask")
    assert f"It stopped in the model itself (Masked) at line {line} of test_running.py" in answer.words
    assert "mask (not registered) is on cpu" in answer.words
    assert 'self.register_buffer("mask", ...)' in answer.words
    facts = {fact.label: fact.value for fact in answer.facts}
    assert facts["line"] == f"test_running.py:{line}"
    assert "output of layer is on vgpu:0" in facts["operands"]
    assert Check(target="own", device="vgpu:0") in [offer.command for offer in answer.offers]


def test_a_tensor_that_forward_makes_on_the_cpu_is_to_blame_at_its_own_line(cards: Place) -> None:
    pytest.importorskip("devexplorer.core.doctor")
    cards.workspace.add("own", Masked(noisy=True))
    cards.do(Move(targets=("own",), device="vgpu:0"))
    before = torch.get_rng_state()
    answer = cards.answer(Forward(target="own", input="x"))
    after = torch.get_rng_state()
    torch.set_rng_state(before)
    torch.randn(4)
    assert torch.equal(torch.get_rng_state(), after), "one forward drew numbers, not two"
    assert answer.title == "own: tensors on different devices"
    assert f"at line {line_of('x = x + noise')} of test_running.py. torch.randn makes its tensor on cpu" in answer.words
    assert "device=x.device" in answer.words


def test_an_error_that_is_not_about_devices_is_not_run_again(cards: Place) -> None:
    model = Masked()
    cards.workspace.add("own", model)
    cards.do(NewTensor(name="wide", shape=(2, 7)))
    answer = cards.answer(Forward(target="own", input="wide"))
    assert answer.failed
    assert model.calls == 1
    assert not answer.offers
