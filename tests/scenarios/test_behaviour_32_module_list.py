"""Behaviour 32: an `nn.ModuleList` is called: it holds modules but has no forward."""

from __future__ import annotations

from places import Place

from devexplorer.core.records import BuildModel, Forward, NewTensor


def test_calling_a_module_list_is_explained(place: Place) -> None:
    place.do(BuildModel(recipe="module-list", device=place.first))
    place.do(NewTensor(fill="rand", shape=(2, 20), device=place.first))
    answer = place.answer(Forward(target="module-list:layers", input="x"))
    assert answer.failed
    assert answer.title == "An nn.ModuleList holds layers, it does not run them"
    assert "'layers'" in answer.words
    assert "nn.Sequential" in answer.words
    assert answer.code == 'for layer in module_list.get_submodule("layers"):\n    x = layer(x)'
    assert not place.answer(Forward(target="module-list", input="x")).failed


def test_a_second_device_changes_nothing_about_it(place: Place) -> None:
    if place.second is None:
        assert place.offers_virtual_gpus(BuildModel(recipe="module-list", device="cuda:1"))
        return
    place.do(BuildModel(recipe="module-list", device=place.second))
    place.do(NewTensor(fill="rand", shape=(2, 20), device=place.second))
    assert "holds layers" in place.answer(Forward(target="module-list:layers", input="x")).title
