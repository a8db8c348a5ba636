"""Moves of special tensors: each works, or says why not, and leaves the rest of the workspace unchanged."""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable

import pytest
import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.base import BadInput
from devexplorer.core.records import BuildModel, Forward, Move, NewTensor, Undo
from devexplorer.core.virtual.device.memory import CachingAllocator, worst_case_bytes

pytestmark = pytest.mark.filterwarnings(
    "ignore::UserWarning"
)  # torch's own: some of these kinds are prototypes, or on their way out


class Stamped(Tensor):
    """A tensor subclass of a user."""


class Holder(nn.Module):
    """A layer with one more buffer."""

    def __init__(self, buffer: Tensor) -> None:
        super().__init__()
        self.layer = nn.Linear(2, 2)
        self.register_buffer("odd", buffer)


def ragged(layout: torch.layout) -> Tensor:
    return torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], layout=layout)


REFUSED: dict[str, tuple[Callable[[], Tensor], str]] = {
    "sparse": (
        lambda: torch.eye(3).to_sparse(),
        "is sparse_coo; only dense tensors can be moved, and to_dense() makes one",
    ),
    "compressed": (lambda: torch.eye(3).to_sparse_csr(), "is sparse_csr"),
    "quantised": (lambda: torch.quantize_per_tensor(torch.ones(3), 0.1, 0, torch.qint8), "is quantised"),
    "nested": (
        lambda: ragged(torch.strided),
        "is nested; only dense tensors can be moved, and to_padded_tensor() makes one",
    ),
    "jagged": (lambda: ragged(torch.jagged), "is nested"),
    "meta": (lambda: torch.empty(3, device="meta"), "has no values"),
    "subclass": (
        lambda: torch.ones(3).as_subclass(Stamped),
        "is a Stamped, and a virtual GPU would make a plain tensor of it",
    ),
}


@pytest.mark.parametrize("kind", REFUSED)
@pytest.mark.parametrize("inside", [False, True], ids=["alone", "in a model"])
def test_what_cannot_move_is_refused_in_one_line_and_costs_nothing(place: Place, kind: str, inside: bool) -> None:
    make, words = REFUSED[kind]
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(fill="rand", shape=(3,), device="vgpu:1"))
    thing: nn.Module | Tensor = Holder(make()) if inside else make()
    place.workspace.add("odd", thing)
    before = [place.snapshot(name) for name in place.workspace.names]
    allocated = [place.allocated(device) for device in ("vgpu:0", "vgpu:1")]
    for targets, copy in itertools.product((("odd",), ("mlp", "odd", "x")), (False, True)):
        with pytest.raises(BadInput) as refusal:
            place.do(Move(targets=targets, device="vgpu:0", copy=copy))
        assert words in str(refusal.value)
        assert "\n" not in str(refusal.value)
        assert [place.snapshot(name) for name in place.workspace.names] == before
        assert [place.allocated(device) for device in ("vgpu:0", "vgpu:1")] == allocated
    place.do(Move(targets=("mlp", "x"), device="vgpu:0"))  # without it the others move


def test_a_part_without_the_odd_tensor_still_moves(place: Place) -> None:
    place.workspace.add("m", Holder(torch.eye(3).to_sparse()))
    place.do(Move(targets=("m:layer",), device="vgpu:0"))
    devices = {row.path: row.devices for row in place.snapshot("m").rows}
    assert (devices["layer"], devices["odd"]) == (("vgpu:0",), ("cpu",))


