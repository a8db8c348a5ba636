"""Undo of moves, casts, edits and runs restores every bit."""

from __future__ import annotations

import pytest
import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.models.run import RunFailed
from devexplorer.core.parameters.records import ClearGradients, Initialise, SetRequiresGrad
from devexplorer.core.records import (
    Backward,
    BuildModel,
    Combine,
    Command,
    EditElement,
    Forward,
    Move,
    NewTensor,
    Redo,
    Undo,
)


def tensor(place: Place, name: str) -> Tensor:
    thing = place.workspace.get(name)
    assert isinstance(thing, Tensor)
    return thing


def bits(t: Tensor) -> list[int]:
    return t.detach().cpu().contiguous().view(torch.uint8).tolist()


def test_special_values_come_back_bit_by_bit(place: Place) -> None:
    special = torch.tensor([float("nan"), -0.0, 0.0, float("-inf"), 1e-30, 0.1])
    special.view(torch.int32)[0] |= 0x1234  # a NaN with something in it
    before = bits(special)
    place.workspace.add("x", special)
    for dtype in ("half", "bfloat16", "int8", "bool"):
        place.do(Move(targets=("x",), device="vgpu:0", dtype=dtype))
        place.do(Undo())
        assert place.workspace.get("x") is special, dtype
    place.do(EditElement(target="x", index=(0,), value=1))
    place.do(EditElement(target="x", index=(1,), value=0))
    place.do(Undo())
    place.do(Undo())
    assert bits(special) == before


def test_what_changed_unseen_since_a_cast_survives_its_undo(place: Place) -> None:
    x = torch.rand(3)
    before = x.clone()
    place.workspace.add("x", x)
    place.do(Move(targets=("x",), device="cpu", dtype="half"))
    tensor(place, "x")[1] = 8  # by user code, not by a command
    place.do(Undo())
    assert tensor(place, "x").tolist() == [before[0].item(), 8, before[2].item()]


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
def test_gradients_of_a_backward_are_taken_back_before_the_cast(place: Place, device: str) -> None:
    model = nn.Linear(3, 2)
    place.workspace.add("m", model)
    place.do(NewTensor(shape=(1, 3)))
    place.do(Backward(target="m", input="x"))
    place.do(Move(targets=("m", "x"), device=device, dtype="bfloat16"))
    place.do(Backward(target="m", input="x"))
    for dtype, times in ((torch.bfloat16, 2), (torch.bfloat16, 1), (torch.float32, 1)):
        assert model.weight.grad is not None
        assert model.weight.grad.tolist() == [[times] * 3] * 2
        assert model.weight.grad.dtype == dtype
        place.do(Undo())
    assert model.weight.grad is None


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
def test_gradients_in_the_input_and_below_it_are_taken_back_too(place: Place, device: str) -> None:
    place.workspace.add("m", nn.Linear(2, 2).to(device))
    place.do(NewTensor(shape=(1, 2), device=device, requires_grad=True))
    place.do(Combine(left="x", right="x", name="y"))
    x = tensor(place, "x")
    place.do(Backward(target="m", input="x"))
    assert x.grad is not None
    first = bits(x.grad)
    place.do(Backward(target="m", input="y"))
    assert bits(x.grad) != first
    place.do(Undo())
    assert bits(x.grad) == first
    place.do(Undo())
    assert x.grad is None


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_running_statistics_of_a_forward_are_taken_back(place: Place, device: str) -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    place.workspace.add("m", model)
    place.do(NewTensor(fill="rand", shape=(8, 3), device=device, dtype="bfloat16"))
    place.do(Move(targets=("m",), device=device, dtype="bfloat16"))
    place.do(Forward(target="m", input="x"))
    assert model.get_buffer("0.running_mean").count_nonzero() == 3
    place.do(Undo())
    assert model.get_buffer("0.running_mean").count_nonzero() == 0
    assert model.get_buffer("0.num_batches_tracked").item() == 0


