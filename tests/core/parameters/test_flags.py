"""Freezing, clearing gradients, training mode: changes, refusals, and Undo restoring everything."""

from __future__ import annotations

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.parameters.records import ClearGradients, MakeOptimizer, SetRequiresGrad, SetTraining
from devexplorer.core.records import Backward, BuildModel, Forward, Move, NewTensor, Redo, Undo
from devexplorer.core.workspace.workspace import Workspace


def model(place: Place, name: str = "mlp") -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


def flags(place: Place, name: str = "mlp") -> list[bool]:
    return [parameter.requires_grad for parameter in model(place, name).parameters()]


def test_a_layer_is_frozen_and_learns_nothing(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    answer = place.answer(SetRequiresGrad(targets=("mlp:0", "mlp:2.bias"), on=False))
    assert flags(place) == [False, False, True, False]
    assert answer.title == "mlp:0 and mlp:2.bias are frozen"
    place.do(Backward(target="mlp"))
    assert [parameter.grad is not None for parameter in model(place).parameters()] == [False, False, True, False]
    place.do(Undo())
    place.do(Undo())
    assert flags(place) == [True] * 4
    place.do(Redo())
    assert flags(place) == [False, False, True, False]
    exec(answer.code.replace("False", "True"), {"mlp": model(place)})
    assert flags(place) == [True] * 4


def test_flags_come_back_on_another_device_too(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(name="x"))
    place.do(SetRequiresGrad(targets=("mlp", "x"), on=True))
    assert place.workspace.tensor_named("x").requires_grad
    place.do(SetRequiresGrad(targets=("mlp",), on=False))
    place.do(Move(targets=("mlp",), device="vgpu:1"))
    place.do(Undo())
    place.do(Undo())
    assert flags(place) == [True] * 4
    place.do(Undo())
    assert not place.workspace.tensor_named("x").requires_grad


def test_what_cannot_be_frozen_or_unfrozen(place: Place) -> None:
    place.do(BuildModel(recipe="resnet18"))
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(name="count", fill="arange", shape=(3,)))
    leaf = torch.ones(3, requires_grad=True)
    place.workspace.add("y", leaf * 2)
    for target, on, reason in (
        ("y", False, "is not a leaf.*MulBackward0.*detach"),
        ("count", True, "int64; only floating-point"),
        ("resnet18:bn1.running_mean", True, "is a buffer"),
        ("mlp:1", False, "has no parameters"),
        ("mlp:0.wieght", False, "did you mean"),
    ):
        with pytest.raises(BadInput, match=reason):
            place.do(SetRequiresGrad(targets=("mlp", target), on=on))
    with pytest.raises(BadInput, match="nothing is selected"):
        place.do(SetRequiresGrad(targets=(), on=True))
    assert flags(place) == [True] * 4


