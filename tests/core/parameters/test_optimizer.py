"""Optimizers: created, stepped, left behind by a move, moved along; every step is undone completely."""

from __future__ import annotations

import copy
import hashlib

import pytest
import torch
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.models.run import RunFailed
from devexplorer.core.parameters.records import MakeOptimizer, SetRequiresGrad, TrainStep
from devexplorer.core.records import BuildModel, Move, MoveOptimizer, NewTensor, Redo, Steps, Undo
from devexplorer.core.workspace.workspace import Workspace


def model(place: Place, name: str = "mlp") -> nn.Module:
    found = place.workspace.get(name)
    assert isinstance(found, nn.Module)
    return found


def everything(place: Place, name: str = "mlp") -> list[str]:
    """All values, gradients and state, as digests: copies of several stages of a model would be large."""
    thing, optimizer = model(place, name), place.workspace.extras(name).optimizer
    held = [*thing.parameters(), *thing.buffers(), *(p.grad for p in thing.parameters() if p.grad is not None)]
    if optimizer is not None:
        held += [value for state in optimizer.state.values() for value in state.values() if isinstance(value, Tensor)]
    return [hashlib.sha256(tensor.detach().cpu().numpy().tobytes()).hexdigest() for tensor in held]


def state_devices(place: Place, name: str = "mlp") -> dict[str, set[str]]:
    optimizer = place.workspace.extras(name).optimizer
    assert optimizer is not None
    found: dict[str, set[str]] = {}
    for state in optimizer.state.values():
        for key, value in state.items():
            if isinstance(value, Tensor):
                found.setdefault(key, set()).add(str(value.device))
    return found


@pytest.mark.parametrize("kind", ["sgd", "momentum", "adam", "adamw"])
def test_a_step_is_what_pytorch_does(place: Place, kind: str) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    place.workspace.add("x", torch.ones(2, 20, device="vgpu:0"))
    twin = copy.deepcopy(model(place)).to("cpu")
    made = place.answer(MakeOptimizer(target="mlp", kind=kind, learning_rate=0.01))
    names = {"mlp": twin, "x": torch.ones(2, 20)}
    exec(made.code, names)
    for _ in range(2):
        answer = place.answer(TrainStep(target="mlp", input="x"))
        exec(answer.code, names)
    pairs = zip(model(place).parameters(), twin.parameters(), strict=True)
    assert all(torch.allclose(mine.detach().cpu(), theirs.detach(), atol=1e-6) for mine, theirs in pairs)
    assert place.snapshot("mlp").optimizer == place.workspace.extras("mlp").optimizer_text
    assert place.snapshot("mlp").optimizer.startswith({"sgd": "SGD", "momentum": "SGD"}.get(kind, "Adam"))  # type: ignore[union-attr]


