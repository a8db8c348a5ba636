"""Behaviour 21: two layers are tied: one Parameter, two names, counted once; one change changes both; gradients add;
tied after a move."""

from __future__ import annotations

import copy

import torch
from places import Place
from torch import nn

from devexplorer.core.models import samples
from devexplorer.core.parameters.records import MakeOptimizer, Tie, TrainStep, Untie
from devexplorer.core.records import Backward, BuildModel, EditElement, Move


def tied(place: Place) -> nn.Module:
    model = place.workspace.get("tied")
    assert isinstance(model, nn.Module)
    return model


def test_one_parameter_two_names_counted_once(place: Place) -> None:
    answer = place.do(BuildModel(recipe="tied", device=place.first)).answer
    assert "2.weight and 4.weight are two names of one Parameter" in answer.words
    snapshot = place.snapshot("tied")
    rows = {row.path: row for row in snapshot.rows}
    assert rows["4.weight"].tied_to == "2.weight"
    assert rows["4.weight"].identity == rows["2.weight"].identity
    assert snapshot.bytes_by_device == {place.first: sum(p.nbytes for p in tied(place).parameters())}


def test_changing_one_changes_both(place: Place) -> None:
    place.do(BuildModel(recipe="tied", device=place.first))
    answer = place.answer(EditElement(target="tied:4.bias", index=(0,), value=9))
    assert tied(place).get_parameter("2.bias")[0].item() == 9
    assert "2.bias is the very same Parameter" in answer.words


def test_gradients_of_both_uses_add_up(place: Place) -> None:
    place.do(BuildModel(recipe="tied", device=place.first))
    answer = place.answer(Backward(target="tied"))
    assert "gradients of both uses add up" in answer.words
    apart = samples.build("tied")
    apart[4] = nn.Linear(256, 256)  # type: ignore[operator]
    apart.get_submodule("4").load_state_dict(apart.get_submodule("2").state_dict())
    (sample,) = samples.find("tied").sample()
    apart(sample).sum().backward()
    first, second = apart.get_parameter("2.weight").grad, apart.get_parameter("4.weight").grad
    together = tied(place).get_parameter("2.weight").grad
    assert first is not None
    assert second is not None
    assert together is not None
    assert torch.allclose(together.cpu(), first + second, atol=1e-5)


def test_still_tied_after_a_move(place: Place) -> None:
    place.do(BuildModel(recipe="tied"))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("tied",), device="cuda:0"))
        return
    outcome = place.do(Move(targets=("tied",), device=place.first))
    assert outcome.report is not None
    assert outcome.report.parameters == 6
    assert tied(place).get_parameter("2.weight") is tied(place).get_parameter("4.weight")
    assert any(fact.label == "tied" and "still shared" in fact.value for fact in outcome.answer.facts)


def net(place: Place) -> nn.Module:
    """Two custom layers, not tied yet."""
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4)).to(place.first)
    place.workspace.add("net", made)
    place.workspace.add("x", torch.ones(1, 4, device=place.first))
    return made


def test_two_layers_are_tied_by_hand(place: Place) -> None:
    model = net(place)
    held = place.held(place.first)
    answer = place.answer(Tie(first="net:0.weight", second="net:2.weight"))
    assert "two names of one Parameter" in answer.words
    assert model.get_parameter("2.weight") is model.get_parameter("0.weight")
    assert place.held(place.first) == held - 64
    rows = {row.path: row for row in place.snapshot("net").rows}
    assert rows["2.weight"].tied_to == "0.weight"
    place.do(EditElement(target="net:2.weight", index=(1, 1), value=5))
    assert model.get_parameter("0.weight")[1, 1].item() == 5


def test_gradients_of_layers_tied_by_hand_add_up(place: Place) -> None:
    model = net(place)
    apart = copy.deepcopy(model)
    with torch.no_grad():
        apart.get_parameter("2.weight").copy_(apart.get_parameter("0.weight"))
    place.do(Tie(first="net:0.weight", second="net:2.weight"))
    place.do(Backward(target="net", input="x"))
    x = place.workspace.get("x")
    assert isinstance(x, torch.Tensor)
    apart(x).sum().backward()
    first, second = apart.get_parameter("0.weight").grad, apart.get_parameter("2.weight").grad
    together = model.get_parameter("0.weight").grad
    assert first is not None
    assert second is not None
    assert together is not None
    assert torch.allclose(together.cpu(), (first + second).cpu(), atol=1e-6)


def test_tied_by_hand_and_still_tied_after_a_move_and_untied_again(place: Place) -> None:
    model = net(place)
    place.do(Tie(first="net:0.weight", second="net:2.weight"))
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("net",), device="cuda:0"))
    else:
        place.do(Move(targets=("net",), device=place.second))
    assert model.get_parameter("2.weight") is model.get_parameter("0.weight")
    place.do(Untie(target="net:2.weight"))
    assert model.get_parameter("2.weight") is not model.get_parameter("0.weight")
    assert torch.equal(model.get_parameter("2.weight").cpu(), model.get_parameter("0.weight").cpu())
    assert model.get_parameter("2.weight").device == model.get_parameter("0.weight").device


def test_layers_on_two_devices_cannot_be_tied(place: Place) -> None:
    net(place)
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("net:2",), device="cuda:0"))
        return
    place.do(Move(targets=("net:2",), device=place.second))
    answer = place.answer(Tie(first="net:0.weight", second="net:2.weight"))
    assert answer.failed
    assert "move one of them first" in answer.words


def test_a_training_step_changes_a_tied_parameter_once(place: Place) -> None:
    model = net(place)
    place.do(Tie(first="net:0.weight", second="net:2.weight"))
    place.do(MakeOptimizer(target="net", kind="sgd", learning_rate=0.1))
    before = model.get_parameter("0.weight").detach().clone()
    answer = place.answer(TrainStep(target="net", input="x"))
    gradient = model.get_parameter("0.weight").grad
    assert gradient is not None
    assert "3 parameters changed" in answer.words
    assert torch.allclose((before - 0.1 * gradient).cpu(), model.get_parameter("2.weight").detach().cpu(), atol=1e-6)