def test_nothing_to_change_is_said_and_nothing_is_to_be_undone(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    assert "nothing changed" in place.answer(SetRequiresGrad(targets=("mlp",), on=True)).words
    assert place.workspace.history.state().title == "the new model mlp"


def test_lazy_parameters_can_be_frozen_and_stay_so(place: Place) -> None:
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(SetRequiresGrad(targets=("lazy-mlp",), on=False))
    place.do(Forward(target="lazy-mlp"))
    assert not any(flags(place, "lazy-mlp"))
    place.do(Undo())
    place.do(Undo())
    assert all(flags(place, "lazy-mlp"))


def test_leftover_gradients_and_optimizers_are_named(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(SetRequiresGrad(targets=("mlp:0.bias",), on=False))
    place.do(MakeOptimizer(target="mlp"))
    assert "made without 1 of them" in place.answer(SetRequiresGrad(targets=("mlp",), on=True)).words
    place.do(Backward(target="mlp"))
    words = place.answer(SetRequiresGrad(targets=("mlp:0",), on=False)).words
    assert "2 gradients of an earlier backward are still there" in words
    assert "skips them" in words


def test_cleared_gradients_free_their_memory_and_come_back(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    held = place.allocated("vgpu:0")
    place.do(Backward(target="mlp"))
    gradients = [parameter.grad for parameter in model(place).parameters()]
    copies = [gradient.cpu().clone() for gradient in gradients if gradient is not None]
    del gradients
    assert place.allocated("vgpu:0") > held
    answer = place.answer(ClearGradients(target="mlp"))
    assert place.allocated("vgpu:0") == held
    assert place.held("vgpu:0") == 7946 * 4
    assert all(parameter.grad is None for parameter in model(place).parameters())
    assert "4 gradients are now None, freeing 31.04 KiB on vgpu:0" in answer.words
    place.do(Undo())
    back = [parameter.grad for parameter in model(place).parameters()]
    assert all(
        torch.equal(a.cpu(), b) and str(a.device) == "vgpu:0"
        for a, b in zip(back, copies, strict=True)
        if a is not None
    )
    exec(answer.code, {"mlp": model(place)})
    assert all(parameter.grad is None for parameter in model(place).parameters())


def test_gradients_of_one_parameter_or_tensor(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(Backward(target="mlp"))
    place.do(ClearGradients(target="mlp:0.weight"))
    assert [parameter.grad is None for parameter in model(place).parameters()] == [True, False, False, False]
    x = torch.ones(2, requires_grad=True)
    x.sum().backward()
    place.workspace.add("x", x)
    place.do(ClearGradients(target="x"))
    assert x.grad is None
    place.do(Undo())
    assert x.grad is not None
    with pytest.raises(BadInput, match="there is no gradient in"):
        place.do(ClearGradients(target="mlp:0.weight"))


def test_gradients_over_the_budget_are_cleared_for_good(place: Place) -> None:
    workspace = Workspace(place.registry, undo_budget_bytes=100)
    small = Place(place.kind, place.registry, workspace, "cpu", None)
    small.do(BuildModel(recipe="mlp"))
    small.do(Backward(target="mlp"))
    assert "cannot be undone" in small.answer(ClearGradients(target="mlp")).words
    assert workspace.history.state().title is None


def test_modes(place: Place) -> None:
    place.workspace.add("net", nn.Sequential(nn.Dropout(), nn.BatchNorm1d(3), nn.Linear(3, 3)))
    net = model(place, "net")
    answer = place.answer(SetTraining(target="net", on=False))
    assert not net.training
    assert "1 dropout layer lets values pass unchanged" in answer.words
    assert "running statistics" in answer.words
    place.do(SetTraining(target="net:1", on=True))
    assert [module.training for module in net.modules()] == [False, False, True, False]
    place.do(Undo())
    assert not any(module.training for module in net.modules())
    place.do(Undo())
    assert all(module.training for module in net.modules())
    exec(answer.code, {"net": net})
    assert not net.training
    place.do(NewTensor(name="x"))
    with pytest.raises(BadInput, match="is a tensor"):
        place.do(SetTraining(target="x", on=True))
    tensor = place.workspace.get("x")
    assert isinstance(tensor, Tensor)


@pytest.mark.parametrize("target", ["lazy", "lazy:0", "lazy:0.weight"])
def test_what_waits_for_its_shape_is_frozen_by_the_code_too(target: str) -> None:
    with place_of("vgpu") as place:
        names: dict[str, object] = {}
        for command in (
            BuildModel(recipe="lazy-mlp", name="lazy", device="vgpu:0"),
            SetRequiresGrad(targets=(target,), on=False),
        ):
            exec(place.do(command).answer.code, names)
        ours, theirs = place.workspace.get("lazy"), names["lazy"]
        assert isinstance(ours, torch.nn.Module)
        assert isinstance(theirs, torch.nn.Module)
        assert [p.requires_grad for p in theirs.parameters()] == [p.requires_grad for p in ours.parameters()]
        assert not ours.get_parameter("0.weight").requires_grad


def test_whole_numbers_stay_out_of_it_in_the_code_too() -> None:
    with place_of("cpu") as place:
        model = nn.Linear(2, 2)
        model.counts = nn.Parameter(torch.arange(3), requires_grad=False)
        place.workspace.add("net", model.requires_grad_(False))
        code = place.do(SetRequiresGrad(targets=("net",), on=True)).answer.code
        model.requires_grad_(False)
        exec(code, {"net": model})
        assert [name for name, parameter in model.named_parameters() if parameter.requires_grad] == ["weight", "bias"]
