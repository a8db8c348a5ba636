"""Tying and untying: one Parameter object under two names, and what cannot be tied."""

from __future__ import annotations

import pytest
import torch
from places import Place
from torch import nn

from devexplorer.core.base import BadInput
from devexplorer.core.parameters.records import MakeOptimizer, Tie, TrainStep, Untie
from devexplorer.core.records import BuildModel, Move, NewTensor, Redo, Undo


def model(place: Place, name: str) -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


def two_layers(place: Place) -> nn.Module:
    torch.manual_seed(0)
    made = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    place.workspace.add("net", made)
    return made


def test_tied_undone_and_tied_again(place: Place) -> None:
    net = two_layers(place)
    first, second = net[0].weight, net[1].weight
    outcome = place.do(Tie(first="net:0.weight", second="net:1.weight"))
    assert net[1].weight is net[0].weight is first
    assert sum(row.kind == "parameter" and row.tied_to is None for row in outcome.changed[0].rows) == 3
    place.do(Undo())
    assert net[1].weight is second
    place.do(Redo())
    assert net[1].weight is first
    copy = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 4))
    exec(outcome.answer.code, {"net": copy})
    assert copy[1].weight is copy[0].weight


def test_untied_with_the_same_values_and_the_code_does_the_same(place: Place) -> None:
    net = two_layers(place)
    place.do(Tie(first="net:0.weight", second="net:1.weight"))
    place.do(Move(targets=("net",), device="vgpu:0"))
    shared = net[0].weight
    answer = place.answer(Untie(target="net:1.weight"))
    own = net[1].weight
    assert net[0].weight is shared
    assert own is not shared
    assert isinstance(own, nn.Parameter)
    assert own.device == shared.device
    assert torch.equal(own.cpu(), shared.cpu())
    assert answer.words.startswith(
        "1.weight has a Parameter of its own now, with the values shared with 0.weight: 64 B more on vgpu:0."
    )
    place.do(Undo())
    assert net[1].weight is shared
    exec(answer.code, {"net": net})
    assert net[1].weight is not net[0].weight


def test_names_of_one_module_are_not_parted(place: Place) -> None:
    place.do(BuildModel(recipe="tied"))  # its layers 2 and 4 are one module
    tied = model(place, "tied")
    with pytest.raises(BadInput, match="two names of one module"):
        place.do(Untie(target="tied:4.weight"))
    place.do(Tie(first="tied:0.bias", second="tied:2.bias"))
    assert tied.get_parameter("4.bias") is tied.get_parameter("0.bias")
    answer = place.answer(Untie(target="tied:4.bias"))
    assert tied.get_parameter("4.bias") is tied.get_parameter("2.bias")
    assert tied.get_parameter("4.bias") is not tied.get_parameter("0.bias")
    assert answer.words.startswith(
        "4.bias and 2.bias have a Parameter of their own now, with the values shared with 0.bias"
    )


def test_what_cannot_be_tied(place: Place) -> None:
    two_layers(place)
    place.do(BuildModel(recipe="mlp"))
    place.do(BuildModel(recipe="tied"))
    place.do(BuildModel(recipe="resnet18"))
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(NewTensor(name="x", shape=(4, 4)))
    lazy = [path for path, _ in model(place, "lazy-mlp").named_parameters()]
    buffers = [path for path, buffer in model(place, "resnet18").named_buffers() if buffer.dim() == 1]
    for first, second, reason in (
        ("mlp:0.weight", "mlp:2.weight", "one shape"),
        ("mlp:0.weight", "net:0.weight", "two models"),
        ("tied:2.weight", "tied:4.weight", "one Parameter already"),
        ("net:0.weight", "x", "write model:path"),
        (f"resnet18:{buffers[0]}", f"resnet18:{buffers[1]}", "buffer"),
        (f"lazy-mlp:{lazy[0]}", f"lazy-mlp:{lazy[2]}", "before the first forward"),
    ):
        with pytest.raises(BadInput, match=reason):
            place.do(Tie(first=first, second=second))
    place.do(Move(targets=("net:1",), device="vgpu:1", dtype="half"))
    with pytest.raises(BadInput) as told:
        place.do(Tie(first="net:0.weight", second="net:1.weight"))
    assert len(told.value.findings) == 2
    with pytest.raises(BadInput, match="is not tied"):
        place.do(Untie(target="net:0.weight"))


def test_the_lists_of_an_lstm_are_renewed_and_come_back(place: Place) -> None:
    place.workspace.add("net", nn.LSTM(4, 4, num_layers=2))
    lstm = model(place, "net")
    assert isinstance(lstm, nn.LSTM)
    lost = lstm.weight_hh_l1
    place.do(Tie(first="net:weight_hh_l0", second="net:weight_hh_l1"))
    assert any(weight is lstm.weight_hh_l0 for weight in lstm._flat_weights)
    assert not any(weight is lost for weight in lstm._flat_weights)
    assert not any(weak() is lost for weak in lstm._flat_weight_refs if weak is not None)
    lstm(torch.ones(2, 1, 4))[0].sum().backward()
    assert lost.grad is None
    place.do(Undo())
    assert any(weight is lost for weight in lstm._flat_weights)


def test_the_optimizer_that_holds_the_lost_parameter_is_named(place: Place) -> None:
    net = two_layers(place)
    place.do(MakeOptimizer(target="net", kind="momentum", learning_rate=0.5))
    answer = place.answer(Tie(first="net:0.weight", second="net:1.weight"))
    assert "still holds the Parameter that is no longer in the model" in answer.words
    (offer,) = answer.offers
    assert offer.command == MakeOptimizer(target="net", kind="momentum", learning_rate=0.5)
    place.do(offer.command)
    place.workspace.add("x", torch.ones(1, 4))
    before = net[1].weight.detach().clone()
    place.do(TrainStep(target="net", input="x"))
    assert not torch.equal(net[0].weight, before)
    answer = place.answer(Untie(target="net:1.weight"))
    assert "does not hold the new Parameter" in answer.words


def test_no_budget_for_undo_is_needed(place: Place) -> None:
    """Tying copies nothing: the lost Parameter is kept as it is."""
    net = two_layers(place)
    place.do(Tie(first="net:0.weight", second="net:1.weight"))
    assert place.workspace.history.state().kept_bytes == net[0].weight.nbytes
