"""Behaviour 8: a model moves in place and returns itself; every parameter and buffer shows its device; its type is
unchanged."""

from __future__ import annotations

from places import Place
from torch import nn

from devexplorer.core.records import BuildModel, Forward, Move


def test_a_model_moves_in_place(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    if place.kind == "cpu":
        assert place.offers_virtual_gpus(Move(targets=("mlp",), device="cuda:1"))
        return
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    parameters = [id(p) for p in model.parameters()]
    outcome = place.do(Move(targets=("mlp",), device=place.second or ""))
    assert place.workspace.get("mlp") is model
    assert [id(p) for p in model.parameters()] == parameters
    rows = [row for row in place.snapshot("mlp").rows if row.kind == "parameter"]
    assert [row.devices for row in rows] == [(place.second,)] * 4
    assert outcome.answer.title == f"mlp is now on {place.second}"
    assert "A model stays the same object: .to() changes its parameters in place" in outcome.answer.words
    facts = {fact.label: fact.value for fact in outcome.answer.facts}
    assert (facts["what"], facts["copied"], facts["type"]) == ("4 parameters", "31.04 KiB", "Sequential, as before")
    assert ("simulated" in facts["time"]) == (place.kind == "vgpu")
    assert outcome.answer.code == f'mlp.to("{place.second}")'
    assert not place.answer(Forward(target="mlp")).failed


def test_buffers_move_too(place: Place) -> None:
    place.do(BuildModel(recipe="resnet18", device=place.first))
    snapshot = place.snapshot("resnet18")
    buffers = [row for row in snapshot.rows if row.kind == "buffer"]
    assert len(buffers) == 60
    assert {row.devices for row in buffers} == {(place.first,)}
    assert set(snapshot.bytes_by_device) == {place.first}
