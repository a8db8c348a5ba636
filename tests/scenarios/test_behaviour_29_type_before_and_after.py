"""Behaviour 29: `x.type()` before and after a move: torch.FloatTensor becomes torch.cuda.FloatTensor; a model's class
does not change."""

from __future__ import annotations

from places import Place

from devexplorer.core.experiments.records import Ask
from devexplorer.core.records import BuildModel, Move, NewTensor


def said(place: Place, target: str) -> dict[str, str]:
    answer = place.answer(Ask(target=target, question="type"))
    assert not answer.failed
    return {fact.label: fact.value for fact in answer.facts}


def test_a_tensor_s_type_follows_the_device(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(2,)))
    before = said(place, "x")
    assert before["type()"] == "torch.FloatTensor"
    assert before["on a real CUDA GPU"] == "torch.cuda.FloatTensor"
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("x",), device="cuda:0"))
        return
    place.do(Move(targets=("x",), device=place.first))
    after = said(place, "x")
    assert after["type()"] == f"torch.{place.first.partition(':')[0]}.FloatTensor"
    assert (after["on the CPU"], after["on a real CUDA GPU"]) == ("torch.FloatTensor", "torch.cuda.FloatTensor")
    words = place.answer(Ask(target="x", question="type")).words
    assert ("A real card would say torch.cuda.FloatTensor" in words) == (place.kind == "vgpu")


def test_a_model_s_class_does_not_change(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    before = said(place, "mlp")
    assert (before["type"], before["tensors"]) == ("torch.nn.modules.container.Sequential", "torch.FloatTensor")
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("mlp",), device="cuda:0"))
        return
    place.do(Move(targets=("mlp",), device=place.first))
    after = said(place, "mlp")
    assert after["type"] == before["type"]
    assert after["tensors"] == f"torch.{place.first.partition(':')[0]}.FloatTensor"
    assert "leaves the object what it is" in place.answer(Ask(target="mlp", question="type")).words
