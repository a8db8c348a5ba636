"""Behaviour 7: moving to the same device returns the same object: no copy, no new memory."""

from __future__ import annotations

import pytest
from places import Place

from devexplorer.core.records import BuildModel, Move, NewTensor


@pytest.mark.parametrize("what", ["tensor", "model"])
def test_the_same_object_comes_back(place: Place, what: str) -> None:
    name = "x" if what == "tensor" else "mlp"
    place.do(
        NewTensor(shape=(100,), device=place.first)
        if what == "tensor"
        else BuildModel(recipe="mlp", device=place.first)
    )
    thing, before, undo = place.workspace.get(name), place.snapshot(name), place.workspace.history.state()
    allocated = 0 if place.kind == "cpu" else place.allocated(place.first)
    outcome = place.do(Move(targets=(name,), device=place.first))
    assert outcome.report is not None
    assert outcome.report.already_there
    assert outcome.report.bytes == 0
    assert outcome.changed == ()
    assert place.workspace.get(name) is thing
    assert place.snapshot(name) == before
    assert place.workspace.history.state() == undo, "there is nothing to take back"
    assert allocated == (0 if place.kind == "cpu" else place.allocated(place.first))
    assert outcome.answer.title == f"{name} is on {place.first} already"
    assert "same object" in outcome.answer.words
    assert outcome.answer.code == f'{name}.to("{place.first}") is {name}  # True'


def test_a_device_that_is_absent_is_another_matter(place: Place) -> None:
    place.do(NewTensor(shape=(1,)))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("x",), device="cuda:1"))
