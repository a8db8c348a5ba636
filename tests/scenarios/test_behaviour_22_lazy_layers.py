"""Behaviour 22: lazy parameters are shown as uninitialised; a move before the first forward only records the device;
shapes appear after."""

from __future__ import annotations

from places import Place
from torch import nn

from devexplorer.core.records import BuildModel, Forward, Move, Redo, Undo


def test_uninitialised_then_moved_then_shaped(place: Place) -> None:
    built = place.do(BuildModel(recipe="lazy-mlp")).answer
    assert "4 parameters have no shape yet" in built.words
    parameters = [row for row in place.snapshot("lazy-mlp").rows if row.kind == "parameter"]
    assert [(row.shape, row.initialised, row.bytes) for row in parameters] == [(None, False, 0)] * 4

    model = place.workspace.get("lazy-mlp")
    assert isinstance(model, nn.Module)
    objects = [id(p) for p in model.parameters()]
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("lazy-mlp",), device="cuda:0"))
    else:
        allocated = place.allocated(place.first)
        outcome = place.do(Move(targets=("lazy-mlp",), device=place.first))
        assert outcome.report is not None
        assert (outcome.report.uninitialised, outcome.report.bytes) == (4, 0)
        assert f"created on {place.first} by the first forward" in outcome.answer.words
        assert outcome.answer.title == f"lazy-mlp will be on {place.first}"
        assert place.allocated(place.first) == allocated

    answer = place.do(Forward(target="lazy-mlp")).answer
    assert "4 parameters got a shape by it, for example 0.weight: 256×20" in answer.words
    parameters = [row for row in place.snapshot("lazy-mlp").rows if row.kind == "parameter"]
    assert [row.shape for row in parameters] == [(256, 20), (256,), (10, 256), (10,)]
    assert {row.devices for row in parameters} == {(place.first,)}
    assert {row.type for row in parameters} == {"Parameter"}
    assert [id(p) for p in model.parameters()] == objects


def test_undo_lets_it_wait_for_its_shape_again_and_then_takes_the_move_back(place: Place) -> None:
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(BuildModel(recipe="lazy-mlp", device="cuda:0"))
        return
    place.do(BuildModel(recipe="lazy-mlp"))
    waiting = place.snapshot("lazy-mlp")
    place.do(Move(targets=("lazy-mlp",), device=place.first))
    moved = place.snapshot("lazy-mlp")
    place.do(Forward(target="lazy-mlp"))
    assert set(place.snapshot("lazy-mlp").bytes_by_device) == {place.first}
    place.do(Undo())
    assert place.snapshot("lazy-mlp") == moved
    assert place.allocated(place.first) == 0
    place.do(Undo())
    assert place.snapshot("lazy-mlp") == waiting
    place.do(Redo())
    place.do(Redo())
    assert set(place.snapshot("lazy-mlp").bytes_by_device) == {place.first}
