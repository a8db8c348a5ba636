"""The cost of an examination grows linearly with the model and its forward, and tracing keeps no activation alive."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Callable
from types import FrameType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from devexplorer.core.doctor.code.origins import Origins
from devexplorer.core.doctor.findings.collector import FindingCollector
from devexplorer.core.doctor.static.checks import StaticChecks
from devexplorer.core.doctor.tracing import sources
from devexplorer.core.doctor.tracing.op_tracer import OpTracer
from devexplorer.core.models.walk import no_collections
from devexplorer.core.virtual.backend import swapping
from devexplorer.core.virtual.device.accounting import gpu_of

pytestmark = pytest.mark.usefixtures("virtual")
DEVICE = "vgpu:0"


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(4))
        self.scale = torch.ones(4)
        self.parts = [nn.Linear(4, 4)]


def with_much_to_find(count: int) -> nn.Module:
    return nn.Sequential(*(Layer() for _ in range(count)))


def with_ties(count: int) -> nn.Module:
    model = nn.Module()
    for index in range(count):
        first = nn.Parameter(torch.ones(4))
        model.register_parameter(f"first{index}", first)
        model.register_parameter(f"second{index}", nn.Parameter(first.data))
        buffer = torch.ones(4)
        model.register_buffer(f"third{index}", buffer)
        model.register_buffer(f"fourth{index}", buffer.view(4))
    return model


def over_one_memory(count: int) -> nn.Module:
    flat = torch.ones(2 * count)
    return nn.ParameterList(nn.Parameter(flat[2 * index : 2 * index + 2]) for index in range(count))


def calls_of(work: Callable[[], object]) -> int:
    """How many functions are called meanwhile, those of C too."""
    count = 0

    def note(frame: FrameType, event: str, argument: Any) -> None:
        nonlocal count
        count += event.endswith("call")

    before = sys.getprofile()
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
    return count


def looked_at(make: Callable[[int], nn.Module], count: int) -> int:
    origins = Origins()
    with origins.recording():
        model = make(count)
    checks = StaticChecks(model, origins, FindingCollector())
    calls = calls_of(checks.before)
    with swapping():
        model.to(DEVICE)
    calls += calls_of(lambda: checks.moved(DEVICE)) + calls_of(lambda: checks.ran(train=False))
    origins.close()
    return calls


@pytest.mark.parametrize("make", [with_much_to_find, with_ties, over_one_memory])
def test_a_model_of_twice_the_size_takes_twice_as_long_to_look_at(make: Callable[[int], nn.Module]) -> None:
    looked_at(make, 2)  # what is read once is read
    assert looked_at(make, 120) < 2.4 * looked_at(make, 60)


class Repeated(nn.Module):
    def __init__(self, count: int) -> None:
        super().__init__()
        self.count = count
        self.weight = nn.Parameter(torch.ones(256, 256))

    def forward(self, x: Tensor) -> Tensor:
        for _ in range(self.count):
            x = torch.relu(x @ self.weight)
        return x.sum()


def test_results_that_training_keeps_are_not_gone_through_at_every_operation(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = 0

    class Counted(weakref.ref[Any]):
        def __call__(self) -> Any:
            nonlocal asked
            asked += 1
            return super().__call__()

    monkeypatch.setattr(sources, "weakref", SimpleNamespace(ref=Counted))
    monkeypatch.setattr(sources, "SWEEP_AT", 50)
    model, given = Repeated(0).to("cpu"), torch.ones(2, 256)
    watching = sources.Sources(model, None, [given])
    results = [torch.ones(1) for _ in range(1000)]
    for one in results:
        watching.note(one, sources.Origin("result"))
    assert asked < 2 * len(results)
    assert watching.known(results[0]) is not None


def test_memory_that_is_used_again_is_not_what_was_there_before() -> None:
    memory = bytearray(16)
    watching = sources.Sources(Repeated(0), None, [])
    first = torch.frombuffer(memory, dtype=torch.float32)
    watching.note(first, sources.Origin("factory", op="torch.frombuffer"))
    around = watching.known(nn.Parameter(first))
    assert around is not None
    assert around.op == "torch.frombuffer"
    del first
    second = nn.Parameter(torch.frombuffer(memory, dtype=torch.float32))
    assert watching.known(second) is None


@pytest.mark.parametrize("train", [False, True])
def test_watching_takes_no_memory_of_the_device(train: bool) -> None:
    model, origins = Repeated(12), Origins()
    with swapping():
        model.to(DEVICE)
    given = torch.ones(64, 256).to(DEVICE)
    memory = gpu_of(torch.device(DEVICE)).memory

    def peak(watch: bool) -> int:
        memory.reset_peak()
        before = memory.allocated_bytes
        with torch.set_grad_enabled(train):
            if watch:
                with OpTracer(model, DEVICE, FindingCollector(), origins, [given]):
                    loss = model(given)
            else:
                loss = model(given)
        if train:
            loss.backward()
            model.weight.grad = None
        del loss
        assert memory.allocated_bytes == before
        return memory.peak_allocated_bytes - before

    assert peak(True) == peak(False) > 0


class FallsBack(nn.Module):
    """Tries something that fails, and goes on."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)
        self.after: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.layer(x)
        try:
            y = torch.cat([y.relu(), y[:1, :2]])
        except RuntimeError:
            self.after.append(gpu_of(x.device).memory.allocated_bytes)
        del y
        self.after.append(gpu_of(x.device).memory.allocated_bytes)
        return x


def test_an_error_that_the_model_catches_keeps_no_activation() -> None:
    model = FallsBack()
    with swapping():
        model.to(DEVICE)
    x = torch.ones(4, 4).to(DEVICE)
    with no_collections(), torch.no_grad():
        model(x)
        plain, model.after = model.after, []
        with OpTracer(model, DEVICE, FindingCollector(), None, [x]):
            model(x)
    assert model.after == plain
