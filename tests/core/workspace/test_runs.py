"""Side effects of forward and backward, and messages when memory runs out."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from places import Place
from torch import Tensor, nn

from devexplorer.core.base import ProgressMonitor
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.models.run import RunFailed
from devexplorer.core.records import Backward, BuildModel, Combine, Forward, Move, NewTensor
from devexplorer.core.workspace.workspace import Workspace

STATISTICS = "running statistics changed by a forward pass"


def test_what_a_run_leaves_behind_is_named(place: Place) -> None:
    place.do(BuildModel(recipe="mlp"))
    told: list[tuple[float, str]] = []
    monitor = ProgressMonitor(report=lambda done, text, part="": told.append((done, part)))
    assert dispatch(place.workspace, Forward(target="mlp"), monitor).side_effects == ()
    assert told == [(0.25, "mlp"), (0.5, "mlp:0"), (0.75, "mlp:1"), (1.0, "mlp:2")]
    assert place.do(Backward(target="mlp")).side_effects == ("gradients of a backward pass",)
    place.do(BuildModel(recipe="lazy-mlp"))
    assert place.do(Forward(target="lazy-mlp")).side_effects == ("lazy parameters initialised by a forward pass",)
    assert place.do(Forward(target="lazy-mlp")).side_effects == ()
    assert place.do(Move(targets=("mlp",), device="vgpu:0")).side_effects == ()


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
@pytest.mark.parametrize(
    "norm", [nn.BatchNorm1d(3), nn.BatchNorm1d(3, momentum=None), nn.InstanceNorm1d(3, track_running_stats=True)]
)
def test_statistics_change_in_training_only(place: Place, norm: nn.Module, device: str) -> None:
    norm.train()
    place.workspace.add("m", nn.Sequential(norm))
    place.do(NewTensor(fill="rand", shape=(4, 3, 2), device=device))
    place.do(Move(targets=("m",), device=device))
    assert place.do(Forward(target="m", input="x")).side_effects == (STATISTICS,)
    norm.eval()
    assert place.do(Forward(target="m", input="x")).side_effects == ()


class Counts(nn.Module):
    """Counts its calls in a buffer, which it changes in place or replaces."""

    def __init__(self, in_place: bool) -> None:
        super().__init__()
        self.in_place = in_place
        self.register_buffer("calls", torch.zeros(()))

    def forward(self, x: Tensor) -> Tensor:
        if self.in_place:
            self.calls += 1
        else:
            self.calls = self.calls + 1
        return x


@pytest.mark.parametrize("in_place", [False, True])
def test_any_buffer_that_a_forward_writes_counts(place: Place, in_place: bool) -> None:
    place.workspace.add("m", Counts(in_place).eval())
    place.do(NewTensor(shape=(2,)))
    assert place.do(Forward(target="m", input="x")).side_effects == ("running statistics changed by a forward pass",)


def test_what_a_run_made_is_counted_in_the_objects_that_hold_it(place: Place) -> None:
    place.do(BuildModel(recipe="lazy-mlp"))
    place.do(NewTensor(shape=(4, 20), requires_grad=True))
    place.do(Combine(left="x", right="x", name="input"))
    assert place.held("cpu") == 2 * 4 * 20 * 4
    place.do(Backward(target="lazy-mlp", input="input"))
    snapshots = [place.snapshot(name) for name in place.workspace.names]
    assert [row.name for row in snapshots[1].rows] == ["x", "grad"]
    assert place.held("cpu") == sum(snap.bytes_by_device["cpu"] for snap in snapshots)


def test_what_waits_on_a_device_is_done_before_the_clock_starts(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    events: list[str] = []

    def wall() -> float:
        events.append("clock")
        return float(len(events))

    workspace = Workspace(place.registry, wall=wall)
    dispatch(workspace, BuildModel(recipe="mlp", device="vgpu:1"))
    for backend in place.registry.backends:
        monkeypatch.setattr(backend, "synchronize", lambda device: events.append(device))
    events.clear()
    dispatch(workspace, Forward(target="mlp"))
    assert events == ["vgpu:1", "clock", "vgpu:1", "clock"]


class Greedy(torch.autograd.Function):
    """Wants 64 GiB in its backward."""

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        return x * 1

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> Tensor:
        torch.empty(1 << 36, dtype=torch.uint8, device=gradient.device)
        return gradient


class Hungry(nn.Module):
    """A layer whose backward runs out of memory; the result is handed back on `device`."""

    def __init__(self, device: str | None) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))
        self.device = device

    def forward(self, x: Tensor) -> Tensor:
        y = Greedy.apply(x * self.weight)
        assert isinstance(y, Tensor)
        return y if self.device is None else y.to(self.device)


@pytest.mark.parametrize("device", [None, "cpu"])
def test_memory_that_runs_out_in_backward_is_reported_in_words(place: Place, device: str | None) -> None:
    place.workspace.add("m", Hungry(device))
    place.do(NewTensor(shape=(3,), device="vgpu:0"))
    place.do(Move(targets=("m",), device="vgpu:0"))
    with pytest.raises(RunFailed, match="out of memory") as failure:
        place.do(Backward(target="m", input="x"))
    assert failure.value.reason == "memory"
    answer = place.answer(Backward(target="m", input="x"))
    assert answer.failed
    assert answer.title == "m ran out of memory"
    assert "Tried to allocate 64.00 GiB" in answer.words
    place.do(Forward(target="m", input="x"))


class Refuses(nn.Module):
    """Its backward raises what only Python can raise."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(3))

    def forward(self, x: Tensor) -> Tensor:
        y = x * self.weight
        y.register_hook(self.refuse)
        return y.cpu()

    def refuse(self, gradient: Tensor) -> None:
        raise ValueError("no gradients today")


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
def test_an_error_in_backward_is_a_refusal_wherever_the_loss_is(place: Place, device: str) -> None:
    place.workspace.add("m", Refuses())
    place.do(NewTensor(shape=(3,), device=device))
    place.do(Move(targets=("m",), device=device))
    answer = place.answer(Backward(target="m", input="x"))
    assert (answer.failed, answer.title) == (True, "m did not run")
    assert "no gradients today" in answer.words


def test_memory_that_runs_out_in_forward_keeps_its_layer(place: Place) -> None:
    class Large(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise RuntimeError(
                "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 99999 bytes."
            )

    place.workspace.add("m", nn.Sequential(Large()))
    place.do(NewTensor(shape=(3,)))
    answer = place.answer(Forward(target="m", input="x"))
    assert answer.title == "m ran out of memory"
    assert ("layer", "0 (Large)") in [(fact.label, fact.value) for fact in answer.facts]
