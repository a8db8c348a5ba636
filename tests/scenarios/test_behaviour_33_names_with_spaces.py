"""Behaviour 33: a block named `block 0` is shown and exported correctly: `get_submodule`, not attribute syntax."""

from __future__ import annotations

import ast

import torch
from places import Place
from torch import nn

from devexplorer.core.records import BuildModel, EditElement, Forward, Move, NewTensor


def test_names_with_spaces_are_shown_as_they_are(place: Place) -> None:
    place.do(BuildModel(recipe="nested", device=place.first))
    rows = {row.path: row for row in place.snapshot("nested").rows}
    assert rows["0.block 0"].name == "block 0"
    assert "0.block 3.2.bias" in rows


def test_the_code_reaches_such_a_part_and_runs(place: Place) -> None:
    place.do(BuildModel(recipe="nested", device=place.first))
    model = place.workspace.get("nested")
    assert isinstance(model, nn.Module)
    place.do(NewTensor(fill="rand", shape=(1, 20), device=place.first))
    answers = [
        place.answer(Forward(target="nested:0.block 0", input="x")),
        place.answer(EditElement(target="nested:0.block 0.0.bias", index=(0,), value=2)),
    ]
    if place.second is None:
        assert place.offers_virtual_gpus(Move(targets=("nested:0.block 0",), device="cuda:0"))
    else:
        answers.append(place.answer(Move(targets=("nested:0.block 0",), device=place.second)))
        assert answers[-1].code == f'nested.get_submodule("0.block 0").to("{place.second}")'
        assert place.snapshot("nested").rows[0].devices == tuple(sorted((place.first, place.second)))
        place.do(Move(targets=("nested",), device=place.first))
    for answer in answers:
        assert not answer.failed
        assert "nested.0" not in answer.code
        ast.parse(answer.code)
    exec(answers[0].code, {"nested": model, "x": place.workspace.get("x")})
    exec(answers[1].code, {"nested": model, "torch": torch})
    assert model.get_parameter("0.block 0.0.bias")[0].item() == 2
