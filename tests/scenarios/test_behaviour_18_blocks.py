"""Behaviour 18: models built from blocks show as a tree; layers in a plain list are not registered, and nothing
moves."""

from __future__ import annotations

import pytest
from places import Place

from devexplorer.core.records import BuildModel, Forward, Move


@pytest.mark.parametrize("recipe", ["mlp", "my-sequential", "parallel", "repeated", "module-list", "nested"])
def test_the_tree_of_a_model_built_from_blocks(place: Place, recipe: str) -> None:
    place.do(BuildModel(recipe=recipe, device=place.first))
    rows = place.snapshot(recipe).rows
    modules = [row for row in rows if row.kind == "module"]
    assert modules[0].path == ""
    assert len(modules) > 2
    assert all(row.registered for row in rows)
    assert {row.devices for row in rows if row.kind == "parameter"} == {(place.first,)}
    assert not place.answer(Forward(target=recipe)).failed


def test_layers_in_a_plain_list_are_not_registered_and_do_not_move(place: Place) -> None:
    built = place.do(BuildModel(recipe="list-pitfall")).answer
    assert "nn.ModuleList" in built.words
    snapshot = place.snapshot("list-pitfall")
    hidden = [row for row in snapshot.rows if not row.registered and row.kind == "tensor"]
    assert [row.path for row in hidden][:2] == ["layers[0].weight", "layers[0].bias"]
    assert snapshot.bytes_by_device == {}
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("list-pitfall",), device="cuda:0"))
        return
    answer = place.answer(Move(targets=("list-pitfall",), device=place.first))
    assert answer.title == "list-pitfall has nothing to move"
    assert "layers[0].weight" in answer.words
    assert place.snapshot("list-pitfall").rows == snapshot.rows
