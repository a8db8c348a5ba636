"""Undo: every bit that a move or a cast took is restored, and nothing that was done since is lost."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.records.messages import Backward, BuildModel, EditElement, Forward, Move, NewTensor, Remove, Undo


@pytest.fixture
def place() -> Iterator[Place]:
    with place_of("vgpu") as made:
        yield made


def tensor(place: Place, name: str) -> Tensor:
    thing = place.workspace.get(name)
    assert isinstance(thing, Tensor)
    return thing


def bits(t: Tensor) -> list[int]:
    return t.detach().cpu().contiguous().view(torch.uint8).tolist()


def test_a_cast_and_a_move_undone_one_after_the_other_restore_every_bit(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    model = place.workspace.get("mlp")
    assert isinstance(model, nn.Module)
    before = {name: bits(p) for name, p in model.named_parameters()}
    place.do(Move(targets=("mlp",), device="cpu", dtype="half"))
    place.do(Move(targets=("mlp",), device="vgpu:0"))
    place.do(Undo())
    place.do(Undo())
    assert {name: bits(p) for name, p in model.named_parameters()} == before


def test_an_edit_above_a_cast_survives_both_undos_and_touches_nothing_else(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(5,)))
    before = tensor(place, "x").clone()
    place.do(Move(targets=("x",), device="cpu", dtype="half"))
    place.do(Move(targets=("x",), device="vgpu:1"))
    place.do(EditElement(target="x", index=(0,), value=42))
    place.do(Undo())
    report = place.do(Undo()).report
    assert report is not None
    assert report.bytes == before.nbytes, "the tensor had to be made anew"
    before[0] = 42
    assert bits(tensor(place, "x")) == bits(before)


def test_special_values_come_back_bit_by_bit(place: Place) -> None:
    special = torch.tensor([float("nan"), -0.0, 0.0, float("-inf"), 1e-30, 0.1])
    place.workspace.add("x", special)
    for dtype in ("half", "bfloat16", "int8", "bool"):
        place.do(Move(targets=("x",), device="vgpu:0", dtype=dtype))
        place.do(Undo())
        assert place.workspace.get("x") is special, dtype
    place.do(Move(targets=("x",), device="cpu", dtype="half"))
    place.do(EditElement(target="x", index=(2,), value=-0.0))
    place.do(Undo())
    assert bits(tensor(place, "x")) == bits(torch.tensor([float("nan"), -0.0, -0.0, float("-inf"), 1e-30, 0.1]))


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
def test_gradients_of_a_backward_since_the_cast_are_kept(place: Place, device: str) -> None:
    model = nn.Linear(3, 2)
    place.workspace.add("m", model)
    place.do(NewTensor(shape=(1, 3)))
    place.do(Backward(target="m", input="x"))
    place.do(Move(targets=("m", "x"), device=device, dtype="bfloat16"))
    place.do(Backward(target="m", input="x"))
    place.do(Undo())
    assert model.weight.grad is not None
    assert model.weight.grad.tolist() == [[2, 2, 2], [2, 2, 2]]
    assert model.weight.grad.dtype == torch.float32


def test_a_gradient_that_nobody_touched_is_restored(place: Place) -> None:
    model = nn.Linear(3, 2)
    model.weight.grad = torch.rand(2, 3)
    before = bits(model.weight.grad)
    place.workspace.add("m", model)
    place.do(Move(targets=("m",), device="vgpu:0", dtype="bfloat16"))
    place.do(Move(targets=("m",), device="vgpu:1"))
    place.do(EditElement(target="m:weight", index=(0, 0), value=3))
    place.do(Undo())
    place.do(Undo())
    assert bits(model.weight.grad) == before
    assert model.weight[0, 0].item() == 3


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_running_statistics_of_a_forward_since_the_cast_are_kept(place: Place, device: str) -> None:
    model = nn.Sequential(nn.BatchNorm1d(3))
    place.workspace.add("m", model)
    place.do(NewTensor(fill="rand", shape=(8, 3), device=device, dtype="bfloat16"))
    place.do(Move(targets=("m",), device=device, dtype="bfloat16"))
    place.do(Forward(target="m", input="x"))
    since = model.get_buffer("0.running_mean").cpu().float()
    assert since.count_nonzero() == 3
    place.do(Undo())
    assert torch.equal(model.get_buffer("0.running_mean"), since)
    assert model.get_buffer("0.num_batches_tracked").item() == 1


def test_a_buffer_that_has_another_shape_now_is_converted(place: Place) -> None:
    model = nn.Module()
    model.register_buffer("cache", torch.rand(2))
    place.workspace.add("m", model)
    place.do(Move(targets=("m",), device="cpu", dtype="half"))
    model.cache = torch.ones(3, dtype=torch.float16)
    place.do(Undo())
    assert (model.cache.dtype, model.cache.tolist()) == (torch.float32, [1, 1, 1])


def test_a_leaf_is_the_same_leaf_again_unless_its_copy_was_edited(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(3,), requires_grad=True))
    leaf = tensor(place, "x")
    place.do(Move(targets=("x",), device="vgpu:0"))
    place.do(Undo())
    assert place.workspace.get("x") is leaf
    place.do(Move(targets=("x",), device="vgpu:0", dtype="half"))
    place.do(EditElement(target="x", index=(1,), value=8))
    place.do(Undo())
    x = tensor(place, "x")
    assert x.tolist() == [leaf[0].item(), 8, leaf[2].item()]
    x.sum().backward()
    assert leaf.grad is not None
    assert leaf.grad.tolist() == [1, 1, 1]


def test_an_object_that_is_gone_takes_only_its_own_tensors_out_of_undo(place: Place) -> None:
    first, second = nn.Linear(2, 2), nn.Linear(2, 2)
    second.weight = first.weight
    for name, model in (("first", first), ("second", second)):
        place.workspace.add(name, model)
    place.do(Move(targets=("first", "second"), device="vgpu:1"))
    place.do(Remove(names=("first",)))
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


# random sequences against a model that keeps full copies

DTYPES = {"float16": torch.float16, "bfloat16": torch.bfloat16, "float32": torch.float32, "float64": torch.float64}
STEP = st.one_of(
    st.tuples(st.just("move"), st.sampled_from(["x", "m"]), st.sampled_from(["cpu", "vgpu:0", "vgpu:1"]), st.sampled_from([None, *DTYPES])),
    st.tuples(st.just("edit"), st.sampled_from(["x", "m:weight", "m:weight.grad", "m:table"]), st.integers(0, 3)),
    st.tuples(st.just("undo")),
)


@dataclass
class Full:
    """A move to be undone, with copies of everything that it moved."""

    target: str
    device: str
    dtype: torch.dtype
    values: dict[str, Tensor]
    edited: dict[str, Tensor]


class Expected:
    """Values on the CPU, where they should be, and a full copy for every undo: what was edited since is converted, the rest restored."""

    def __init__(self, values: dict[str, Tensor]) -> None:
        self.values = {name: t.detach().clone() for name, t in values.items()}
        self.where = {"x": ("cpu", torch.float32), "m": ("cpu", torch.float32)}
        self.moves: list[Full] = []

    def _of(self, target: str) -> list[str]:
        return [name for name in self.values if name.partition(":")[0] == target]

    def move(self, target: str, device: str, dtype: torch.dtype | None) -> None:
        wanted = (device, dtype or self.where[target][1])
        if wanted == self.where[target]:
            return
        copies = {name: self.values[name].clone() for name in self._of(target)}
        self.moves.append(Full(target, *self.where[target], copies, {k: torch.zeros(4, dtype=torch.bool) for k in copies}))
        self.where[target] = wanted
        for name in copies:
            self.values[name] = self.values[name].to(wanted[1])

    def edit(self, name: str, index: int, value: float) -> None:
        self.values[name][index] = value
        for full in self.moves:
            if name in full.edited:
                full.edited[name][index] = True

    def undo(self) -> None:
        full = self.moves.pop()
        self.where[full.target] = (full.device, full.dtype)
        for name, copy in full.values.items():
            self.values[name] = torch.where(full.edited[name], self.values[name].to(full.dtype), copy)


@settings(max_examples=60, deadline=None)
@given(st.lists(STEP, max_size=12))
def test_undo_restores_what_was_not_edited_and_keeps_what_was(steps: list[tuple[str, ...]]) -> None:
    with place_of("vgpu") as place:
        model = nn.Module()
        model.weight = nn.Parameter(torch.rand(4))
        model.weight.grad = torch.rand(4)
        model.register_buffer("table", torch.rand(4))
        place.workspace.add("m", model)
        place.workspace.add("x", torch.rand(4))

        def found() -> dict[str, Tensor]:
            assert model.weight.grad is not None
            return {"x": tensor(place, "x"), "m:weight": model.weight, "m:weight.grad": model.weight.grad, "m:table": model.table}

        def check() -> None:
            for name, t in found().items():
                assert (str(t.device), t.dtype) == expected.where[name.partition(":")[0]]
                assert bits(t) == bits(expected.values[name]), name

        expected = Expected(found())
        for number, (kind, *given_) in enumerate(steps, start=1):
            value = 2.0**number  # its own for every edit, and exact in every dtype
            match kind, given_:
                case "move", [target, device, dtype]:
                    place.do(Move(targets=(target,), device=device, dtype=dtype))
                    expected.move(target, device, None if dtype is None else DTYPES[dtype])
                case "edit", ["m:weight.grad" as target, index]:  # as a backward would
                    found()[target][index] = value
                    expected.edit(target, index, value)
                case "edit", [target, index]:
                    place.do(EditElement(target=target, index=(index,), value=value))
                    expected.edit(target, index, value)
                case "undo", [] if expected.moves:
                    place.do(Undo())
                    expected.undo()
            check()
        while expected.moves:
            place.do(Undo())
            expected.undo()
            check()
        assert place.workspace.undo_state().title is None
        assert place.allocated("vgpu:0") == place.allocated("vgpu:1") == 0
