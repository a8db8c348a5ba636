"""The workspace: names, creation, editing, combining, running."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput, DevExplorerError, DoesNotFit, python_names
from devexplorer.core.models.run import RunFailed
from devexplorer.core.models.unmovable import loses
from devexplorer.core.records import (
    Backward,
    BuildModel,
    Combine,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Remove,
)
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.machine import VirtualMachine


def tensor(place: Place, name: str) -> Tensor:
    thing = place.workspace.get(name)
    assert isinstance(thing, Tensor)
    return thing


def model(place: Place, name: str) -> nn.Module:
    thing = place.workspace.get(name)
    assert isinstance(thing, nn.Module)
    return thing


# names


def test_names_are_numbered_on() -> None:
    assert python_names.unique_name("x", []) == "x"
    assert python_names.unique_name("x", ["x", "x2"]) == "x3"
    assert python_names.unique_name("x2", ["x", "x2"]) == "x3"
    assert python_names.unique_name("resnet18", ["resnet18"]) == "resnet18-2"
    assert python_names.unique_name("resnet18-2", ["resnet18", "resnet18-2"]) == "resnet18-3"


@pytest.mark.parametrize("name", ["", " ", "2x", "a:b", "a\nb", "a" * 61, "'; import os", "_hidden"])
def test_names_that_cannot_be_are_refused(name: str) -> None:
    with pytest.raises(BadInput, match="cannot be a name"):
        python_names.checked_name(name, [])


def test_two_names_that_python_could_not_tell_apart_are_refused() -> None:
    with pytest.raises(BadInput, match="same variable"):
        python_names.checked_name("a-b", ["a_b"])
    assert python_names.checked_name(" my model.2 ", []) == "my model.2"


@given(st.text(max_size=30))
def test_every_allowed_name_is_a_python_variable(text: str) -> None:
    try:
        name = python_names.checked_name(text, [])
    except BadInput:
        return
    assert python_names.variable(name).isidentifier()


@given(st.text(max_size=20))
def test_whatever_is_in_a_path_stays_inside_its_quotes(path: str) -> None:
    code = python_names.expression(f"m:{path}") if path else python_names.expression("m")
    compile(code, "code", "eval")
    if path:
        assert eval(code.replace("m.get_submodule", "str", 1)) == path


# creation


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
@pytest.mark.parametrize(
    ("command", "expected"),
    [
        (NewTensor(fill="ones", shape=(2, 3)), torch.ones(2, 3)),
        (NewTensor(fill="zeros", shape=(), dtype="int8"), torch.zeros((), dtype=torch.int8)),
        (NewTensor(fill="arange", shape=(5,)), torch.arange(5)),
        (NewTensor(fill="text", text="[[1, 2], [3, 4]]"), torch.tensor([[1, 2], [3, 4]])),
        (NewTensor(fill="text", text=" (1.5, -2) ", dtype="half"), torch.tensor([1.5, -2], dtype=torch.float16)),
        (NewTensor(fill="randn", shape=(4,), seed=7), torch.randn(4, generator=torch.Generator().manual_seed(7))),
        (NewTensor(fill="rand", shape=(4,), seed=7), torch.rand(4, generator=torch.Generator().manual_seed(7))),
    ],
)
def test_tensors_are_created_where_they_are_asked_for(
    place: Place, device: str, command: Any, expected: Tensor
) -> None:
    answer = place.do(msgspec.structs.replace(command, device=device, name="t")).answer
    made = tensor(place, "t")
    assert answer.title == f"t is on {device}"
    assert str(made.device) == device
    assert made.dtype == expected.dtype
    assert torch.equal(made.cpu(), expected)
    assert place.held(device) == made.nbytes
    assert place.held("cpu" if device != "cpu" else "vgpu:1") == 0


def test_creating_leaves_the_global_generator_alone(place: Place) -> None:
    state = torch.get_rng_state()
    place.do(NewTensor(fill="randn", shape=(3,)))
    assert torch.equal(torch.get_rng_state(), state)


def test_a_tensor_from_a_file(place: Place, tmp_path: Path) -> None:
    for dtype in ("<f4", ">f8", "<i2"):
        path = tmp_path / "a.npy"
        np.save(path, np.arange(6, dtype=dtype).reshape(2, 3))
        name = place.do(NewTensor(fill="file", text=str(path), device="vgpu:0")).answer.subject
        assert name is not None
        assert tensor(place, name).cpu().tolist() == [[0, 1, 2], [3, 4, 5]]


def test_files_that_are_no_arrays_are_refused_and_never_run(place: Place, tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([{"a": 1}], dtype=object))
    np.savez(tmp_path / "many.npz", a=np.zeros(1))
    np.save(tmp_path / "words.npy", np.array(["a"]))
    (tmp_path / "garbage.npy").write_bytes(b"\x80\x04garbage")
    for name, words in {
        "objects.npy": "never loaded",
        "many.npz": "archive",
        "words.npy": "no dtype",
        "garbage.npy": "cannot be loaded",
        "absent.npy": "there is no file",
    }.items():
        with pytest.raises(BadInput, match=words):
            place.do(NewTensor(fill="file", text=str(tmp_path / name)))
    with pytest.raises(BadInput, match="cannot be loaded"):
        place.do(NewTensor(fill="file", text=str(tmp_path)))
    assert place.workspace.names == ()


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (NewTensor(shape=(2, 0)), "a size of 0 is not possible"),
        (NewTensor(shape=(-1,)), "a size of -1"),
        (NewTensor(shape=(1,) * 65), "65 dimensions"),
        (NewTensor(shape=(2,), fill="sevens"), "no fill 'sevens'"),
        (NewTensor(shape=(2,), dtype="float9"), "no dtype 'float9'"),
        (NewTensor(shape=(2,), fill="rand", dtype="int32"), "rand gives fractions"),
        (NewTensor(shape=(2,), dtype="int32", requires_grad=True), "can require a gradient"),
        (NewTensor(fill="text", text="[1, [2]]"), "must hold numbers|do not make"),
        (NewTensor(fill="text", text="__import__('os')"), "not a list of numbers"),
        (NewTensor(fill="text", text="['a']"), "must hold numbers"),
        (NewTensor(fill="text", text="[]"), "empty"),
        (NewTensor(fill="text", text="[" * 3000 + "]" * 3000), "list"),
        (NewTensor(fill="text", text="[1" + ", 1" * 100_000 + "]"), "characters"),
        (NewTensor(fill="text", text=f"[{10**30}]"), "do not make a tensor"),
        (NewTensor(fill="text", text="[1.5, 2]", requires_grad=True, dtype="int8"), "can require a gradient"),
        (NewTensor(shape=(1,), name="2"), "cannot be a name"),
        (NewTensor(shape=(1,), device="cpu:1"), "only one cpu"),
        (NewTensor(shape=(2, 3), fill="arange"), "one dimension"),
    ],
)
def test_bad_tensors_are_refused_in_words(place: Place, command: NewTensor, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        place.do(command)
    assert place.workspace.names == ()


def test_everything_wrong_with_a_tensor_is_said_at_once(place: Place) -> None:
    with pytest.raises(BadInput) as refusal:
        place.do(NewTensor(shape=(0, -2), dtype="float9", device="cuda:9"))
    assert len(refusal.value.findings) == 4


@pytest.mark.parametrize(
    ("device", "shape"), [("vgpu:0", (5, 2**30)), ("cpu", (10**9, 10**9)), ("vgpu:1", (10**12, 10**12))]
)
def test_too_large_is_refused_with_the_bytes_before_allocating(
    place: Place, device: str, shape: tuple[int, ...]
) -> None:
    with pytest.raises(DoesNotFit, match=r"this tensor needs .*iB") as refusal:
        place.do(NewTensor(shape=shape, device=device))
    assert refusal.value.needed_bytes >= 4 * shape[0] * shape[1]
    assert place.allocated("vgpu:0") == place.allocated("vgpu:1") == 0


def test_a_model_that_does_not_fit_is_refused_before_it_is_built() -> None:
    with place_of("vgpu", "Tesla T4") as place:
        machine = place.registry.backend("vgpu:0")
        assert isinstance(machine, VirtualMachine)
        free = machine.device_free_bytes("vgpu:0")
        block = meta_empty((free - (100 << 20),), torch.uint8, "vgpu:0")
        with pytest.raises(DoesNotFit, match="this model needs"):
            place.do(BuildModel(recipe="vgg16-bn", device="vgpu:0"))
        assert place.workspace.names == ()
        del block


def test_build_reports_every_mistake_at_once(place: Place) -> None:
    with pytest.raises(BadInput) as refusal:
        place.do(BuildModel(recipe="mlpp", device="cuda:5", dtype="int8", name="1"))
    assert len(refusal.value.findings) == 4


def test_a_model_is_built_in_the_device_and_dtype_asked_for(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:1", dtype="bf16", name="small"))
    assert {(str(p.device), p.dtype) for p in model(place, "small").parameters()} == {("vgpu:1", torch.bfloat16)}
    assert place.workspace.history.state().title == "the new model small"
    place.do(BuildModel(recipe="mlp"))
    place.do(BuildModel(recipe="mlp"))
    assert place.workspace.names == ("small", "mlp", "mlp2")


# removing


def test_removing_several_is_all_or_nothing(place: Place) -> None:
    place.do(NewTensor(name="a", shape=(1,)))
    with pytest.raises(BadInput, match="no object 'b'"):
        place.do(Remove(names=("a", "b")))
    assert place.workspace.names == ("a",)


# running


def test_hooks_are_gone_after_success_and_failure(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(shape=(2, 7)))
    place.do(Forward(target="mlp"))
    with pytest.raises(RunFailed):
        place.do(Forward(target="mlp", input="x"))
    assert all(not m._forward_hooks and not m._forward_pre_hooks for m in model(place, "mlp").modules())


def test_a_wrong_shape_names_the_layer(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(shape=(2, 7)))
    answer = place.answer(Forward(target="mlp", input="x"))
    assert answer.failed
    assert "'0' (Linear)" in answer.words
    assert "2×7" in answer.words


def test_an_output_can_be_kept_and_holds_no_graph(place: Place) -> None:
    place.do(BuildModel(recipe="two-towers", device="vgpu:0"))
    place.do(NewTensor(shape=(3, 20), device="vgpu:0"))
    place.do(Forward(target="two-towers", input="x, x", output="score"))
    assert tensor(place, "score").shape == (3,)
    assert tensor(place, "score").grad_fn is None
    place.do(Move(targets=("two-towers",), device="vgpu:1"))


def test_a_part_can_be_run(place: Place) -> None:
    place.do(BuildModel(recipe="nested"))
    place.do(NewTensor(shape=(1, 20)))
    place.do(Forward(target="nested:0.block 2", input="x", output="y"))
    x = tensor(place, "x")
    assert torch.equal(tensor(place, "y"), model(place, "nested").get_submodule("0.block 2")(x))


@pytest.mark.parametrize(
    ("command", "words"),
    [
        (Forward(target="x"), "is a tensor"),
        (Forward(target="nested:0"), "needs an input"),
        (Forward(target="nested", input="nested"), "is a model"),
        (Forward(target="nested", output="x"), "already"),
        (Forward(target="gone"), "no object"),
        (Combine(left="x", right="nested"), "is a model"),
        (Combine(left="x", right="x", operator="^"), "no operator"),
        (EditElement(target="x", index=(0,), value=1), "2 dimensions"),
        (EditElement(target="x", index=(0, 20), value=1), "out of range"),
        (EditElement(target="nested:0.weights", index=(0,), value=1), "has no part"),
    ],
)
def test_bad_requests_are_refused(place: Place, command: Any, words: str) -> None:
    place.do(BuildModel(recipe="nested"))
    place.do(NewTensor(shape=(1, 20)))
    with pytest.raises(DevExplorerError, match=words):
        place.do(command)


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
def test_backward_adds_to_the_gradients_that_are_there(place: Place, device: str) -> None:
    place.do(BuildModel(recipe="mlp", device=device))
    assert "There were gradients before" not in place.do(Backward(target="mlp")).answer.words
    weight = model(place, "mlp").get_parameter("2.bias")
    assert weight.grad is not None
    once = weight.grad.clone()
    assert "There were gradients before" in place.do(Backward(target="mlp")).answer.words
    assert torch.equal(weight.grad.cpu(), 2 * once.cpu())


def test_combining_makes_a_named_result(place: Place) -> None:
    place.do(NewTensor(name="a", fill="text", text="[[1., 2.]]", device="vgpu:0"))
    place.do(NewTensor(name="b", fill="text", text="[[3.], [4.]]", device="vgpu:0"))
    place.do(Combine(left="b", right="a", operator="@", name="c"))
    assert tensor(place, "c").device == torch.device("vgpu:0")
    assert tensor(place, "c").tolist() == [[3, 6], [4, 8]]
    answer = place.answer(Combine(left="a", right="a", operator="@"))
    assert answer.failed
    assert not answer.offers


def test_editing_refuses_what_the_dtype_cannot_hold(place: Place) -> None:
    place.do(NewTensor(name="n", fill="arange", shape=(3,)))
    place.do(NewTensor(name="h", shape=(3,), dtype="half"))
    with pytest.raises(BadInput, match="whole numbers"):
        place.do(EditElement(target="n", index=(0,), value=1.5))
    with pytest.raises(BadInput, match="too large for float16"):
        place.do(EditElement(target="h", index=(0,), value=1e9))
    with pytest.raises(BadInput, match="whole numbers"):
        place.do(EditElement(target="n", index=(0,), value=float("nan")))
    with pytest.raises(BadInput, match="out of range for int64"):
        place.do(EditElement(target="n", index=(0,), value=1e30))
    place.do(EditElement(target="n", index=(-1,), value=7))
    assert tensor(place, "n").tolist() == [0, 1, 7]


# casts

CASTS = [
    torch.float64,
    torch.float32,
    torch.float16,
    torch.bfloat16,
    torch.int64,
    torch.int16,
    torch.int8,
    torch.uint8,
    torch.bool,
]


def test_a_cast_said_to_lose_nothing_loses_nothing() -> None:
    for old in CASTS:
        if old.is_floating_point:
            info = torch.finfo(old)
            values = torch.tensor([0.0, 1.0, -1.0, info.max, info.min, info.smallest_normal, 1 + info.eps], dtype=old)
        elif old == torch.bool:
            values = torch.tensor([True, False])
        else:
            whole = torch.iinfo(old)
            values = torch.tensor([0, 1, whole.max, whole.min, whole.max - 1], dtype=old)
        for new in CASTS:
            assert loses(old, new) == (values.to(new).tolist() != values.tolist()), (old, new)
