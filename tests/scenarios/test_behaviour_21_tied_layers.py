"""Behaviour 21: two layers are tied: one Parameter, two names, counted once; one change changes both; gradients add; tied after a move."""

from __future__ import annotations

import torch
from places import Place
from torch import nn

from devexplorer.core.records.messages import Backward, BuildModel, EditElement, Move
from devexplorer.core.workspace import zoo


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
    apart = zoo.build("tied")
    apart[4] = nn.Linear(256, 256)  # type: ignore[operator]
    apart.get_submodule("4").load_state_dict(apart.get_submodule("2").state_dict())
    (sample,) = zoo.find("tied").sample()
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
    assert "still shared" in outcome.answer.words