def test_a_lazy_model_moves_before_it_has_shapes_and_a_cast_back_and_forth_is_undone(place: Place) -> None:
    place.do(BuildModel(recipe="lazy-mlp"))
    outcome = place.do(Move(targets=("lazy-mlp",), device="vgpu:1", dtype="float64"))
    assert outcome.report is not None
    assert (outcome.report.uninitialised, outcome.report.bytes) == (
        sum(not row.initialised for row in place.snapshot("lazy-mlp").rows),
        0,
    )
    waiting = [row for row in place.snapshot("lazy-mlp").rows if not row.initialised]
    assert {(row.devices, row.dtype) for row in waiting} == {(("vgpu:1",), "float64")}
    place.do(Undo())
    assert {(row.devices, row.dtype) for row in place.snapshot("lazy-mlp").rows if not row.initialised} == {
        (("cpu",), "float32")
    }
    place.do(Move(targets=("lazy-mlp",), device="vgpu:1"))
    place.do(Forward(target="lazy-mlp"))
    assert set(place.snapshot("lazy-mlp").bytes_by_device) == {"vgpu:1"}


def test_moving_a_view_says_that_both_names_shared_memory_and_the_other_stays(place: Place) -> None:
    whole = torch.arange(6.0)
    place.workspace.add("whole", whole)
    place.workspace.add("view", whole[2:4])
    outcome = place.do(Move(targets=("view",), device="vgpu:0"))
    assert "view and whole shared memory; after the move they do not." in outcome.answer.words
    assert place.workspace.get("whole") is whole
    view = place.workspace.get("view")
    assert isinstance(view, Tensor)
    assert view.tolist() == [2.0, 3.0]
    assert place.allocated("vgpu:0") == 512, "two elements moved, not the storage behind them"


class Slots(nn.Module):
    """One buffer and one parameter, each under several names, in one module and in another."""

    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("a", torch.arange(3.0))
        self.register_buffer("b", self.a)
        self.inner = nn.Module()
        self.inner.register_buffer("c", self.a)
        self.inner.weight = nn.Parameter(torch.ones(2))
        self.weight = self.inner.weight
        self.register_parameter("again", self.weight)


@pytest.mark.parametrize("target", ["m", "m:inner"])
def test_every_slot_of_a_tensor_follows_the_move_and_the_undo(place: Place, target: str) -> None:
    model = Slots()
    place.workspace.add("m", model)
    for command, device in ((Move(targets=(target,), device="vgpu:0"), "vgpu:0"), (Undo(), "cpu")):
        place.do(command)
        assert model.a is model.b is model.inner.c
        assert model.weight is model.inner.weight is model.again
        assert {str(model.a.device), str(model.weight.device)} == {device}


def test_one_object_under_two_names_moves_once(place: Place) -> None:
    model = nn.Linear(2, 2)
    place.workspace.add("m", model)
    place.workspace.add("again", model)
    outcome = place.do(Move(targets=("m", "again"), device="vgpu:0"))
    assert outcome.report is not None
    assert outcome.report.parameters == 2
    assert place.snapshot("m").rows[1:] == place.snapshot("again").rows[1:]
    assert place.allocated("vgpu:0") == 2 * 512


def test_what_was_seen_before_a_command_is_what_is_there(place: Place) -> None:
    """A command that compares may take an earlier snapshot for how it was: only while nothing about its tensors was
    changed since."""
    model = nn.Linear(2, 2)
    place.workspace.add("m", model)
    place.workspace.add("other", nn.Sequential(model))
    first = place.workspace.snapshot("other")
    assert place.workspace.seen("other") is first
    place.do(Move(targets=("m",), device="vgpu:0"))  # takes the tensors of the other along
    assert place.workspace.seen("other") == place.snapshot("other") != first


def test_the_garbage_collector_works_again_after_a_move_that_failed(place: Place) -> None:
    place.workspace.add("x", torch.eye(3).to_sparse())
    assert gc.isenabled()
    with pytest.raises(BadInput):
        place.do(Move(targets=("x",), device="vgpu:0"))
    assert gc.isenabled()


@pytest.mark.parametrize(
    "sizes", [[1] * 5000, [600_000] * 7, [1_500_000] * 9, [9 << 20] * 3, [30 << 20], [], [1 << 20, 5, (1 << 20) + 1]]
)
def test_the_quick_bound_of_what_a_move_needs_is_never_too_low(sizes: list[int]) -> None:
    assert CachingAllocator(1 << 40).footprint(sizes) <= worst_case_bytes(sizes)
