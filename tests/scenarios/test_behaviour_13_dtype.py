"""Behaviour 13: a dtype is changed: memory before and after, and the loss, computed on real values."""

from __future__ import annotations

import pytest
import torch
from places import Place
from torch import nn

from devexplorer.core.parameters.records import Describe, ValuesDescribed
from devexplorer.core.records import Answer, BuildModel, Move, NewTensor, Undo

VALUES = "[0.1, 1.0, 70000.0, 1e-10, -3.7]"


def facts(answer: Answer) -> dict[str, str]:
    return {fact.label: fact.value for fact in answer.facts}


@pytest.mark.parametrize(
    ("dtype", "size", "changed", "to_inf", "to_zero"),
    [("half", 10, 4, 1, 1), ("bfloat16", 10, 4, 0, 0), ("double", 40, None, None, None)],
)
def test_a_tensor(
    place: Place, dtype: str, size: int, changed: int | None, to_inf: int | None, to_zero: int | None
) -> None:
    place.do(NewTensor(name="x", fill="text", text=VALUES, dtype="float32", device=place.first))
    answer = place.answer(Move(targets=("x",), device=place.first, dtype=dtype))
    shown = facts(answer)
    assert (shown["before"], shown["after"]) == (f"{place.first} 20 B", f"{place.first} {size} B")
    if changed is None:
        assert "values changed" not in shown
        return
    assert shown["values changed"] == f"{changed} of 5"
    assert (shown["became Inf"], shown["became 0"], shown["became NaN"]) == (str(to_inf), str(to_zero), "0")
    assert "cannot hold every value exactly" in answer.words


def test_whole_numbers_cut_off_and_out_of_range(place: Place) -> None:
    place.do(NewTensor(name="x", fill="text", text="[1.75, -2.5, 300.0, 4.0]", device=place.first))
    answer = place.answer(Move(targets=("x",), device=place.first, dtype="i8"))
    shown = facts(answer)
    assert (shown["values changed"], shown["largest change"]) == ("3 of 4", "0.750")
    assert (shown["out of range"], shown["after"]) == ("1", f"{place.first} 4 B")


def test_a_model_whole_and_by_part_with_the_worst_parameter_named(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device=place.first))
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    with torch.no_grad():
        model.get_parameter("2.weight")[0, 0] = 1e6
    answer = place.answer(Move(targets=("mlp:0",), device=place.first, dtype="bfloat16"))
    assert facts(answer)["became Inf"] == "0"
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.bfloat16", "torch.float32"}
    answer = place.answer(Move(targets=("mlp",), device=place.first, dtype="half"))
    assert facts(answer)["became Inf"] == "1"
    assert "in 2.weight" in facts(answer)["largest change"]
    place.do(Undo())
    place.do(Undo())
    assert model.get_parameter("2.weight")[0, 0].item() == 1e6
    assert {str(parameter.dtype) for parameter in model.parameters()} == {"torch.float32"}


def test_inf_that_a_cast_made_is_counted_in_the_values(place: Place) -> None:
    place.do(NewTensor(name="x", fill="text", text=VALUES, device=place.first))
    place.do(Move(targets=("x",), device=place.first, dtype="half"))
    (event,) = place.do(Describe(target="x")).events
    assert isinstance(event, ValuesDescribed)
    assert (event.values.infinities, event.values.zeros) == (1, 1)


def test_cast_and_moved_at_once(place: Place) -> None:
    place.do(NewTensor(name="x", fill="text", text=VALUES, device=place.first))
    command = Move(targets=("x",), device=place.second or "cuda:0", dtype="half")
    if place.second is None:
        assert place.offers_virtual_gpus(command)
        return
    answer = place.answer(command)
    assert facts(answer)["values changed"] == "4 of 5"
    assert facts(answer)["after"] == f"{place.second} 10 B"
