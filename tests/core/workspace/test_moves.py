"""Moves: all or nothing, the same objects afterwards, refused before anything changes, undone bit by bit."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput, Cancelled, DoesNotFit, MoveFailed, ProgressMonitor, RollbackFailed
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.records import Backward, BuildModel, Forward, Move, NewTensor
from devexplorer.core.workspace.changes import Undone
from devexplorer.core.workspace.moves import Mover
from devexplorer.core.workspace.parts import ParameterPart, Part, plain_copy
from devexplorer.core.workspace.placement import Target
from devexplorer.core.workspace.runs import Timing
from devexplorer.core.workspace.workspace import Workspace


class Forty(nn.Module):
    """40 parameters (one layer under two names), buffers of which one is an integer and one is shared, gradients on
    half of them."""

    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList(nn.Linear(3, 3) for _ in range(19))
        self.norm = nn.BatchNorm1d(3)
        self.again = self.layers[4]
        self.register_buffer("shared", torch.arange(3.0))
        self.norm.register_buffer("shared", self.shared)
        for index, parameter in enumerate(self.parameters()):
            if index % 2:
                parameter.grad = torch.full_like(parameter, float(index))


class FaultError(Exception):
    """The injected exception."""


def tensors_of(model: nn.Module) -> dict[str, Tensor]:
    found: dict[str, Tensor] = dict(model.named_parameters(remove_duplicate=False))
    return found | dict(model.named_buffers(remove_duplicate=False))


def fingerprint(model: nn.Module) -> dict[str, Any]:
    """Identity, memory, device, dtype, bits and gradient of every tensor under every name."""
    return {
        name: (
            id(t),
            t.data_ptr(),
            str(t.device),
            t.dtype,
            t.requires_grad,
            t.detach().cpu().view(torch.uint8).tolist() if t.dim() else t.item(),
            None
            if t.grad is None
            else (id(t.grad), t.grad.data_ptr(), str(t.grad.device), t.grad.dtype, t.grad.cpu().tolist()),
        )
        for name, t in tensors_of(model).items()
    }


def failing(count: int, wrapped: Any, *, after: bool = False) -> Any:
    """`wrapped`, but its call number `count` raises, before or after the work is done."""
    calls = iter(range(1, 10_000))

    def call(*args: Any) -> Any:
        number = next(calls)
        if number == count and not after:
            raise FaultError("forced")
        result = wrapped(*args)
        if number == count:
            raise FaultError("forced")
        return result

    return call


ROUTES = [
    ("cpu", "vgpu:0", None),
    ("vgpu:0", "vgpu:1", None),
    ("vgpu:1", "cpu", None),
    ("cpu", "cpu", "float16"),
    ("cpu", "vgpu:1", "float64"),
]


@pytest.mark.parametrize(("source", "destination", "dtype"), ROUTES)
@pytest.mark.parametrize("phase", ["copy", "commit", "committed"])
def test_a_failure_at_any_tensor_restores_every_tensor_bit_for_bit(
    place: Place, source: str, destination: str, dtype: str | None, phase: str
) -> None:
    model = Forty()
    assert sum(1 for _ in model.parameters()) == 40
    aim = Target("forty", "", model)
    Mover(place.registry).move([aim], source, None, lambda name, tensor: None)
    before = fingerprint(model)
    allocated = [place.allocated("vgpu:0"), place.allocated("vgpu:1")]

    for count in range(1, 41, 3):
        if phase == "copy":
            mover = Mover(place.registry, copy=failing(count, plain_copy))
        else:
            mover = Mover(place.registry, commit=failing(count, lambda part: part.commit(), after=phase == "committed"))
        with pytest.raises(MoveFailed, match="nothing has changed") as failure:
            mover.move([aim], destination, dtype, lambda name, tensor: None)
        assert isinstance(failure.value.__cause__, FaultError)
        assert [place.allocated("vgpu:0"), place.allocated("vgpu:1")] == allocated  # though the error is still held
        assert fingerprint(model) == before

    Mover(place.registry).move([aim], destination, dtype, lambda name, tensor: None)
    assert {str(t.device) for t in tensors_of(model).values()} == {destination}


def test_a_model_moves_in_place_with_gradients_ties_and_buffers(place: Place) -> None:
    model = Forty()
    values = {name: t.detach().clone() for name, t in tensors_of(model).items()}
    parameters = {name: id(p) for name, p in model.named_parameters()}
    place.workspace.add("forty", model)

    report = place.do(Move(targets=("forty",), device="vgpu:1")).report

    assert report is not None
    assert (report.parameters, report.buffers, report.gradients) == (40, 4, 20)
    assert {name: id(p) for name, p in model.named_parameters()} == parameters
    assert all(torch.equal(t.detach().cpu(), values[name]) for name, t in tensors_of(model).items())
    assert model.again.weight is model.layers[4].weight
    assert model.norm.shared is model.shared
    assert all(str(p.grad.device) == "vgpu:1" for p in model.parameters() if p.grad is not None)
    assert report.bytes == report.after["vgpu:1"] == sum(report.before.values())
    assert report.simulated
    assert report.gb_per_s is not None
    assert report.gb_per_s > 0


def test_a_cast_leaves_integer_buffers_alone_and_undo_restores_the_bits(place: Place) -> None:
    model = Forty()
    place.workspace.add("forty", model)
    before = {
        name: (t.detach().clone(), None if t.grad is None else t.grad.clone()) for name, t in tensors_of(model).items()
    }

    report = place.do(Move(targets=("forty",), device="vgpu:0", dtype="bfloat16")).report

    assert report is not None
    assert report.lossy
    assert report.kept_for_undo_bytes > 0
    assert model.norm.num_batches_tracked is not None
    assert model.norm.num_batches_tracked.dtype == torch.int64
    assert model.layers[0].weight.dtype == torch.bfloat16
    place.workspace.history.undo()
    for name, t in tensors_of(model).items():
        values, gradient = before[name]
        assert t.device.type == "cpu"
        assert t.dtype == values.dtype
        assert torch.equal(t, values)
        assert gradient is None or (t.grad is not None and torch.equal(t.grad, gradient))
    assert place.workspace.history.state().kept_bytes == 0


def test_several_objects_move_together_or_not_at_all(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    place.do(NewTensor(fill="rand", shape=(4, 4)))
    before = [place.snapshot("mlp"), place.snapshot("x")]

    def commit(part: Part) -> None:
        part.commit()
        if part.path == "x":
            raise FaultError("forced")

    workspace = Workspace(place.registry, mover=Mover(place.registry, commit=commit))
    extras = {name: place.workspace.extras(name) for name in ("mlp", "x")}
    for name in ("mlp", "x"):
        workspace.add(name, place.workspace.get(name), extras[name])
    with pytest.raises(MoveFailed):
        dispatch(workspace, Move(targets=("mlp", "x"), device="vgpu:0"))
    assert [workspace.snapshot("mlp"), workspace.snapshot("x")] == before
    assert workspace.history.state().title is None

    place.do(Move(targets=("mlp", "x"), device="vgpu:0"))
    assert place.snapshot("mlp").bytes_by_device.keys() == place.snapshot("x").bytes_by_device.keys() == {"vgpu:0"}
    place.workspace.history.undo()
    assert place.snapshot("mlp").bytes_by_device.keys() == place.snapshot("x").bytes_by_device.keys() == {"cpu"}


def test_one_part_that_cannot_be_put_back_does_not_keep_the_others(
    place: Place, monkeypatch: pytest.MonkeyPatch
) -> None:
    model = Forty()
    rollback = ParameterPart.rollback

    def refuse(part: ParameterPart) -> None:
        if part.path == "layers.7.weight":
            raise RuntimeError("no way back")
        rollback(part)

    def commit(part: Part) -> None:
        part.commit()
        if part.path == "layers.12.weight":
            raise FaultError("forced")

    monkeypatch.setattr(ParameterPart, "rollback", refuse)
    target = Target("forty", "", model)
    with pytest.raises(
        RollbackFailed, match=r"forced; layers\.7\.weight could not be put back; nothing else has changed"
    ):
        Mover(place.registry, commit=commit).move([target], "vgpu:0", None, lambda name, tensor: None)
    moved = [name for name, tensor in tensors_of(model).items() if tensor.device.type != "cpu"]
    assert moved == ["layers.7.weight"]


@pytest.mark.parametrize("function", ["__init__", "stop"])
def test_a_device_that_is_lost_at_either_end_of_a_move_changes_nothing(
    place: Place, monkeypatch: pytest.MonkeyPatch, function: str
) -> None:
    place.do(BuildModel(recipe="mlp"))
    before = place.snapshot("mlp")

    def lost(*given: object) -> None:
        raise RuntimeError("the device is lost")

    monkeypatch.setattr(Timing, function, lost)
    with pytest.raises(MoveFailed, match="the device is lost; nothing has changed"):
        place.do(Move(targets=("mlp",), device="vgpu:0"))
    assert place.snapshot("mlp") == before
    with pytest.raises(MoveFailed, match="the device is lost; nothing was created"):
        place.do(Move(targets=("mlp",), device="vgpu:0", copy=True))


def test_what_does_not_fit_is_refused_before_anything_changes(place: Place) -> None:
    tensor = torch.empty(1).expand(8 * 2**30)  # 32 GiB on paper, 4 bytes in memory
    place.workspace.add("big", tensor)
    before = place.allocated("vgpu:0")
    with pytest.raises(DoesNotFit, match="GiB are free") as refusal:
        place.do(Move(targets=("big",), device="vgpu:0"))
    assert refusal.value.needed_bytes >= 32 * 2**30 > refusal.value.free_bytes
    assert place.workspace.get("big") is tensor
    assert place.allocated("vgpu:0") == before


def test_cancelling_between_two_tensors_rolls_back(place: Place) -> None:
    model = Forty()
    before = fingerprint(model)
    seen: list[float] = []
    parts: list[str] = []

    def report(done: float, text: str, part: str = "") -> None:
        seen.append(done)
        parts.append(part)

    progress = ProgressMonitor(report, cancelled=lambda: len(seen) > 5)
    with pytest.raises(Cancelled):
        Mover(place.registry).move([Target("forty", "", model)], "vgpu:0", None, lambda name, tensor: None, progress)
    assert fingerprint(model) == before
    assert seen == sorted(seen)
    assert parts[0] == "forty:shared"
    assert len(set(parts)) == len(parts)
    assert 0 <= seen[0] <= seen[-1] < 1
    assert place.allocated("vgpu:0") == 0


def test_a_part_of_a_model_moves_alone_and_takes_shared_parameters_along(place: Place) -> None:
    model = Forty()
    place.workspace.add("forty", model)
    place.do(Move(targets=("forty:layers.4",), device="vgpu:0"))
    assert str(model.again.weight.device) == "vgpu:0"
    assert model.layers[3].weight.device.type == "cpu"
    place.workspace.history.undo()
    assert {t.device.type for t in tensors_of(model).values()} == {"cpu"}


@pytest.mark.parametrize("recipe", ["lstm", "transformer", "lazy-mlp", "custom-layers", "two-towers"])
def test_models_with_a_life_of_their_own_work_after_moving_there_and_back(place: Place, recipe: str) -> None:
    place.do(BuildModel(recipe=recipe))
    model = place.workspace.get(recipe)
    for device in ("vgpu:0", "vgpu:1", "cpu"):
        place.do(Move(targets=(recipe,), device=device))
        assert place.workspace.get(recipe) is model
        place.do(Forward(target=recipe))
        assert set(place.snapshot(recipe).bytes_by_device) == {device}
    if recipe == "lstm":
        assert isinstance(model, nn.Module)
        lstm = model.get_submodule("lstm")
        assert isinstance(lstm, nn.LSTM)
        assert [id(w) for w in lstm._flat_weights] == [id(w) for w in lstm.parameters()]


def test_copies_are_second_objects_with_ties_of_their_own(place: Place) -> None:
    place.do(BuildModel(recipe="tied"))
    place.do(NewTensor(fill="rand", shape=(3,)))
    report = place.do(Move(targets=("tied", "x"), device="vgpu:0", copy=True)).report
    assert report is not None
    assert report.created == ("tied2", "x2")
    first, second = place.workspace.get("tied"), place.workspace.get("tied2")
    assert isinstance(first, nn.Module)
    assert isinstance(second, nn.Module)
    assert second.get_submodule("2") is second.get_submodule("4")
    assert second.get_submodule("2") is not first.get_submodule("2")
    assert set(place.snapshot("tied").bytes_by_device) == {"cpu"}
    assert set(place.snapshot("tied2").bytes_by_device) == {"vgpu:0"}
    for (name, a), (_, b) in zip(first.named_parameters(), second.named_parameters(), strict=True):
        assert torch.equal(a, b.detach().cpu()), name
    assert place.allocated("vgpu:0") <= report.bytes + 512 * report.parameters + 512

    assert place.workspace.history.undo()[1] == Undone(removed=("tied2", "x2"))
    assert place.workspace.names == ("tied", "x")
    del second, b
    assert place.allocated("vgpu:0") == 0


def test_copying_to_where_it_is_still_makes_a_second_object(place: Place) -> None:
    place.do(NewTensor(fill="rand", shape=(3,)))
    place.do(Move(targets=("x",), device="cpu", copy=True))
    x, second = place.workspace.get("x"), place.workspace.get("x2")
    assert isinstance(x, Tensor)
    assert isinstance(second, Tensor)
    assert x.data_ptr() != second.data_ptr()


def test_attributes_that_users_put_on_a_parameter_survive(place: Place) -> None:
    model = nn.Linear(2, 2)
    model.weight.no_decay = True  # type: ignore[attr-defined]
    place.workspace.add("m", model)
    for device in ("vgpu:0", "vgpu:1", "cpu"):
        place.do(Move(targets=("m",), device=device))
        assert model.weight.no_decay  # type: ignore[attr-defined]


def test_a_swap_is_refused_while_a_result_waits_for_backward(place: Place) -> None:
    model = nn.Linear(2, 2)
    place.workspace.add("m", model)
    result = model(torch.ones(1, 2, requires_grad=True)).sum()
    before = fingerprint(model)
    with pytest.raises(MoveFailed, match="awaits its backward"):
        place.do(Move(targets=("m",), device="vgpu:0"))
    assert fingerprint(model) == before
    result.backward()  # the graph is still whole
    del result
    place.do(Move(targets=("m",), device="vgpu:0"))


def test_models_that_accelerate_dispatched_stay_where_they_are(place: Place) -> None:
    model = nn.Sequential(nn.Linear(2, 2))
    model[0]._hf_hook = object()
    place.workspace.add("m", model)
    with pytest.raises(BadInput, match="accelerate"):
        place.do(Move(targets=("m",), device="vgpu:0"))


@pytest.mark.parametrize(
    ("move", "words"),
    [
        (Move(targets=("nobody",), device="cpu"), "no object 'nobody'"),
        (Move(targets=("mlp:0.weight",), device="vgpu:0"), "is a tensor inside"),
        (Move(targets=("mlp:9",), device="vgpu:0"), "no part '9'"),
        (Move(targets=("mlp",), device="cpu:1"), "only one cpu"),
        (Move(targets=("mlp",), device="gpu one"), "is no device"),
        (Move(targets=("mlp",), device="vgpu:7"), "no device 'vgpu:7'"),
        (Move(targets=("mlp",), device="vgpu:0", dtype="int8"), "cannot become int8"),
        (Move(targets=("mlp",), device="vgpu:0", dtype="float31"), "no dtype 'float31'"),
        (Move(targets=(), device="vgpu:0"), "nothing is selected"),
    ],
)
def test_bad_moves_are_refused_in_one_line(place: Place, move: Move, words: str) -> None:
    place.do(BuildModel(recipe="mlp"))
    before = place.snapshot("mlp")
    with pytest.raises(BadInput) as refusal:
        place.do(move)
    assert words in str(refusal.value)
    assert "\n" not in str(refusal.value)
    assert place.snapshot("mlp") == before


def test_everything_that_is_wrong_is_said_at_once(place: Place) -> None:
    with pytest.raises(BadInput) as refusal:
        place.do(Move(targets=("a", "b"), device="tpu:0"))
    assert len(refusal.value.findings) == 3


STEP = st.tuples(
    st.sampled_from(["tied", "tied:2", "tied:0", "lstm", "lstm:lstm", "x"]),
    st.sampled_from(["cpu", "vgpu:0", "vgpu:1"]),
    st.sampled_from([None, None, "float64"]),
    st.sampled_from(["move", "move", "move", "copy", "undo"]),
)


@settings(max_examples=15, deadline=None)
@given(st.lists(STEP, max_size=10))
def test_no_sequence_of_moves_copies_and_undos_changes_a_value_or_leaks(
    steps: list[tuple[str, str, str | None, str]],
) -> None:
    with place_of("vgpu") as place:
        place.do(BuildModel(recipe="tied"))
        place.do(BuildModel(recipe="lstm"))
        place.do(NewTensor(fill="rand", shape=(5, 20)))
        place.do(Backward(target="tied"))
        origin = {name: values_of(place, name) for name in ("tied", "lstm", "x")}
        moves = 0
        for target, device, dtype, kind in steps:
            if kind != "undo":
                outcome = place.do(Move(targets=(target,), device=device, dtype=dtype, copy=kind == "copy"))
                moves += outcome.report is not None and not outcome.report.already_there
            elif moves:
                place.workspace.history.undo()
                moves -= 1
            for name, values in origin.items():
                assert all(torch.equal(a, b) for a, b in zip(values_of(place, name), values, strict=True))
            tied = place.workspace.get("tied")
            assert isinstance(tied, nn.Module)
            assert tied.get_parameter("2.weight") is tied.get_parameter("4.weight")
        for _ in range(moves):
            place.workspace.history.undo()
        assert place.workspace.names == ("tied", "lstm", "x")
        assert set(place.workspace.held_bytes_by_device()) == {"cpu"}
        assert {row.dtype for row in place.snapshot("tied").rows if row.kind == "parameter"} == {"float32"}
        assert place.allocated("vgpu:0") == place.allocated("vgpu:1") == 0


def values_of(place: Place, name: str) -> list[Tensor]:
    """Every value and gradient, as float64 on the CPU: exact for what is moved here."""
    thing = place.workspace.get(name)
    held = [thing] if isinstance(thing, Tensor) else list(thing.parameters())
    held += [t.grad for t in held if t.is_leaf and t.grad is not None]
    return [t.detach().to("cpu", torch.float64) for t in held]
