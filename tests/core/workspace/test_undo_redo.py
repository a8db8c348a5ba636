"""Undo and Redo of everything: random sequences against full copies, failures half-way, the budget, removals that free
device memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import NO_PROGRESS, BadInput, DevExplorerError, ProgressMonitor
from devexplorer.core.commands import handlers
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
    Remove,
    Undo,
)
from devexplorer.core.workspace.changes import CreateChange, ObjectChange, Undone
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.workspace import Workspace


def bits(t: Tensor) -> list[int]:
    return t.detach().cpu().contiguous().flatten().view(torch.uint8).tolist()


def fingerprint(place: Place) -> dict[str, Any]:
    """Everything about every object: where, which dtype, flags, ties, modes, gradients, every bit."""
    found: dict[str, Any] = {}
    for name in sorted(place.workspace.names):
        thing, snap = place.workspace.get(name), place.snapshot(name)
        rows = [
            (r.path, r.kind, r.type, r.shape, r.dtype, r.devices, r.requires_grad, r.tied_to, r.is_leaf, r.initialised)
            for r in snap.rows
        ]
        held = (
            {"": thing}
            if isinstance(thing, Tensor)
            else {**dict(thing.named_parameters()), **dict(thing.named_buffers())}
        )
        ready = {path: t for path, t in held.items() if not isinstance(t, nn.parameter.UninitializedTensorMixin)}
        values = {path: bits(t) for path, t in ready.items()}
        gradients = {path: bits(t.grad) for path, t in ready.items() if t.is_leaf and t.grad is not None}
        modes = [] if isinstance(thing, Tensor) else [(type(m).__name__, m.training) for m in thing.modules()]
        found[name] = (snap.type, snap.optimizer, snap.hops, snap.source, rows, values, gradients, modes)
    return found


class Small(nn.Module):
    """Running statistics, a tie, a lazy layer."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.BatchNorm1d(4)
        self.first = nn.Linear(4, 4)
        self.again = self.first
        self.lazy = nn.LazyLinear(2)

    def forward(self, x: Tensor) -> Tensor:
        result: Tensor = self.lazy(self.again(self.first(self.norm(x))))
        return result


def started(place: Place) -> None:
    torch.manual_seed(0)
    model = Small()
    model.first.weight.grad = torch.rand(4, 4)
    place.workspace.add("m", model)
    tied = nn.Linear(4, 4)
    tied.weight = model.first.weight
    place.workspace.add("other", tied)


NAMES = ["m", "other", "x", "y", "x2", "tied"]
DEVICES = ["cpu", "vgpu:0", "vgpu:1"]
COMMAND = st.one_of(
    st.builds(
        NewTensor, name=st.sampled_from(["x", "y"]), fill=st.just("rand"), shape=st.just((3, 4)),
        device=st.sampled_from(DEVICES),
        requires_grad=st.booleans(), seed=st.integers(0, 3),
    ),
    st.builds(BuildModel, recipe=st.just("tied"), device=st.sampled_from(DEVICES)),
    st.builds(
        Move, targets=st.lists(st.sampled_from([*NAMES, "m:first"]), min_size=1, max_size=2).map(tuple),
        device=st.sampled_from(DEVICES),
        dtype=st.sampled_from([None, None, "float16", "float64"]), copy=st.sampled_from([False, False, True]),
    ),
    st.builds(Remove, names=st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(tuple)),
    st.builds(
        EditElement, target=st.sampled_from(["m:first.weight", "m:norm.running_mean", "x", "other:bias"]),
        index=st.sampled_from([(0,), (1, 1)]), value=st.sampled_from([7.0, -0.0, float("nan")]),
    ),
    st.builds(
        Forward, target=st.sampled_from(["m", "other", "m:first"]), input=st.sampled_from(["x", "y"]),
        output=st.sampled_from([None, "z"])
    ),
    st.builds(Backward, target=st.sampled_from(["m", "other", "m:first"]), input=st.sampled_from(["x", "y"])),
    st.builds(Combine, left=st.sampled_from(["x", "y"]), right=st.sampled_from(["x", "y"])),
)  # fmt: skip
STEP = st.one_of(COMMAND, COMMAND, st.just(Undo()), st.just(Redo()))


