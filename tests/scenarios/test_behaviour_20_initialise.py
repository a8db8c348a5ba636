"""Behaviour 20: initial values: normal, constant, Xavier, a piecewise rule; one element edited; histograms before and
after."""

from __future__ import annotations

import math

import pytest
import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.parameters.records import Describe, Initialise, Values, ValuesDescribed
from devexplorer.core.records import BuildModel, EditElement, Move, Undo


def weight(place: Place) -> Tensor:
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    return model.get_parameter("0.weight").detach().cpu().clone()


def initialised(place: Place, rule: str, **options: float) -> tuple[Values, Values]:
    """Histograms of before and after."""
    (event,) = place.do(Initialise(target="mlp:0.weight", rule=rule, options=options)).events
    assert isinstance(event, ValuesDescribed)
    assert event.before is not None
    assert sum(event.before.counts) == sum(event.values.counts) == event.values.elements
    assert event.values.device == place.first
    assert event.values.simulated == (place.kind == "vgpu")
    return event.before, event.values


@pytest.fixture(autouse=True)
def mlp(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))


def test_normal(place: Place) -> None:
    before, after = initialised(place, "normal", std=0.01)
    assert before.std == pytest.approx(0.128, abs=0.01)
    assert after.std == pytest.approx(0.01, rel=0.05)
    middle, edge = after.counts[len(after.counts) // 2], after.counts[0]
    assert middle > 5 * edge
    answer = place.answer(Describe(target="mlp:0.weight"))
    assert answer.title == "The values of mlp:0.weight"


def test_constant(place: Place) -> None:
    _, after = initialised(place, "constant", value=1)
    assert (after.minimum, after.maximum, after.std) == (1.0, 1.0, 0.0)
    assert max(after.counts) == after.elements
    assert weight(place).unique().tolist() == [1.0]


def test_xavier(place: Place) -> None:
    _, after = initialised(place, "xavier-uniform")
    bound = math.sqrt(6 / (20 + 256))
    assert after.maximum is not None
    assert bound * 0.99 < after.maximum <= bound
    answer = place.answer(Initialise(target="mlp:0.bias", rule="xavier-uniform"))
    assert answer.failed
    assert "two dimensions" in answer.words


def test_the_piecewise_rule_of_the_tutorial(place: Place) -> None:
    _, after = initialised(place, "piecewise", low=-10, high=10, threshold=5)
    assert after.zeros == pytest.approx(after.elements / 2, rel=0.05)
    kept = weight(place)[weight(place) != 0]
    assert float(kept.abs().min()) >= 5


def test_one_element_is_edited_and_seen(place: Place) -> None:
    place.do(Initialise(target="mlp:0.weight", rule="zeros"))
    place.do(EditElement(target="mlp:0.weight", index=(0, 0), value=42.0))
    (event,) = place.do(Describe(target="mlp:0.weight")).events
    assert isinstance(event, ValuesDescribed)
    assert (event.values.maximum, event.values.zeros) == (42.0, event.values.elements - 1)
    assert event.values.first.startswith("42")


def test_values_survive_a_move_and_undo_brings_the_old_ones_back(place: Place) -> None:
    old = weight(place)
    place.do(Initialise(target="mlp", rule="kaiming-normal", seed=3))
    new = weight(place)
    assert not torch.equal(old, new)
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("mlp",), device="cuda:0"))
    else:
        place.do(Move(targets=("mlp",), device=place.second))
        assert torch.equal(weight(place), new)
        place.do(Undo())
    place.do(Undo())
    assert torch.equal(weight(place), old)
