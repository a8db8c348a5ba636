"""The model benchmark: steps on each kind of device, counting, refusals, and what is kept after an error."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from places import Place, place_of
from torch import Tensor, nn

from devexplorer.core.base import BadInput, DoesNotFit, Unavailable
from devexplorer.core.benchmark.timing import TimedBlock
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.model_steps import run as model_steps
from devexplorer.core.model_steps.kind import ModelResult, ModelSpec
from devexplorer.core.model_steps.run import VIRTUAL_STEPS, ModelRun, check_model
from devexplorer.core.models import samples
from devexplorer.core.models.run import RunFailed
from devexplorer.core.records import BenchPoint
from devexplorer.core.virtual.backend import meta_empty
from devexplorer.core.virtual.device.machine import VirtualMachine

MLP_FLOP = 2 * (20 * 256 + 256 * 10)
"""Of one sample's forward."""


@pytest.fixture(params=["cpu", "vgpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def place(request: pytest.FixtureRequest) -> Iterator[Place]:
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("this machine or this torch has no CUDA device")
    with place_of(request.param) as made:
        yield made


@pytest.fixture
def two_steps(monkeypatch: pytest.MonkeyPatch) -> int:
    """Runs on virtual GPUs are as short as they can be with two steps to compare: for tests of many or large models,
    which do not ask how long a run is."""
    steps = 2
    monkeypatch.setattr(model_steps, "VIRTUAL_STEPS", steps)
    return steps


@pytest.fixture
def registry(virtual: VirtualMachine) -> DeviceRegistry:
    return DeviceRegistry([TorchBackend(), virtual])


def run_of(
    registry: DeviceRegistry,
    resolve: Callable[[str], nn.Module] = samples.build,
    stop: threading.Event | None = None,
    **spec: Any,
) -> ModelRun:
    checked = check_model(ModelSpec(**{"target": "mlp", "device": "cpu", "seconds": 0.02, **spec}), registry)
    return ModelRun(checked, 7, registry, stop or threading.Event(), lambda: 5.0, resolve)


def any_input(model: nn.Module, batch: int) -> Sequence[Tensor]:
    return (torch.ones(batch, 4),)


def run_own(registry: DeviceRegistry, model: nn.Module, **spec: Any) -> ModelRun:
    """A run of a custom model with four inputs."""
    checked = check_model(ModelSpec(**{"target": "own", "device": "vgpu:0", "seconds": 0.02, **spec}), registry)
    return ModelRun(checked, 7, registry, threading.Event(), lambda: 5.0, lambda name: model, sample=any_input)


def measured(run: ModelRun) -> tuple[list[BenchPoint], ModelResult]:
    run.prepare()
    points = list(iter(run.step, None))
    result = run.result(stopped=False)
    assert result is not None
    return points, result


@pytest.mark.parametrize("train", [False, True])
def test_steps_of_a_model(place: Place, train: bool) -> None:
    points, result = measured(run_of(place.registry, device=place.first, train=train, batch=4))
    assert result.iterations == sum(point.iterations for point in points) >= 1
    assert result.seconds == pytest.approx(sum(point.seconds for point in points))
    assert points[-1].done == 1.0
    assert points[0].text == ("training of mlp" if train else "forward of mlp")
    assert result.step_seconds.p20 <= result.step_seconds.median <= result.step_seconds.p80
    assert result.samples_per_s.p20 <= result.samples_per_s.median <= result.samples_per_s.p80
    # backward: the gradient of each weight and, but for the first layer's, of each input
    assert result.flop_per_step == (MLP_FLOP * 4 if not train else MLP_FLOP * 4 * 2 + 2 * 256 * 10 * 4)
    assert result.tflops is not None
    assert result.tflops.p80 == pytest.approx(result.samples_per_s.p80 / 4 * result.flop_per_step / 1e12)
    # between two steps a quantile of rates is not the inverse of that of times, but never below it
    assert result.tflops.p80 >= result.flop_per_step / result.step_seconds.p20 / 1e12 * (1 - 1e-6)
    assert result.simulated == (place.kind == "vgpu")
    assert (result.peak_memory_bytes is None) == (place.kind == "cpu")
    assert (result.threads is None) == (place.kind != "cpu")


@pytest.mark.parametrize(
    "name", [name for name in samples.recipes() if name not in ("list-pitfall", "noise-pitfall", "vgg11-bn")]
)
@pytest.mark.parametrize("train", [False, True])
def test_every_sample_model_runs_on_a_virtual_gpu_and_leaves_nothing_there(
    registry: DeviceRegistry, virtual: VirtualMachine, two_steps: int, name: str, train: bool
) -> None:
    points, result = measured(run_of(registry, target=name, device="vgpu:1", train=train, optimizer="adamw", batch=2))
    assert len(points) == result.iterations == two_steps
    assert result.step_seconds.p20 == pytest.approx(result.step_seconds.p80)
    assert result.flop_per_step
    assert result.peak_memory_bytes
    assert virtual.gpu("vgpu:1").memory.allocated_bytes == 0


@pytest.mark.usefixtures("two_steps")
@pytest.mark.parametrize(
    ("name", "train"), [("mlp", False), ("lenet", True), ("transformer", True), ("lstm", False), ("tied", True)]
)
def test_without_values_a_step_costs_and_takes_what_it_does_with_them(
    registry: DeviceRegistry, virtual: VirtualMachine, monkeypatch: pytest.MonkeyPatch, name: str, train: bool
) -> None:
    _, without = measured(run_of(registry, target=name, device="vgpu:0", train=train, optimizer="adam", batch=3))

    def fails(*_: object) -> nn.Module:
        raise RuntimeError("no values")

    monkeypatch.setattr(ModelRun, "_without_values", fails)
    _, with_values = measured(run_of(registry, target=name, device="vgpu:0", train=train, optimizer="adam", batch=3))
    assert with_values.step_seconds.median == pytest.approx(without.step_seconds.median, rel=1e-3)
    assert with_values.flop_per_step == without.flop_per_step
    assert with_values.peak_memory_bytes == pytest.approx(without.peak_memory_bytes, rel=0.02)


@pytest.mark.usefixtures("two_steps")
def test_peak_memory_grows_with_the_batch_and_with_training(registry: DeviceRegistry) -> None:
    peaks = [
        measured(run_of(registry, target="resnet18", device="vgpu:0", batch=batch, train=train))[1].peak_memory_bytes
        for batch, train in ((1, False), (8, False), (8, True))
    ]
    assert all(peaks)
    assert peaks == sorted(peaks)  # type: ignore[type-var]
    assert peaks[2] > 2 * peaks[1] > 2 * peaks[0]  # type: ignore[operator]


def test_peak_memory_is_that_of_the_steps(registry: DeviceRegistry) -> None:
    before = meta_empty((1 << 30,), torch.uint8, "vgpu:0")
    del before
    _, result = measured(run_of(registry, device="vgpu:0"))
    assert result.peak_memory_bytes is not None
    assert 20 * 256 * 4 < result.peak_memory_bytes < 1 << 20


class LooksAtValues(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 4)

    def forward(self, x: Tensor) -> Tensor:
        return self.layer(x) if x.sum().item() > 0 else x


def test_a_model_that_looks_at_its_values_runs_with_them(registry: DeviceRegistry) -> None:
    _, result = measured(run_own(registry, LooksAtValues(), batch=2))
    assert result.iterations == VIRTUAL_STEPS
    assert result.flop_per_step == 2 * 2 * 4 * 4  # counted on the device, as it cannot be on meta


def test_a_model_without_products_has_no_flop_and_no_tflops(registry: DeviceRegistry) -> None:
    points, result = measured(run_own(registry, nn.ReLU(), device="cpu"))
    assert (result.flop_per_step, result.tflops) == (None, None)
    assert all(point.tflops is None and point.samples_per_s for point in points)


@pytest.mark.usefixtures("two_steps")
def test_autocast_is_faster_where_the_chip_has_units_for_it(virtual: VirtualMachine) -> None:
    virtual.add(parse_virtual("NVIDIA A100-SXM4-80GB"))
    registry = DeviceRegistry([TorchBackend(), virtual])
    plain, half = (
        measured(run_of(registry, target="vgg16-bn", device="vgpu:2", batch=8, autocast=dtype))[1]
        for dtype in (None, "bfloat16")
    )
    assert half.step_seconds.median < plain.step_seconds.median
    assert half.flop_per_step == plain.flop_per_step


@pytest.mark.parametrize("train", [False, True])
def test_autocast_computes_in_its_dtype(registry: DeviceRegistry, train: bool) -> None:
    seen: set[torch.dtype] = set()
    model = nn.Linear(4, 4)
    model.register_forward_hook(
        lambda module, inputs, output: seen.add(output.dtype) if output.device.type == "cpu" else None
    )
    measured(run_own(registry, model, device="cpu", autocast="bfloat16", train=train))
    assert seen == {torch.bfloat16}


def test_training_really_trains_and_forward_does_not(registry: DeviceRegistry) -> None:
    for train in (False, True):
        model = nn.Sequential(nn.Linear(4, 3), nn.Dropout())
        before = model[0].weight.detach().clone()
        measured(run_own(registry, model, device="cpu", train=train, optimizer="adam"))
        assert model.training == train
        assert torch.equal(model[0].weight.detach(), before) != train
        assert (model[0].weight.grad is not None) == train


def test_compiled_steps_go_through_torch_compile(registry: DeviceRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[str] = []

    def compiled(model: nn.Module) -> Callable[..., Tensor]:
        assert not model._forward_pre_hooks  # hooks would take the graph apart

        def call(*inputs: Tensor) -> Tensor:
            calls.append("compiled")
            return model(*inputs)  # type: ignore[no-any-return]

        return call

    monkeypatch.setattr(torch, "compile", compiled)
    _, result = measured(run_of(registry, compiled=True))
    assert len(calls) == result.iterations + 2  # one that compiles, one to see how long it takes


def test_without_a_compiler_the_reason_is_said(registry: DeviceRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(model: nn.Module) -> Callable[..., Tensor]:
        raise RuntimeError("Failed to find C compiler. Please specify via CC environment variable.\nmore")

    monkeypatch.setattr(torch, "compile", broken)
    with pytest.raises(Unavailable, match="does not work here: Failed to find C compiler"):
        run_of(registry, compiled=True).prepare()


def test_a_model_of_the_workspace_is_known_by_what_it_is_whatever_it_is_called(registry: DeviceRegistry) -> None:
    model = samples.build("transformer").to("vgpu:1")
    _, result = measured(run_of(registry, lambda name: model, target="my own name", device="vgpu:0"))
    assert result.iterations == VIRTUAL_STEPS


def test_a_half_precision_model_gets_half_precision_inputs(registry: DeviceRegistry) -> None:
    _, result = measured(run_of(registry, lambda name: samples.build("lenet").half(), target="lenet", device="vgpu:0"))
    assert result.iterations == VIRTUAL_STEPS


# --- faults


def test_the_models_own_error_is_the_runs_error(registry: DeviceRegistry) -> None:
    for device in ("vgpu:0", "cpu"):
        run = run_own(registry, nn.Linear(5, 5), device=device)
        with pytest.raises(RunFailed, match="shapes cannot be multiplied"):
            run.prepare()
        assert run.result(stopped=False, failure="shapes") is None
    with pytest.raises(RunFailed, match="Expected all tensors to be on the same device"):
        run_of(registry, target="list-pitfall", device="vgpu:0").prepare()


def test_what_cannot_be_trained_is_said(registry: DeviceRegistry) -> None:
    with pytest.raises(BadInput, match="has no parameters to train"):
        run_own(registry, nn.ReLU(), train=True).prepare()

    class Detached(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x).detach()

    with pytest.raises(BadInput, match="does not depend on anything that requires a gradient"):
        run_own(registry, Detached(4, 4), train=True).prepare()


class Particular(nn.Module):
    """Takes inputs that cannot be guessed."""

    def __init__(self) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(5))

    def forward(self, left: Tensor, right: Tensor) -> Tensor:
        if left.shape[1:] != (5, 7) or right.dtype != torch.int32:
            raise ValueError("not like that")
        return (left.sum(2) * self.weight).sum() + right.sum()


def test_a_model_with_unknown_inputs_is_refused_with_what_its_forward_wants(registry: DeviceRegistry) -> None:
    with pytest.raises(
        BadInput, match=r"'mine' are unknown: its forward takes left, right, and no guess worked \(not like that\)"
    ):
        run_of(registry, lambda name: Particular(), target="mine").prepare()


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
def test_given_inputs_are_taken_in_the_batch_of_the_run(registry: DeviceRegistry, device: str) -> None:
    run = run_of(
        registry, lambda name: Particular(), target="mine", inputs="3x5x7,3x2:int32", batch=4, train=True, device=device
    )
    _, result = measured(run)
    assert result.iterations


def test_a_users_model_is_measured_on_inputs_that_were_guessed(registry: DeviceRegistry) -> None:
    _, result = measured(
        run_of(registry, lambda name: nn.Sequential(nn.Linear(3, 3), nn.ReLU()), target="mine", batch=5)
    )
    assert result.flop_per_step == 2 * 5 * 3 * 3


def test_an_input_that_cannot_be_read_is_refused_before_anything_is_made(registry: DeviceRegistry) -> None:
    with pytest.raises(BadInput, match="'4by2' is no input"):
        check_model(ModelSpec(target="mlp", device="cpu", inputs="4by2"), registry)


def test_what_does_not_fit_is_refused_with_the_bytes_before_the_device_is_touched(
    registry: DeviceRegistry, virtual: VirtualMachine
) -> None:
    run = run_of(registry, target="resnet18", device="vgpu:0", batch=10**6)
    with pytest.raises(DoesNotFit, match="forward of resnet18 in batches of 1000000 needs at least") as caught:
        run.prepare()
    assert caught.value.needed_bytes >= 10**6 * 3 * 224 * 224 * 4
    assert virtual.gpu("vgpu:0").memory.figures().context_bytes == 0, "no context: the device was not touched"
    with pytest.raises(DoesNotFit, match=r"needs at least 256\.00 TiB on cpu"):
        _too_large(registry).prepare()


def _too_large(registry: DeviceRegistry) -> ModelRun:
    model = nn.Module()
    model.weight = nn.Parameter(torch.empty(1 << 46, device="meta"))
    return run_own(registry, model, device="cpu")


def test_a_full_card_ends_the_run_and_gives_its_memory_back(registry: DeviceRegistry, virtual: VirtualMachine) -> None:
    run = run_of(registry, target="vgg16-bn", device="vgpu:0", batch=1000, train=True)
    with pytest.raises(RunFailed, match="vgpu out of memory"):
        run.prepare()
    assert run.result(stopped=False, failure="full") is None
    assert virtual.gpu("vgpu:0").memory.allocated_bytes == 0


def test_a_card_that_is_lost_in_the_middle_leaves_the_steps_that_were_measured(registry: DeviceRegistry) -> None:
    lost = threading.Event()

    class Fails(nn.Linear):
        def forward(self, x: Tensor) -> Tensor:
            if lost.is_set():
                raise RuntimeError("CUDA error: GPU is lost")
            return super().forward(x)

    run = run_own(registry, Fails(4, 4))
    run.prepare()
    assert run.step() is not None
    lost.set()
    with pytest.raises(RuntimeError, match="GPU is lost"):
        run.step()
    result = run.result(stopped=False, failure="CUDA error: GPU is lost")
    assert result is not None
    assert (result.iterations, result.failure, result.stopped) == (1, "CUDA error: GPU is lost", True)


def test_stopping_keeps_the_steps_so_far(registry: DeviceRegistry) -> None:
    stop = threading.Event()
    run = run_of(registry, device="vgpu:0", stop=stop)
    run.prepare(stop.is_set)
    assert run.step() is not None
    stop.set()
    assert run.step() is None
    result = run.result(stopped=True)
    assert result is not None
    assert (result.stopped, result.iterations) == (True, 1)


class Layers(nn.Module):
    """Three layers; the second one requests a stop."""

    def __init__(self, stop: threading.Event) -> None:
        super().__init__()
        self.first, self.second, self.third = nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4)
        self.second.register_forward_hook(lambda *_: stop.set() if self.armed else None)
        self.armed = False
        self.third.register_forward_hook(lambda *_: self.seen.append(3))
        self.seen: list[int] = []

    def forward(self, x: Tensor) -> Tensor:
        return self.third(self.second(self.first(x)))  # type: ignore[no-any-return]


def test_a_slow_step_is_stopped_between_two_layers(registry: DeviceRegistry, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model_steps, "SLOW_SECONDS", 0.0)
    stop = threading.Event()
    model = Layers(stop)
    spec = check_model(ModelSpec(target="own", device="cpu"), registry)
    run = ModelRun(spec, 7, registry, stop, lambda: 5.0, lambda name: model, sample=any_input)
    run.prepare(stop.is_set)
    steps = len(model.seen)
    model.armed = True
    assert run.step() is None
    assert len(model.seen) == steps
    assert run.result(stopped=True) is None


def test_preparing_is_stopped_between_two_layers_too(registry: DeviceRegistry) -> None:
    stop = threading.Event()
    model = Layers(stop)
    model.armed = True
    spec = check_model(ModelSpec(target="own", device="cpu"), registry)
    run = ModelRun(spec, 7, registry, stop, lambda: 5.0, lambda name: model, sample=any_input)
    run.prepare(stop.is_set)
    assert stop.is_set()
    assert run.step() is None
    assert run.result(stopped=True) is None
    assert all(not module._forward_pre_hooks for module in model.modules())


def test_everything_that_is_wrong_is_said_at_once(registry: DeviceRegistry) -> None:
    spec = ModelSpec(target="mlp", device="vgpu:9", batch=0, optimizer="lion", autocast="float32", seconds=0)
    with pytest.raises(BadInput) as caught:
        check_model(spec, registry)
    assert caught.value.findings == (
        "there is no device 'vgpu:9' here; there are cpu, vgpu:0, vgpu:1",
        "a batch of 0 cannot be measured; it is from 1 to 16777216",
        "there is no optimizer 'lion' here; there are sgd, momentum, adam, adamw",
        "autocast computes in float16 or bfloat16, not in float32",
        "0 seconds is not a duration; enter a number above 0, 100000000 at most",
    )
    with pytest.raises(BadInput, match=r"torch.compile makes code for a chip, and behind vgpu:0 there is none"):
        check_model(ModelSpec(target="mlp", device="vgpu", compiled=True), registry)
    with pytest.raises(BadInput) as absent:
        check_model(ModelSpec(target="mlp", device="cuda:13"), DeviceRegistry([TorchBackend()]))
    assert absent.value.virtual_helps


@settings(max_examples=30, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.lists(st.floats(1e-6, 10.0), min_size=1, max_size=30), st.integers(1, 64))
def test_the_figures_are_those_of_the_steps(registry: DeviceRegistry, steps: list[float], batch: int) -> None:
    run = run_of(registry, device="vgpu:0", batch=batch)
    run.prepare()

    class Played:
        simulated = True

        def block(self, operation: object, iterations: int) -> TimedBlock:
            seconds = steps[run._iterations % len(steps)]
            return TimedBlock(1, seconds, (seconds,))

    run._timer = Played()  # type: ignore[assignment]
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    seen = [steps[number % len(steps)] for number in range(VIRTUAL_STEPS)]
    assert min(seen) <= result.step_seconds.p20 <= result.step_seconds.median <= result.step_seconds.p80 <= max(seen)
    assert result.samples_per_s.median == pytest.approx(batch / sorted(seen)[VIRTUAL_STEPS // 2])
    assert result.samples_per_s.p20 <= result.samples_per_s.median <= result.samples_per_s.p80
    assert result.seconds == pytest.approx(sum(seen))
    assert result.tflops is not None
    assert result.tflops.median == pytest.approx(result.samples_per_s.median * MLP_FLOP / 1e12)