@settings(max_examples=15, deadline=None)
@given(st.lists(STEP, max_size=14))
def test_undo_and_redo_go_back_and_forth_between_the_same_states(steps: list[Command]) -> None:
    with place_of("vgpu") as place:
        started(place)
        before: list[Any] = []
        """What was there before each change that can be undone, and after each that can be redone."""
        after: list[Any] = []
        now = fingerprint(place)

        def undo() -> None:
            nonlocal now
            place.do(Undo())
            after.append(now)
            now = before.pop()
            assert fingerprint(place) == now

        for step in steps:
            state = place.workspace.history.state()
            try:
                if isinstance(step, Undo) and before:
                    undo()
                    continue
                outcome = place.do(step)
            except DevExplorerError:
                assert fingerprint(place) == now, step
                assert place.workspace.history.state() == state
                continue
            found = fingerprint(place)
            if isinstance(step, Redo):
                before.append(now)
                now = after.pop()
                assert found == now
            elif "cannot be undone" in outcome.answer.words:  # the result of a computation that was removed
                break
            elif (
                isinstance(step, EditElement) or place.workspace.history.state() != state or found != now
            ):  # also to the value that it has
                before.append(now)
                after.clear()
                now = found
            assert (place.workspace.history.state().title is None) == (not before)
            assert (place.workspace.history.state().redo_title is None) == (not after)
        else:
            while before:
                undo()
            assert place.workspace.history.state().title is None
            assert place.workspace.history.state().kept_bytes == 0
            assert place.allocated("vgpu:0") == place.allocated("vgpu:1") == 0


# removals


@pytest.mark.parametrize("recipe", ["tied", "lstm", "lazy-mlp"])
def test_a_removed_model_frees_its_devices_and_comes_back_to_them_bit_by_bit(place: Place, recipe: str) -> None:
    place.do(BuildModel(recipe=recipe, name="m", device="vgpu:0"))
    part = next(
        row.path
        for row in place.snapshot("m").rows
        if row.kind == "module" and row.path and (row.bytes or recipe == "lazy-mlp")
    )
    if recipe == "tied":
        place.do(Move(targets=(f"m:{part}",), device="vgpu:1"))
        place.do(Backward(target="m:0", input=place.workspace.add("x", torch.rand(2, 20).to("vgpu:1"))))
    before, handlers, allocated = (
        fingerprint(place),
        place.workspace.get("m"),
        [place.allocated(device) for device in DEVICES[1:]],
    )
    place.do(Remove(names=tuple(place.workspace.names)))
    assert [place.allocated(device) for device in DEVICES[1:]] == [0, 0]
    kept = place.workspace.history.state().kept_bytes
    assert kept > 0 or recipe == "lazy-mlp"
    place.do(Undo())
    assert place.workspace.get("m") is handlers
    assert fingerprint(place) == before
    assert [place.allocated(device) for device in DEVICES[1:]] == allocated
    place.do(Redo())
    assert place.workspace.names == ()
    assert place.workspace.history.state().kept_bytes == kept


def test_redo_says_what_was_done_again_as_undo_says_what_was_taken_back(place: Place) -> None:
    place.do(NewTensor(name="x", fill="rand", shape=(2, 2)))
    assert place.do(Undo()).answer.title == "Undone: the new tensor x"
    assert place.do(Redo()).answer.title == "Redone: the new tensor x"
    place.do(Move(targets=("x",), device="vgpu:0"))
    assert place.do(Undo()).answer.title == "x is back on cpu"
    assert place.do(Redo()).answer.title == "x is now on vgpu:0, as a new tensor"


def test_a_removed_tensor_brings_its_gradient_back(place: Place) -> None:
    place.do(NewTensor(name="x", fill="rand", shape=(2, 2), device="vgpu:1", requires_grad=True))
    x = place.workspace.get("x")
    assert isinstance(x, Tensor)
    (x * x).sum().backward()
    before = fingerprint(place)
    del x
    place.do(Remove(names=("x",)))
    assert place.allocated("vgpu:1") == 0
    place.do(Undo())
    assert fingerprint(place) == before


