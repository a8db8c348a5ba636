"""Behaviour 26: some layers on one device and others on another: per-submodule moves, where activations must hop, and
hops inserted."""

from __future__ import annotations

import torch
from places import Place

from devexplorer.core.records import AddVirtual, Backward, BuildModel, Forward, Move, NewTensor, Steps, Undo
from devexplorer.core.split.records import Hopped, InsertHops, Join, PlanSplit, Split, SplitPlanned


def test_layers_are_moved_one_by_one_and_hops_make_the_forward_work(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(2, 20), device=place.first))
    place.do(BuildModel(recipe="nested", device=place.first))
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("nested:0.block 2", "nested:0.block 3"), device="cuda:1"))
        return
    place.do(Forward(target="nested", input="x", output="on one"))
    place.do(Move(targets=("nested:0.block 2", "nested:0.block 3"), device=place.second))

    answer = place.answer(Forward(target="nested", input="x"))
    assert answer.failed
    assert "It stopped in '0.block 2.0' (Linear)" in answer.words
    assert f"input is on {place.first} and weight is on {place.second}" in answer.words
    (met,) = (fact.value for fact in answer.facts if fact.label == "operands")
    assert f"output of 0.block 1 is on {place.first}, parameter 0.block 2.0.weight is on {place.second}" in met
    offer = next(offer for offer in answer.offers if offer.label == "Insert hops and run forward")
    assert offer.command == Steps(commands=(InsertHops(target="nested"), Forward(target="nested", input="x")))

    assert "Activations hopped 2 times" in place.do(offer.command).answer.words
    outcome = place.do(Forward(target="nested", input="x", output="on two"))
    assert "Activations hopped 2 times" in outcome.answer.words
    (event,) = outcome.events
    assert isinstance(event, Hopped)
    assert [(hop.after, hop.source, hop.destination) for hop in event.hops] == [
        ("0.block 2", place.first, place.second),
        ("1", place.second, place.first),
    ]
    assert [hop.before for hop in event.hops] == ["0.block 1", "0"]
    assert all(hop.simulated == (place.kind == "vgpu") and hop.seconds for hop in event.hops)
    one, two = place.workspace.tensor_named("on one"), place.workspace.tensor_named("on two")
    assert two.device == one.device
    assert torch.allclose(one, two, rtol=1e-5)
    place.do(Backward(target="nested", input="x"))


def test_a_plan_is_carried_out_and_joined_again(place: Place) -> None:
    place.do(BuildModel(recipe="lenet", device=place.first))
    if place.second is None:
        answer = place.do(PlanSplit(target="lenet")).answer
        assert "There is only the CPU" in answer.words
        assert answer.offers[0].command == AddVirtual(spec="2x Tesla T4")
        assert place.offers_virtual_gpus(PlanSplit(target="lenet", budgets={"cuda:0": 150_000, "cuda:1": 150_000}))
        assert place.offers_virtual_gpus(Split(target="lenet", device_map={"": "cuda:1"}))
        return
    outcome = place.do(PlanSplit(target="lenet", budgets={place.first: 210_000, place.second: 100_000}))
    (event,) = outcome.events
    assert isinstance(event, SplitPlanned)
    assert set(place.snapshot("lenet").bytes_by_device) == {place.first}

    split = place.do(Split(target="lenet", device_map={one.path: one.device for one in event.plan.blocks})).answer
    assert split.title == f"lenet is split over {' and '.join(sorted((place.first, place.second)))}"
    assert set(place.snapshot("lenet").bytes_by_device) == {place.first, place.second}
    assert "Activations hopped 2 times" in place.do(Forward(target="lenet")).answer.words

    joined = place.do(Join(target="lenet", device=place.second)).answer
    assert "The hops were removed" in joined.words
    assert set(place.snapshot("lenet").bytes_by_device) == {place.second}
    place.do(Undo())
    place.do(Undo())
    assert set(place.snapshot("lenet").bytes_by_device) == {place.first}
    assert not place.answer(Forward(target="lenet")).failed


def test_two_towers_meet_where_their_scores_are_multiplied(place: Place) -> None:
    place.do(BuildModel(recipe="two-towers", device=place.first))
    if place.second is None:
        assert place.offers_virtual_gpus(Split(target="two-towers", device_map={"query": "cuda:0", "item": "cuda:1"}))
        return
    place.do(Move(targets=("two-towers:item",), device=place.second))
    place.do(Move(targets=("two-towers:item.2",), device=place.second))
    answer = place.answer(Forward(target="two-towers"))
    assert answer.failed
    assert "'item.0' (Linear)" in answer.words
    place.do(InsertHops(target="two-towers"))
    (event,) = place.do(Forward(target="two-towers")).events
    assert isinstance(event, Hopped)
    assert [(hop.before, hop.after) for hop in event.hops] == [("", "item"), ("item", "")]
