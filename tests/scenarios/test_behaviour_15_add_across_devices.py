"""Behaviour 15: tensors from two GPUs cannot be added; one is copied over, then it works."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.records import Combine, Move, NewTensor, Redo, Steps, Undo


def test_error_first_then_a_copy_then_the_sum(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(2, 3), device=place.first))
    if place.second is None:
        assert place.offers_virtual_gpus(NewTensor(name="y", shape=(2, 3), device="cuda:1"))
        return
    place.do(NewTensor(name="y", shape=(2, 3), device=place.second))
    answer = place.answer(Combine(left="x", right="y", name="z"))
    assert answer.failed
    assert f"x is on {place.first} and y is on {place.second}" in answer.words
    assert "copy one over" in answer.words
    offer = answer.offers[0]
    assert offer.label == f"Copy y to {place.first} and add"
    assert offer.command == Steps(
        commands=(Move(targets=("y",), device=place.first, copy=True), Combine(left="x", right="y", name="z"))
    )

    result = place.do(offer.command)
    assert not result.answer.failed
    assert result.report is not None
    (copy,) = result.report.created
    assert result.answer.code == f'{copy} = y.to("{place.first}", copy=True)\nz = x + {copy}'
    z = place.workspace.get("z")
    assert isinstance(z, torch.Tensor)
    assert str(z.device) == place.first
    assert z.tolist() == [[2.0] * 3] * 2
    assert place.snapshot("y").bytes_by_device == {place.second: 24}
    assert place.workspace.history.state().title == f"the copy of y to {place.first} and the new tensor z"
    place.do(Undo())
    assert place.workspace.names == ("x", "y")
    place.do(Redo())
    assert set(place.workspace.names) == {"x", "y", copy, "z"}


def test_on_one_device_it_just_works(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(2,), device=place.first))
    place.do(NewTensor(name="y", shape=(2,), device=place.first))
    answer = place.answer(Combine(left="x", right="y"))
    assert not answer.failed
    assert answer.code == "result = x + y"