def test_of_two_models_that_share_a_parameter_the_removed_one_frees_what_is_its_own(place: Place) -> None:
    first, second = nn.Linear(64, 64), nn.Linear(64, 64)
    second.weight = first.weight
    place.workspace.add("first", first)
    place.workspace.add("second", second)
    place.do(Move(targets=("first", "second"), device="vgpu:0"))
    before, weight, allocated = fingerprint(place), first.weight, place.allocated("vgpu:0")
    place.do(Remove(names=("first",)))
    assert str(first.weight.device) == "vgpu:0", "the other one needs it there"
    assert str(first.bias.device) == "cpu"
    assert place.allocated("vgpu:0") < allocated
    place.do(Undo())
    assert first.weight is second.weight is weight
    assert fingerprint(place) == before


def test_what_a_cast_left_for_undo_leaves_the_device_with_the_object(place: Place) -> None:
    place.do(NewTensor(name="x", fill="rand", shape=(100,), device="vgpu:0"))
    x = fingerprint(place)
    place.do(Move(targets=("x",), device="vgpu:0", dtype="half"))
    place.do(Remove(names=("x",)))
    assert place.allocated("vgpu:0") == 0
    place.do(Undo())
    place.do(Undo())
    assert fingerprint(place) == x


def test_the_result_of_a_computation_on_a_device_is_gone_for_good_and_says_why(place: Place) -> None:
    place.do(NewTensor(name="x", shape=(2,), device="vgpu:0", requires_grad=True))
    place.do(Combine(left="x", right="x", name="y"))
    answer = place.answer(Remove(names=("y",)))
    assert "This cannot be undone: y is the result of a computation" in answer.words
    assert place.workspace.history.state().title == "the new tensor x", "changes of others can be"


# the budget


def limited(place: Place, budget: int) -> Place:
    return Place("vgpu", place.registry, Workspace(place.registry, undo_budget_bytes=budget), "vgpu:0", "vgpu:1")


def test_the_oldest_changes_leave_when_the_budget_is_full(place: Place) -> None:
    place = limited(place, 1000)
    for number in range(4):
        place.do(NewTensor(name=f"t{'abcd'[number]}", fill="rand", shape=(100,)))
        place.do(Remove(names=(f"t{'abcd'[number]}",)))
        assert place.workspace.history.state().kept_bytes == 400 * min(number + 1, 2)
    assert place.workspace.history.state().budget_bytes == 1000
    undone = []
    while (title := place.workspace.history.state().title) is not None:
        undone.append(title)
        place.do(Undo())
    assert undone == ["the removal of td", "the new tensor td", "the removal of tc", "the new tensor tc"]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (
            lambda place: Move(targets=("x",), device="cpu", dtype="half"),
            "it would keep 3.91 KiB, the budget is 1000 B",
        ),
        (lambda place: Remove(names=("x",)), "it would keep 3.91 KiB, the budget is 1000 B"),
        (lambda place: Backward(target="m", input="x"), "it would keep 3.91 KiB, the budget is 1000 B"),
    ],
)
def test_a_change_over_the_budget_says_that_it_cannot_be_undone(
    place: Place, change: Callable[[Place], Command], words: str
) -> None:
    place = limited(place, 1000)
    place.workspace.add("m", nn.Linear(1000, 1, bias=False))
    place.do(NewTensor(name="x", fill="rand", shape=(1000,)))
    if isinstance(change(place), Backward):
        place.do(Backward(target="m", input="x"))
    answer = place.answer(change(place))
    assert f"This cannot be undone: {words}." in answer.words
    assert place.workspace.history.state().title is None, "nor what was before it: there is no way past it"
    with pytest.raises(BadInput, match="nothing to undo"):
        place.do(Undo())


# failures


class RefusedError(Exception):
    """The injected exception."""


