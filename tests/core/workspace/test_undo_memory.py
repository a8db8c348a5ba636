"""Undo keeps its data in host memory: it does not fill devices, and all of it is counted."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
import torch
from places import Place, place_of

from devexplorer.core.parameters.records import MakeOptimizer, TrainStep
from devexplorer.core.records import BuildModel, Move, Remove, Undo


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        made.do(BuildModel(recipe="mlp", name="net", device="vgpu:0"))
        made.do(MakeOptimizer(target="net", kind="adam"))
        made.do(TrainStep(target="net"))
        yield made


def state(place: Place) -> list[torch.Tensor]:
    return [tensor.cpu().clone() for tensor in place.workspace.extras("net").tensors()]


def test_steps_that_can_be_undone_take_no_memory_of_the_device(place: Place) -> None:
    allocated, first = place.allocated("vgpu:0"), state(place)
    kept = place.workspace.history.state().kept_bytes
    for _ in range(5):
        place.do(TrainStep(target="net"))
    assert place.allocated("vgpu:0") == allocated
    assert place.workspace.history.state().kept_bytes > kept
    for _ in range(5):
        place.do(Undo())
    assert all(torch.equal(now, was) for now, was in zip(state(place), first, strict=True))
    assert {tensor.device.type for tensor in place.workspace.extras("net").tensors() if tensor.dim()} == {"vgpu"}
    place.do(TrainStep(target="net"))


def test_originals_of_an_optimizers_state_leave_the_device_with_its_model_and_come_back(place: Place) -> None:
    before = state(place)
    place.do(Move(targets=("net",), device="vgpu:0", dtype="float16", optimizer=True))
    place.do(Remove(names=("net",)))
    gc.collect()
    assert place.allocated("vgpu:0") == 0
    place.do(Undo())
    place.do(Undo())
    assert all(torch.equal(now, was) for now, was in zip(state(place), before, strict=True))
    assert {tensor.device.type for tensor in place.workspace.extras("net").tensors() if tensor.dim()} == {"vgpu"}


def test_the_state_of_an_optimizer_that_was_replaced_counts(place: Place) -> None:
    kept = place.workspace.history.state().kept_bytes
    size = sum(tensor.nbytes for tensor in place.workspace.extras("net").tensors())
    place.do(MakeOptimizer(target="net", kind="sgd"))
    assert place.workspace.history.state().kept_bytes == kept + size
