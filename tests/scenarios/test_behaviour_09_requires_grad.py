"""Behaviour 09: a tensor that requires grad is moved: the result is not a leaf tensor and its grad_fn is shown; moving
first and
wrapping after."""

from __future__ import annotations

import torch
from places import Place
from torch import Tensor

from devexplorer.core.parameters.records import SetRequiresGrad
from devexplorer.core.records import Move, NewTensor


def tensor(place: Place, name: str) -> Tensor:
    found = place.workspace.get(name)
    assert isinstance(found, Tensor)
    return found


def moved(place: Place, name: str, *, requires_grad: bool) -> bool:
    """Create a tensor and move it; False if there is only one device, and the answer says what is missing."""
    place.do(NewTensor(name=name, fill="rand", shape=(3,), device=place.first, requires_grad=requires_grad))
    command = Move(targets=(name,), device=place.second or "cuda:0")
    if place.second is None:
        assert place.offers_virtual_gpus(command)
        return False
    answer = place.answer(command)
    assert not answer.failed
    if requires_grad:
        assert f"the result is not a leaf tensor: its grad_fn is {place.snapshot(name).rows[0].grad_fn}" in answer.words
        assert "move first and call requires_grad_() then" in answer.words
    else:
        assert "no leaf" not in answer.words
    return True


def test_the_result_of_the_move_is_no_leaf_and_its_origin_is_shown(place: Place) -> None:
    if not moved(place, "x", requires_grad=True):
        return
    row = place.snapshot("x").rows[0]
    assert (row.is_leaf, row.requires_grad) == (False, True)
    assert row.grad_fn is not None
    assert "Copy" in row.grad_fn


def test_moved_first_and_told_after_it_is_a_leaf(place: Place) -> None:
    if not moved(place, "x", requires_grad=False):
        return
    place.do(SetRequiresGrad(targets=("x",), on=True))
    row = place.snapshot("x").rows[0]
    assert (row.is_leaf, row.requires_grad, row.grad_fn, row.devices) == (True, True, None, (place.second,))


def test_the_two_compared_where_the_gradient_arrives(place: Place) -> None:
    if not moved(place, "late", requires_grad=True):
        return
    moved(place, "early", requires_grad=False)
    place.do(SetRequiresGrad(targets=("early",), on=True))
    for name in ("late", "early"):
        (tensor(place, name) * 2).sum().backward()
    gradient = tensor(place, "early").grad
    assert gradient is not None
    assert gradient.device == tensor(place, "early").device
    (origin,) = [following for following, _ in tensor(place, "late").grad_fn.next_functions]  # type: ignore[union-attr]
    leaf = origin.variable  # type: ignore[union-attr]
    assert leaf.device == torch.device(place.first)
    assert leaf.grad.device == torch.device(place.first)


def test_the_result_cannot_be_frozen_and_the_reason_is_given(place: Place) -> None:
    if not moved(place, "x", requires_grad=True):
        return
    answer = place.answer(SetRequiresGrad(targets=("x",), on=False))
    assert answer.failed
    assert "is not a leaf" in answer.words
    assert "detach()" in answer.words
    assert tensor(place, "x").requires_grad


def test_a_cast_on_one_device_does_the_same(place: Place) -> None:
    place.do(NewTensor(name="x", fill="rand", shape=(3,), device=place.first, requires_grad=True))
    answer = place.answer(Move(targets=("x",), device=place.first, dtype="float64"))
    assert "the result is not a leaf tensor" in answer.words
    assert place.snapshot("x").rows[0].is_leaf is False