def test_a_command_that_fails_half_way_is_taken_back(place: Place) -> None:
    started(place)
    before, state = fingerprint(place), place.workspace.history.state()
    command = NewTensor(name="x", shape=(2,))

    def half() -> None:
        handlers.new_tensor(place.workspace, command, NO_PROGRESS)
        handlers.move(place.workspace, Move(targets=("m",), device="vgpu:0"), NO_PROGRESS)
        image = place.workspace.image("m", values=True, gradients=True)
        assert image is not None
        model = place.workspace.get("m")
        assert isinstance(model, nn.Module)
        model.eval()
        model.get_parameter("first.weight").requires_grad_(False).zero_().grad = None
        place.workspace.changed("a change", image)
        raise RefusedError

    with pytest.raises(RefusedError), place.workspace.history.transaction(command):
        half()
    assert fingerprint(place) == before
    assert place.workspace.history.state() == state


class Breaks(ObjectChange):
    """A change whose undo fails this time."""

    def undo(self, workspace: Workspace, progress: ProgressMonitor) -> Undone:
        raise BadInput("not this time")


def test_an_undo_that_fails_half_way_changes_nothing_and_can_be_tried_again(place: Place) -> None:
    started(place)
    place.do(NewTensor(name="x", fill="rand", shape=(3, 4)))
    command = Move(targets=("m", "x"), device="vgpu:1", dtype="half")
    with place.workspace.history.transaction(command):
        place.workspace.changed("all of it", Breaks("m", None))
        place.workspace.changed("all of it", CreateChange("x"))
        handlers.move(place.workspace, command, NO_PROGRESS)
        image = place.workspace.image("m", values=True, gradients=True)
        assert image is not None
        place.workspace.get("m").eval()  # type: ignore[union-attr]
        place.workspace.changed("all of it", image)
        handlers.remove(place.workspace, Remove(names=("m",)), NO_PROGRESS)
        beside = place.workspace.image("other", values=True)
        assert beside is not None
        other = place.workspace.get("other")
        assert isinstance(other, nn.Linear)
        other.eval().bias.requires_grad_(False).zero_()
        place.workspace.changed("all of it", beside)
    before, state, allocated = fingerprint(place), place.workspace.history.state(), place.allocated("vgpu:1")
    for _ in range(2):
        with pytest.raises(BadInput, match="not this time"):
            place.do(Undo())
        assert fingerprint(place) == before
        assert place.workspace.history.state() == state
        assert place.allocated("vgpu:1") == allocated


def test_an_undo_that_does_not_fit_any_more_changes_nothing(place: Place) -> None:
    x, size = torch.zeros(1).to("vgpu:0"), place.registry.backend("vgpu:0").free_bytes("vgpu:0")
    place.workspace.add("x", x)
    place.do(Move(targets=("x",), device="cpu"))
    assert size is not None
    machine: Any = place.registry.backend("vgpu:0")
    machine.free_bytes = lambda device: 0
    try:
        state = place.workspace.history.state()
        with pytest.raises(DevExplorerError, match="needs"):
            place.do(Undo())
        assert place.workspace.history.state() == state
        assert str(place.workspace.get("x").device) == "cpu"  # type: ignore[union-attr]
    finally:
        del machine.free_bytes
    place.do(Undo())
    assert str(place.workspace.get("x").device) == "vgpu:0"  # type: ignore[union-attr]


def test_a_redo_that_fails_changes_nothing_and_can_be_tried_again(place: Place) -> None:
    def copy(*given: Any) -> Tensor:
        if fails:
            raise RefusedError("not this time")
        tensor: Tensor = given[0].to(given[1], given[2])
        return tensor

    fails = False
    workspace = Workspace(place.registry, mover=Mover(place.registry, copy=copy))
    place = Place("vgpu", place.registry, workspace, "vgpu:0", "vgpu:1")
    place.do(NewTensor(name="x", shape=(2,)))
    place.do(Move(targets=("x",), device="vgpu:0"))
    place.do(Undo())
    before, state, fails = fingerprint(place), workspace.history.state(), True
    with pytest.raises(DevExplorerError, match="not this time"):
        place.do(Redo())
    assert (fingerprint(place), workspace.history.state()) == (before, state)
    fails = False
    outcome = place.do(Redo(request=9))
    assert outcome.redid == Move(targets=("x",), device="vgpu:0", request=9)
    undone = place.do(Undo()).undid
    assert undone is not None
    assert undone.request == 9, "what Undo takes back now has the number of the Redo"
