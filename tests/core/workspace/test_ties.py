"""Ties, hooks, classes and shared memory survive a move, or the loss is reported. What cannot move is refused."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.records import BuildModel, Command, Move, NewTensor, Undo
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.placement import Target


def with_table() -> nn.Module:
    model = nn.Sequential(nn.Linear(2, 2), nn.Linear(2, 2))
    model.register_buffer("table", torch.arange(3.0))
    model[1].register_buffer("table", model.table)
    return model


def test_a_buffer_tied_to_another_object_stays_tied_and_that_object_is_reported_as_changed(place: Place) -> None:
    first, second = with_table(), nn.Module()
    second.register_buffer("table", first.table)
    place.workspace.add("first", first)
    place.workspace.add("second", second)
    for command in (Move(targets=("first:1",), device="vgpu:1"), Undo()):
        outcome = place.do(command)
        assert first.table is second.table is first[1].table
        assert [snap.name for snap in outcome.changed] == ["first", "second"]
        assert outcome.changed[1] == place.snapshot("second")
    place.do(Move(targets=("first",), device="vgpu:1"))
    assert str(second.table.device) == "vgpu:1"


@pytest.mark.parametrize("devices", [("vgpu:0", "vgpu:1", "cpu"), ("vgpu:1",), ("cpu",)])
def test_hooks_on_a_parameter_go_along_and_can_still_be_removed(place: Place, devices: tuple[str, ...]) -> None:
    model = nn.Linear(2, 1, bias=False)
    called: list[str] = []
    before = model.weight.register_hook(lambda gradient: called.append("gradient"))
    after = model.weight.register_post_accumulate_grad_hook(lambda parameter: called.append("accumulated"))
    place.workspace.add("m", model)
    for device in devices:
        place.do(Move(targets=("m",), device=device, dtype="float64"))
        model(torch.ones(1, 2, dtype=torch.float64, device=device)).sum().backward()
        assert called == ["gradient", "accumulated"]
        called.clear()
    place.do(Undo())
    before.remove()
    after.remove()
    at = model.weight
    model(torch.ones(1, 2, dtype=at.dtype, device=at.device)).sum().backward()
    assert called == []


class Special(nn.Parameter):
    """A parameter with a class of its own."""


class Marked(Tensor):
    """A tensor with a class of its own."""


def test_a_class_of_its_own_never_turns_into_a_plain_one(place: Place) -> None:
    model = nn.Module()
    model.special = Special(torch.rand(3))
    model.register_buffer("marked", torch.rand(2).as_subclass(Marked))
    place.workspace.add("m", model)
    for name in ("special", "marked"):
        with pytest.raises(
            BadInput, match=f"'{name}' is a {name.capitalize()}, and a virtual GPU would make a plain tensor of it"
        ):
            place.do(Move(targets=("m",), device="vgpu:0"))
        assert model.special.device.type == "cpu"
        if name == "special":
            place.do(Move(targets=("m",), device="cpu", dtype="float64"))
            assert type(model.special) is Special
            del model.special
            model.special = nn.Parameter(torch.rand(2))


def sparse_gradient() -> nn.Module:
    model = nn.Embedding(4, 2, sparse=True)
    model(torch.tensor([1])).sum().backward()
    return model


def test_a_sparse_gradient_is_refused_in_words_and_has_no_other_effect(place: Place) -> None:
    model = nn.Sequential(sparse_gradient(), nn.Linear(2, 2))
    place.workspace.add("m", model)
    with pytest.raises(BadInput, match=r"the gradient of '0\.weight' is sparse_coo"):
        place.do(Move(targets=("m",), device="vgpu:0"))
    place.do(Move(targets=("m:1",), device="vgpu:0"))
    assert place.do(Move(targets=("m:0",), device="cpu")).report is not None
    place.do(Undo())
    assert {p.device.type for p in model.parameters()} == {"cpu"}


# shared memory


def flattened() -> nn.Module:
    flat = torch.arange(6.0)
    model = nn.Module()
    model.a, model.b, model.c = (nn.Parameter(flat[i : i + 2]) for i in (0, 2, 4))
    return model


def test_tensors_that_shared_memory_and_do_not_any_more_are_named(place: Place) -> None:
    base = torch.arange(6.0)
    place.workspace.add("x", base)
    place.workspace.add("y", base[:2])
    place.workspace.add("m", flattened())
    place.do(NewTensor(name="alone", shape=(2,)))
    assert "shared memory" not in place.answer(Move(targets=("alone",), device="vgpu:0")).words
    assert "shared memory" not in place.answer(Move(targets=("x",), device="vgpu:0", copy=True)).words
    assert "shared memory" not in place.answer(Move(targets=("x", "y"), device="cpu")).words
    words = place.answer(Move(targets=("y",), device="vgpu:0")).words
    assert " y and x shared memory; after the move they do not." in words
    assert "its memory is free" not in words, "x still holds it"
    assert (
        " m:a, m:b and 1 more shared memory; after the move they do not."
        in place.answer(Move(targets=("m",), device="vgpu:0")).words
    )
    assert "shared memory" not in place.answer(Move(targets=("m", "y"), device="vgpu:1")).words


# before the clock starts, and when memory is short


def test_what_waits_on_a_device_is_done_before_the_clock_starts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []
    for backend in place.registry.backends:
        monkeypatch.setattr(backend, "synchronize", lambda device: events.append(device))

    def wall() -> float:
        events.append("clock")
        return float(len(events))

    model = nn.Linear(2, 2)
    model.bias.data = model.bias.data.clone()
    mover = Mover(place.registry, wall=wall)
    mover.move([Target("m", "", model)], "vgpu:1", None, lambda name, tensor: None)
    assert events == ["cpu", "vgpu:1", "clock", "vgpu:1", "clock"]
    events.clear()
    mover.duplicate([Target("m", "", model)], "cpu", None)
    assert events == ["cpu", "vgpu:1", "clock", "cpu", "clock"]


@pytest.mark.parametrize(
    "command",
    [
        NewTensor(shape=(10_000,), device="vgpu:0"),
        Move(targets=("x",), device="vgpu:0"),
        Move(targets=("x",), device="vgpu:0", copy=True),
        BuildModel(recipe="lenet", device="vgpu:0"),
    ],
)
def test_the_machine_is_named_when_its_memory_is_what_runs_short(
    place: Place, monkeypatch: pytest.MonkeyPatch, command: Command
) -> None:
    place.do(NewTensor(shape=(10_000,)))
    machine: Any = place.registry.backend("vgpu:0")
    monkeypatch.setattr(machine, "_host_free", lambda: 1024)
    with pytest.raises(
        DoesNotFit, match=r"1\.00 KiB are free on this machine, whose memory holds the values of vgpu:0"
    ) as refusal:
        place.do(command)
    assert refusal.value.device == "cpu"
    assert place.allocated("vgpu:0") == 0


def test_the_card_is_named_when_its_memory_is_what_runs_short(place: Place) -> None:
    with pytest.raises(DoesNotFit, match=r"GiB are free on vgpu:0$") as refusal:
        place.do(NewTensor(shape=(2**34,), device="vgpu:0"))
    assert refusal.value.device == "vgpu:0"
