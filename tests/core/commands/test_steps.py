"""Several commands as one: all or none, one step of Undo, one answer."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
import pytest
import torch
from places import Place, place_of

from devexplorer.core.base import ProgressMonitor
from devexplorer.core.commands.registry import dispatch, title_of
from devexplorer.core.engine.engine import LocalEngine
from devexplorer.core.engine.link import decode_command
from devexplorer.core.parameters.records import TrainStep
from devexplorer.core.records import (
    Answer,
    BuildModel,
    Combine,
    EngineDevices,
    Forward,
    Move,
    NewTensor,
    ObjectChanged,
    Steps,
    Undo,
)
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.workspace import StepFailed


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def moved(*targets: str, device: str = "vgpu:0") -> Move:
    return Move(targets=targets, device=device)


def test_a_step_that_fails_takes_back_those_before_it(place: Place) -> None:
    place.do(BuildModel(recipe="mlp", device="vgpu:0"))
    place.do(NewTensor(name="x", shape=(2, 7)))
    both = Steps(commands=(moved("x"), Forward(target="mlp", input="x")))
    answer = place.answer(both)
    assert answer.failed
    assert answer.title == "mlp did not run"
    assert "It stopped in '0' (Linear)" in answer.words
    assert answer.words.endswith("The step before it (moving x to vgpu:0) was undone: nothing has changed.")
    assert answer.offers == ()
    assert place.snapshot("x").bytes_by_device == {"cpu": 56}
    assert place.workspace.history.state().title == "the new tensor x"


def test_a_first_step_that_fails_answers_as_it_does_alone(place: Place) -> None:
    place.do(NewTensor(name="x"))
    alone = place.answer(moved("x", device="cuda:7"))
    assert alone.failed
    assert place.answer(Steps(commands=(moved("x", device="cuda:7"), Combine(left="x", right="x")))) == alone


def test_it_is_cancelled_between_two_steps_and_tells_how_far_it_is(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    seen: list[float] = []
    both = Steps(commands=(moved("mlp"), moved("mlp", device="vgpu:1")))
    monitor = ProgressMonitor(lambda done, text, part="": seen.append(done), lambda: bool(seen) and seen[-1] >= 0.4)
    with pytest.raises(StepFailed, match="cancelled"):
        dispatch(place.workspace, both, monitor)
    assert max(seen) <= 1
    assert place.snapshot("mlp").rows[0].devices == ("cpu",)
    seen.clear()
    dispatch(place.workspace, both, ProgressMonitor(lambda done, text, part="": seen.append(done)))
    assert seen == sorted(seen)
    assert any(done > 0.5 for done in seen)


def test_the_wrong_dtype_has_a_way_out_that_does_all_of_it(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(name="x", fill="rand", shape=(2, 20), dtype="float64"))
    refused = place.answer(Forward(target="mlp", input="x"))
    assert [offer.label for offer in refused.offers] == [
        "Cast x to float32 and run forward",
        "Cast mlp to float64 and run forward",
    ]
    answer = place.answer(refused.offers[0].command)
    assert not answer.failed
    assert place.snapshot("x").rows[0].dtype == "float32"

    place.do(NewTensor(name="y", shape=(20, 2), dtype="float64"))
    refused = place.answer(Combine(left="x", right="y", operator="@"))
    assert "x is float32 and y is float64" in refused.words
    assert refused.offers[0].label == "Copy y as float32 and multiply"
    assert not place.answer(refused.offers[0].command).failed
    assert place.snapshot("result").rows[0].shape == (2, 2)
    place.do(NewTensor(name="z", shape=(3, 2), dtype="float64"))
    assert place.answer(Combine(left="x", right="z", operator="@")).offers == (), "its shape is wrong too"


def test_a_step_of_training_without_an_optimizer_is_made_with_one(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    offer = place.answer(TrainStep(target="mlp")).offers[0]
    assert offer.label == "Make an Adam optimizer and step"
    assert title_of(offer.command) == "giving mlp an optimizer, then training step of mlp"
    answer = place.answer(offer.command)
    assert answer.title == "mlp made a step"
    assert answer.code.index("Adam") < answer.code.index(".step()")


def test_it_crosses_the_link() -> None:
    command = Steps(commands=(moved("x"), Steps(commands=(Combine(left="a", right="b"),))))
    assert decode_command(msgspec.msgpack.encode(command)) == command


@pytest.mark.skipif(torch.cuda.device_count() > 1, reason="there is such a card here")
def test_virtual_gpus_are_added_and_used_in_one_step(virtual: VirtualMachine) -> None:
    virtual.reset()
    with LocalEngine() as local:
        (answer,) = (event for event in local.run(NewTensor(name="x", device="cuda:1")) if isinstance(event, Answer))
        assert answer.offers[0].label == "Add virtual GPUs and use vgpu:1"
        events = local.run(answer.offers[0].command)
        (devices,) = (event for event in events if isinstance(event, EngineDevices))
        assert [info.id for info in devices.devices if info.simulated] == ["vgpu:0", "vgpu:1"]
        (changed,) = (event for event in events if isinstance(event, ObjectChanged))
        assert changed.snapshot.bytes_by_device == {"vgpu:1": 4}
        local.run(Undo())
        assert local.engine.workspace.names == ()
