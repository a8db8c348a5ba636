"""Queries to tensors and models: answers, refusals, and code that runs."""

from __future__ import annotations

import contextlib
import io
from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of
from torch import nn

from devexplorer.core.base import BadInput, python_names
from devexplorer.core.experiments import ask as python_values
from devexplorer.core.experiments.ask import OF_MODELS, OF_TENSORS
from devexplorer.core.experiments.records import Ask
from devexplorer.core.records import Answer, BuildModel, Move, NewTensor


@pytest.fixture(params=["cpu", "vgpu"])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    with place_of(request.param) as made:
        yield made


def asked(place: Place, target: str, question: str) -> Answer:
    return place.do(Ask(target=target, question=question)).answer


def facts(answer: Answer) -> dict[str, str]:
    return {fact.label: fact.value for fact in answer.facts}


def printed(place: Place, code: str) -> str:
    """What the code prints with the workspace's objects as variables."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(code, {python_names.variable(name): place.workspace.get(name) for name in place.workspace.names})
    return out.getvalue()


def test_the_code_of_every_question_runs_and_prints(place: Place) -> None:
    place.do(NewTensor(name="my x", shape=(2, 3), device=place.first))
    place.do(NewTensor(name="g", shape=(), device=place.first, requires_grad=True))
    place.do(NewTensor(name="h", shape=(2,), dtype="bfloat16", device=place.first))
    place.do(BuildModel(recipe="nested", device=place.first))
    for target in ("my x", "g", "h", "nested:0.block 1.0.weight"):
        for question in OF_TENSORS:
            answer = asked(place, target, question)
            assert printed(place, answer.code).strip()
            assert answer.subject == target.partition(":")[0]
            if answer.failed:
                raised = answer.title.rpartition(" ")[2]
                assert f"except {raised}" in answer.code
    for target in ("nested", "nested:0.block 1"):
        for question in OF_MODELS:
            assert printed(place, asked(place, target, question).code).strip()


def test_what_the_code_prints_is_what_was_answered(place: Place) -> None:
    place.do(NewTensor(name="x", fill="arange", shape=(3,), dtype="float32", device=place.first))
    assert (
        printed(place, asked(place, "x", "tolist").code).strip()
        == facts(asked(place, "x", "tolist"))["value"]
        == "[0.0, 1.0, 2.0]"
    )
    assert (
        printed(place, asked(place, "x", "device").code).strip()
        == facts(asked(place, "x", "device"))["device"]
        == place.first
    )
    assert printed(place, asked(place, "x", "type").code).strip() == facts(asked(place, "x", "type"))["type()"]


def test_item_wants_one_element(place: Place) -> None:
    place.do(NewTensor(name="s", fill="text", text="2.5", device=place.first))
    answer = asked(place, "s", "item")
    assert answer.title == "s.item() is 2.5"
    assert ("hidden synchronisation" in answer.words) == (place.kind == "vgpu")
    place.do(NewTensor(name="x", shape=(2, 3), device=place.first))
    answer = asked(place, "x", "item")
    assert answer.failed
    assert [offer.command for offer in answer.offers] == [Ask(target="x", question="tolist")]


def test_a_long_list_is_refused_and_not_made(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    place.do(NewTensor(name="x", shape=(11,), device=place.first))
    monkeypatch.setattr(python_values, "MOST_IN_A_LIST", 10)
    with pytest.raises(BadInput, match=r"has 11 elements.*10 at most"):
        asked(place, "x", "tolist")
    assert not asked(place, "x", "item").offers


def test_a_dtype_that_numpy_lacks_is_converted_where_one_asks_for_it() -> None:
    with place_of("cpu") as place:
        place.do(NewTensor(name="h", fill="text", text="[1.5, 2]", dtype="bfloat16"))
        answer = asked(place, "h", "numpy")
        assert answer.failed
        assert "NumPy has no bfloat16" in answer.words
        copied = asked(place, "h", "cpu-numpy")
        assert facts(copied)["array"] == "2 float32"
        assert facts(copied)["values"] == "[1.5, 2.0]"
        assert copied.code == "print(h.cpu().float().numpy())"


def test_cpu_numpy_on_the_cpu_copies_nothing() -> None:
    with place_of("cpu") as place:
        place.do(NewTensor(name="x", shape=(2,)))
        assert facts(asked(place, "x", "cpu-numpy"))["copied"] == "nothing"


def test_leaves_and_what_was_computed(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(2,), device=place.first, requires_grad=True))
    assert facts(asked(place, "x", "is-leaf")) | {"device": ""} == {
        "is_leaf": "True",
        "requires_grad": "True",
        "grad_fn": "None",
        "device": "",
    }
    x = place.workspace.get("x")
    assert isinstance(x, torch.Tensor)
    place.workspace.add("y", x * 2)
    answer = asked(place, "y", "is-leaf")
    assert answer.title == "y is not a leaf"
    assert facts(answer)["grad_fn"] == "MulBackward0"
    assert "move first" in answer.words


def test_a_model_in_parts_has_several_devices_and_no_own() -> None:
    with place_of("vgpu") as place:
        place.do(BuildModel(recipe="mlp", device="vgpu:0"))
        place.do(Move(targets=("mlp:2",), device="vgpu:1"))
        answer = asked(place, "mlp", "device")
        assert answer.title == "mlp is on 2 devices"
        assert facts(answer) == {"vgpu:0": "2 tensors", "vgpu:1": "2 tensors"}
        place.workspace.add("relu", nn.ReLU())
        assert asked(place, "relu", "device").title == "relu is on no device"


def test_what_cannot_be_asked_is_refused_with_what_can(place: Place) -> None:
    place.do(BuildModel(recipe="lazy-mlp"))
    with pytest.raises(BadInput, match="there is no question 'colour'; there are type, numpy, "):
        asked(place, "lazy-mlp", "colour")
    with pytest.raises(BadInput, match="no object 'x'"):
        asked(place, "x", "type")
    with pytest.raises(
        BadInput, match=r"a question for a tensor; ask one of its parameters, for example 'lazy-mlp:0.weight'"
    ):
        asked(place, "lazy-mlp", "numpy")
    with pytest.raises(BadInput, match=r"for example 'lazy-mlp:2.weight'"):
        asked(place, "lazy-mlp:2", "item")
    with pytest.raises(BadInput, match="before its first forward"):
        asked(place, "lazy-mlp:0.weight", "type")
    assert asked(place, "lazy-mlp:0.weight", "device").title == "lazy-mlp:0.weight is on cpu"


def test_a_question_changes_nothing(place: Place) -> None:
    place.do(BuildModel(recipe="custom-layers", device=place.first))
    before, undo = place.snapshot("custom-layers"), place.workspace.history.state()
    for question in OF_TENSORS:
        asked(place, "custom-layers:2.weight", question)
    assert place.snapshot("custom-layers") == before
    assert place.workspace.history.state() == undo


def test_a_buffer_is_a_buffer_in_the_code(place: Place) -> None:
    model = nn.BatchNorm1d(3)
    place.workspace.add("norm", model)
    assert asked(place, "norm:running_mean", "device").code == 'print(norm.get_buffer("running_mean").device)'