def test_a_forward_that_fails_leaves_no_trace_of_the_layers_before(place: Place) -> None:
    model = nn.Sequential(nn.BatchNorm1d(3), nn.LazyLinear(4), nn.Linear(5, 1))
    place.workspace.add("m", model)
    place.do(NewTensor(fill="rand", shape=(8, 3)))
    before, undo = place.snapshot("m"), place.workspace.history.state()
    for command in (Forward(target="m", input="x"), Backward(target="m", input="x")):
        with pytest.raises(RunFailed):
            place.do(command)
        assert place.snapshot("m") == before
        assert model.get_buffer("0.running_mean").count_nonzero() == 0
        assert place.workspace.history.state() == undo


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_lazy_parameters_get_the_same_values_when_the_forward_is_done_again(place: Place, device: str) -> None:
    place.do(BuildModel(recipe="lazy-mlp", device=device))
    place.do(Forward(target="lazy-mlp"))
    model = place.workspace.get("lazy-mlp")
    assert isinstance(model, nn.Module)
    before, random = [bits(p) for p in model.parameters()], torch.get_rng_state()
    place.do(Undo())
    place.do(Redo())
    assert [bits(p) for p in model.parameters()] == before
    assert torch.equal(torch.get_rng_state(), random)


def test_a_buffer_that_has_another_shape_now_is_converted(place: Place) -> None:
    model = nn.Module()
    model.register_buffer("cache", torch.rand(2))
    place.workspace.add("m", model)
    place.do(Move(targets=("m",), device="cpu", dtype="half"))
    model.cache = torch.ones(3, dtype=torch.float16)
    place.do(Undo())
    assert (model.cache.dtype, model.cache.tolist()) == (torch.float32, [1, 1, 1])


def test_a_leaf_is_the_same_leaf_again(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(3,), requires_grad=True))
    leaf = tensor(place, "x")
    for dtype in (None, "half"):
        place.do(Move(targets=("x",), device="vgpu:0", dtype=dtype))
        place.do(Undo())
        assert place.workspace.get("x") is leaf
    assert place.allocated("vgpu:0") == 0


def test_an_object_that_is_gone_takes_only_its_own_tensors_out_of_undo(place: Place) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    for name, model in (("first", first), ("second", second)):
        place.workspace.add(name, model)
    place.do(Move(targets=("first", "second"), device="vgpu:1"))
    place.workspace.history.deleted(("first",), "it is gone for good")
    place.workspace.drop(("first",))
    outcome = place.do(Undo())
    assert {str(p.device) for p in second.parameters()} == {"cpu"}
    assert outcome.report is not None
    assert outcome.report.objects == ("second",)


def test_a_part_is_moved_back_by_whatever_name_it_was_moved(place: Place) -> None:
    model = nn.Module()
    model.one = nn.Linear(2, 2)
    model.two = model.one
    place.workspace.add("m", model)
    place.do(Move(targets=("m:two",), device="vgpu:0"))
    assert {str(p.device) for p in model.parameters()} == {"vgpu:0"}
    place.do(Undo())
    assert {str(p.device) for p in model.parameters()} == {"cpu"}


@pytest.mark.parametrize(
    "command",
    [
        Initialise(target="x", rule="zeros"),
        SetRequiresGrad(targets=("x",), on=True),
        ClearGradients(target="x"),
    ],
)
def test_a_change_of_a_tensor_is_undone_in_the_tensor_that_undoing_a_move_has_made(
    place: Place, command: Command
) -> None:
    gradient = isinstance(command, ClearGradients)
    place.do(NewTensor(name="x", shape=(2,), requires_grad=gradient))
    if gradient:
        place.workspace.tensor_named("x").sum().backward()
    place.do(command)
    place.do(Move(targets=("x",), device="vgpu:1"))
    place.do(Undo())
    place.do(Undo())
    x = place.workspace.tensor_named("x")
    assert x.tolist() == [1, 1]
    assert x.requires_grad == gradient
    assert (x.grad is not None) == gradient


def test_a_copy_remembers_what_the_original_was_opened_from(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    known = place.workspace.extras("mlp")
    known.folder, known.inputs = "/somewhere", "2x20"
    place.do(Move(targets=("mlp",), device="vgpu:1", copy=True))
    copied = place.workspace.extras("mlp2")
    assert (copied.recipe, copied.folder, copied.inputs) == ("mlp", "/somewhere", "2x20")