def test_what_changed_and_what_is_kept_is_reported(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    place.do(MakeOptimizer(target="mlp"))
    outcome = place.do(TrainStep(target="mlp"))
    assert "4 parameters changed, most of all 0.weight" in outcome.answer.words
    facts = {fact.label: fact.value for fact in outcome.answer.facts}
    assert facts["state"] == "16 B on cpu, 62.08 KiB on vgpu:0"
    assert "loss before the step" in facts
    assert "a step of the optimizer" in outcome.side_effects
    assert place.held("vgpu:0") == 31784 * 4  # values, gradients, two moments


def test_undo_and_redo_of_steps(place: Place) -> None:
    place.workspace.add("net", nn.Sequential(nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.Flatten(), nn.Linear(144, 2)))
    place.workspace.add("x", torch.ones(2, 3, 8, 8))
    place.do(MakeOptimizer(target="net", kind="adam"))
    stages = [everything(place, "net")]
    for _ in range(2):
        place.do(TrainStep(target="net", input="x"))
        stages.append(everything(place, "net"))
    place.do(Undo())
    assert everything(place, "net") == stages[1]
    place.do(Undo())
    assert everything(place, "net") == stages[0]
    place.do(Redo())
    assert everything(place, "net") == stages[1]


def test_a_step_that_fails_leaves_everything_as_it_was(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(MakeOptimizer(target="mlp"))
    place.do(TrainStep(target="mlp"))
    before = everything(place)
    place.do(NewTensor(name="wrong", shape=(2, 7)))
    with pytest.raises(RunFailed):
        place.do(TrainStep(target="mlp", input="wrong"))
    assert "It stopped in '0' (Linear)" in place.answer(TrainStep(target="mlp", input="wrong")).words
    assert everything(place) == before
    optimizer = place.workspace.extras("mlp").optimizer
    assert optimizer is not None
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(optimizer, "step", lambda: (_ for _ in ()).throw(RuntimeError("no step today")))
        assert "no step today" in place.answer(TrainStep(target="mlp")).words
    assert everything(place) == before


def test_an_input_on_another_device_is_explained_as_in_a_forward(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    place.do(MakeOptimizer(target="mlp"))
    place.do(NewTensor(name="x", fill="rand", shape=(2, 20)))
    answer = place.answer(TrainStep(target="mlp", input="x"))
    assert answer.failed
    assert "input is on cpu" in answer.words
    place.do(next(offer.command for offer in answer.offers if offer.label == "Move x to vgpu:0 and step"))
    assert place.workspace.history.state().title == "the move of x to vgpu:0 and the training step of mlp"
    assert not place.answer(TrainStep(target="mlp", input="x")).failed


def test_state_that_stayed_behind_is_named_and_follows_on_request(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    place.do(MakeOptimizer(target="mlp"))
    assert "stayed behind" not in place.answer(Move(targets=("mlp",), device="vgpu:1")).words
    place.do(TrainStep(target="mlp"))
    answer = place.answer(Move(targets=("mlp",), device="vgpu:0"))
    assert "stayed behind, 62.08 KiB on vgpu:1" in answer.words
    (offer,) = answer.offers
    assert offer.command == MoveOptimizer(target="mlp")
    refused = place.answer(TrainStep(target="mlp"))
    assert refused.failed
    assert "state is on vgpu:1 and its parameter on vgpu:0" in refused.words
    assert [one.command for one in refused.offers] == [Steps(commands=(offer.command, TrainStep(target="mlp")))]
    moved = place.answer(offer.command)
    assert state_devices(place) == {"step": {"cpu"}, "exp_avg": {"vgpu:0"}, "exp_avg_sq": {"vgpu:0"}}
    assert not place.answer(TrainStep(target="mlp")).failed
    place.do(Undo())
    place.do(Undo())
    assert state_devices(place)["exp_avg"] == {"vgpu:1"}
    exec(moved.code, {"_optimizer_mlp": place.workspace.extras("mlp").optimizer})
    assert state_devices(place) == {"step": {"cpu"}, "exp_avg": {"vgpu:0"}, "exp_avg_sq": {"vgpu:0"}}


def test_a_move_that_takes_the_state_along_is_one_change(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(MakeOptimizer(target="mlp", kind="momentum"))
    place.do(TrainStep(target="mlp"))
    before = everything(place)
    answer = place.answer(Move(targets=("mlp",), device="vgpu:1", optimizer=True))
    assert "The state of its optimizer followed, 31.04 KiB" in answer.words
    assert answer.offers == ()
    assert state_devices(place) == {"momentum_buffer": {"vgpu:1"}}
    assert everything(place) == before
    place.do(Undo())
    assert state_devices(place) == {"momentum_buffer": {"cpu"}}
    assert {str(p.device) for p in model(place).parameters()} == {"cpu"}
    assert everything(place) == before


def test_state_that_does_not_fit_takes_the_move_back() -> None:
    with place_of("vgpu") as place:
        place.do(BuildModel(recipe="mlp"))
        place.do(MakeOptimizer(target="mlp"))
        place.do(TrainStep(target="mlp"))
        optimizer = place.workspace.extras("mlp").optimizer
        assert optimizer is not None
        huge = torch.zeros(1).expand(1 << 40)
        first = next(model(place).parameters())
        optimizer.state[first]["exp_avg"] = huge
        with pytest.raises(BadInput, match="the optimizer's state needs"):
            place.do(Move(targets=("mlp",), device="vgpu:0", optimizer=True))
        assert {str(p.device) for p in model(place).parameters()} == {"cpu"}


def test_a_cast_model_gets_its_state_cast(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(MakeOptimizer(target="mlp"))
    place.do(TrainStep(target="mlp"))
    before = everything(place)
    answer = place.answer(Move(targets=("mlp",), device="cpu", dtype="bfloat16"))
    assert "is float32 still" in answer.words
    assert "state is float32 and its parameter bfloat16" in place.answer(TrainStep(target="mlp")).words
    assert "cast from float32 to bfloat16" in place.answer(MoveOptimizer(target="mlp")).words
    assert not place.answer(TrainStep(target="mlp")).failed
    for _ in range(3):
        place.do(Undo())
    assert everything(place) == before


def test_frozen_and_unknown_parameters_are_named(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(SetRequiresGrad(targets=("mlp:2",), on=False))
    assert "2 frozen parameters are left out" in place.answer(MakeOptimizer(target="mlp")).words
    place.do(SetRequiresGrad(targets=("mlp:0.bias",), on=False))
    place.do(SetRequiresGrad(targets=("mlp:2",), on=True))
    answer = place.answer(TrainStep(target="mlp"))
    assert "1 parameter of the optimizer is frozen now" in answer.words
    assert "2 parameters that require a gradient are not in it" in answer.words
    assert [offer.command for offer in answer.offers] == [MakeOptimizer(target="mlp", kind="adam", learning_rate=0.001)]


def test_made_replaced_and_removed(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    place.do(MakeOptimizer(target="mlp"))
    place.do(TrainStep(target="mlp"))
    assert "replaces Adam, lr 0.001" in place.answer(MakeOptimizer(target="mlp", kind="sgd")).words
    answer = place.answer(MakeOptimizer(target="mlp", kind="none"))
    assert place.snapshot("mlp").optimizer is None
    assert answer.code == "del _optimizer_mlp"
    place.do(Undo())
    place.do(Undo())
    assert place.snapshot("mlp").optimizer == "Adam, lr 0.001"
    assert state_devices(place)["exp_avg"] == {"vgpu:0"}
    place.do(Undo())
    place.do(Undo())
    assert place.snapshot("mlp").optimizer is None


def test_what_is_refused(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(NewTensor(name="x"))
    for command, reason in (
        (MakeOptimizer(target="mlp", kind="adan"), "did you mean adam"),
        (MakeOptimizer(target="mlp", learning_rate=0), "above 0"),
        (MakeOptimizer(target="mlp", learning_rate=float("nan")), "above 0"),
        (MakeOptimizer(target="mlp:0"), "whole one, 'mlp'"),
        (MakeOptimizer(target="x"), "is a tensor"),
        (MakeOptimizer(target="lazy-mlp"), "run the model once first"),
        (MakeOptimizer(target="mlp", kind="none"), "no optimizer"),
        (MoveOptimizer(target="mlp"), "make one first"),
        (TrainStep(target="mlp"), "make one first"),
    ):
        with pytest.raises(BadInput, match=reason):
            place.do(command)
    assert place.answer(TrainStep(target="mlp")).offers[0].command == Steps(
        commands=(MakeOptimizer(target="mlp"), TrainStep(target="mlp"))
    )
    place.do(SetRequiresGrad(targets=("mlp",), on=False))
    with pytest.raises(BadInput, match="unfreeze some first"):
        place.do(MakeOptimizer(target="mlp"))


def test_nothing_to_move_is_said(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(MakeOptimizer(target="mlp"))
    assert "no state before the first step" in place.answer(MoveOptimizer(target="mlp")).words
    place.do(TrainStep(target="mlp"))
    assert "where its parameters are" in place.answer(MoveOptimizer(target="mlp")).words


def test_over_the_budget_the_step_is_made_and_said_to_be_final(place: Place) -> None:
    workspace = Workspace(place.registry, undo_budget_bytes=1000)
    small = Place(place.kind, place.registry, workspace, "cpu", None)
    small.do(BuildModel(recipe="mlp"))
    small.do(MakeOptimizer(target="mlp"))
    before = everything(small)
    answer = small.answer(TrainStep(target="mlp"))
    assert not answer.failed
    assert "cannot be undone" in answer.words
    assert everything(small) != before
    assert workspace.history.state().title is None
