"""Behaviour 6: moving a tensor creates a new one, the old one stays where it was; `is`, addresses and reassigning are
explained."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.records import Move, NewTensor


def test_a_move_makes_a_new_tensor_and_rebinds_the_name(place: Place) -> None:
    place.do(NewTensor(fill="arange", shape=(6,), dtype="float32"))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("x",), device="cuda:0"))
        return
    old = place.workspace.get("x")
    assert isinstance(old, torch.Tensor)
    before = place.snapshot("x").rows[0]
    answer = place.do(Move(targets=("x",), device=place.first)).answer
    new = place.workspace.get("x")
    assert isinstance(new, torch.Tensor)
    assert new is not old
    assert old.device.type == "cpu"
    assert old.tolist() == new.tolist() == [0, 1, 2, 3, 4, 5]
    facts = {fact.label: fact.value for fact in answer.facts}
    assert facts["same object"].startswith("no")
    assert facts["storage"] == f"{before.storage:#x} on cpu → {place.snapshot('x').rows[0].storage:#x} on {place.first}"
    assert "made a new tensor" in answer.words
    assert "the name x now means that one" in answer.words
    assert answer.code == f'x = x.to("{place.first}")'


def test_copying_keeps_the_original_under_its_name(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(6,)))
    target = place.first
    outcome = place.do(Move(targets=("x",), device=target, copy=True))
    assert outcome.report is not None
    assert outcome.report.created == ("x2",)
    assert place.snapshot("x").bytes_by_device == {"cpu": 24}
    assert place.snapshot("x2").bytes_by_device == {target: 24}
    assert "The original stays where it was" in outcome.answer.words
    assert outcome.answer.code == f'x2 = x.to("{target}", copy=True)'


def test_a_tensor_that_requires_grad_becomes_no_leaf_and_that_is_explained(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(6,), requires_grad=True))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("x",), device="cuda:0"))
        return
    old = place.workspace.get("x")
    answer = place.do(Move(targets=("x",), device=place.first)).answer
    row = place.snapshot("x").rows[0]
    assert row.is_leaf is False
    assert row.grad_fn is not None
    assert row.grad_fn in answer.words
    place.workspace.history.undo()
    assert place.workspace.get("x") is old
