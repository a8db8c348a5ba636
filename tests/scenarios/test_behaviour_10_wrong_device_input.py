"""Behaviour 10: a CPU tensor fed to a model on a GPU: the error, the layer, which tensor is where, one click to fix."""

from __future__ import annotations

from places import Place

from devexplorer.core.records import Backward, BuildModel, Forward, Move, NewTensor, Undo


def test_the_layer_and_the_tensors_are_named_and_one_click_fixes_it(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(2, 20)))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(BuildModel(recipe="mlp", device="cuda:0"))
        return
    place.do(BuildModel(recipe="mlp", device=place.first))
    answer = place.answer(Forward(target="mlp", input="x"))
    assert answer.failed
    assert "'0' (Linear)" in answer.words
    assert f"input is on cpu and weight is on {place.first}" in answer.words
    facts = {fact.label: fact.value for fact in answer.facts}
    assert facts["input"] == "2×20 float32 on cpu"
    assert facts["weight"] == f"256×20 float32 on {place.first}"
    assert "input 0 is on cpu, parameter 0.weight is on " in facts["operands"]
    assert answer.code == f'x = x.to("{place.first}")'

    fix = answer.offers[0]
    assert fix.label == f"Move x to {place.first} and run forward"
    done = place.answer(fix.command)
    assert f"x is now on {place.first}" in done.words
    assert done.code.splitlines()[0] == answer.code
    assert "mlp(x)" in done.code
    assert not place.answer(Forward(target="mlp", input="x")).failed
    place.do(Undo())
    assert place.snapshot("x").bytes_by_device == {"cpu": 160}


def test_the_model_can_come_to_the_input_instead(place: Place) -> None:
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(NewTensor(shape=(1,), device="cuda:0"))
        return
    place.do(NewTensor(fill="rand", shape=(2, 20)))
    place.do(BuildModel(recipe="nested", device=place.first))
    answer = place.answer(Backward(target="nested", input="x"))
    assert answer.failed
    fix = next(offer for offer in answer.offers if offer.label == "Move nested to cpu and run backward")
    done = place.do(fix.command)
    assert "gradients of a backward pass" in done.side_effects
    assert place.snapshot("nested").rows[0].devices == ("cpu",)


def test_a_model_in_pieces_names_the_piece(place: Place) -> None:
    place.do(BuildModel(recipe="nested"))
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("nested:0.block 2",), device="cuda:0"))
        return
    place.do(Move(targets=("nested:0.block 2",), device=place.first))
    answer = place.answer(Forward(target="nested"))
    assert answer.failed
    assert "0.block 2.0" in answer.words
    assert answer.offers[0].label.endswith(" and run forward")
    assert not place.answer(answer.offers[0].command).failed
    assert not place.answer(Forward(target="nested")).failed


def test_layers_in_a_plain_list_are_what_did_not_follow(place: Place) -> None:
    place.do(BuildModel(recipe="list-pitfall"))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(NewTensor(shape=(2, 20), device="cuda:0"))
        return
    place.do(NewTensor(fill="rand", shape=(2, 20), device=place.first))
    answer = place.answer(Forward(target="list-pitfall", input="x"))
    assert answer.failed
    assert "layers[0].weight (not registered) is on cpu" in answer.words
    assert "nn.ModuleList" in answer.words
    assert "of blocks.py: " in answer.words, "the line of the sample model"
