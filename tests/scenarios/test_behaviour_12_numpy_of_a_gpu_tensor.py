"""Behaviour 12: `.numpy()` of a tensor on a GPU: the TypeError is explained, one click copies, and the original stays
on the GPU."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.experiments.records import Ask
from devexplorer.core.records import BuildModel, NewTensor


def test_the_type_error_is_shown_and_explained_and_one_click_gives_the_array(place: Place) -> None:
    if place.second is None:
        assert place.offers_virtual_gpus(NewTensor(name="x", shape=(2, 3), device="cuda:0"))
        return
    place.do(NewTensor(name="x", shape=(2, 3), device=place.first))
    x = place.workspace.get("x")
    before = place.snapshot("x")
    answer = place.answer(Ask(target="x", question="numpy"))
    assert answer.failed
    assert answer.title == "x.numpy() raises TypeError"
    assert (
        f"can't convert {place.first} device type tensor to numpy. Use Tensor.cpu() to copy the tensor to host memory"
        in answer.words
    )
    assert f"x stays on {place.first}" in answer.words
    assert [offer.command for offer in answer.offers] == [Ask(target="x", question="cpu-numpy")]
    assert ".cpu().numpy()" in answer.offers[0].label

    copied = place.do(answer.offers[0].command)
    assert not copied.answer.failed
    assert copied.answer.code == "print(x.cpu().numpy())"
    facts = {fact.label: fact.value for fact in copied.answer.facts}
    assert facts["array"] == "2×3 float32"
    assert facts["x is on"] == place.first
    assert facts["copied"] == "24 B"
    assert ("simulated" in facts["time"]) == (place.kind == "vgpu")
    assert place.workspace.get("x") is x
    assert str(x.device) == place.first
    assert place.snapshot("x") == before
    assert (copied.changed, copied.events) == ((), ())


def test_a_parameter_needs_detach_too(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    answer = place.answer(Ask(target="mlp:0.weight", question="numpy"))
    assert answer.failed
    assert ".detach() gives the same values without the graph" in answer.words
    assert ("TypeError" in answer.title) == (place.kind != "cpu")  # CUDA checks the device before autograd
    copied = place.answer(answer.offers[0].command)
    assert copied.code == 'print(mlp.get_parameter("0.weight").detach().cpu().numpy())'
    model = place.workspace.get("mlp")
    assert isinstance(model, torch.nn.Module)
    assert {(str(p.device), p.requires_grad) for p in model.parameters()} == {(place.first, True)}


def test_on_the_cpu_the_array_is_the_same_memory(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(2, 3)))
    answer = place.answer(Ask(target="x", question="numpy"))
    assert not answer.failed
    assert answer.title == "x is a NumPy array without a copy"
    assert "changing one changes the other" in answer.words
