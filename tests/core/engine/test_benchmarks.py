"""Runs of every kind in the engine: refusals, busy devices, threads, failures in the middle, copies of models."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from functools import partial

import pytest
import torch
from fakes.cuda import AcceleratorError

from devexplorer.core.bandwidth.kind import BandwidthSpec
from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.commands.registry import dispatch
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine import benchmarks as module
from devexplorer.core.engine.benchmarks import Benchmarks, given_inputs, model_copy
from devexplorer.core.engine.engine import Engine
from devexplorer.core.model_steps.kind import ModelResult, ModelSpec
from devexplorer.core.models.extras import Extras
from devexplorer.core.records import (
    BenchEnded,
    BenchPoint,
    BenchPreparing,
    BenchResult,
    BenchSpec,
    BenchStarted,
    BuildModel,
    Event,
    JobEnded,
    Log,
    MatmulResult,
    MatmulSpec,
    ObjectSnapshot,
    Spread,
    StartBenchmark,
)
from devexplorer.core.scaling.kind import ScalingResult, ScalingSpec
from devexplorer.core.sweep.kind import SweepResult, SweepSpec
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.workspace.workspace import Workspace

WAIT_S = 30.0
SQUARE = {"m": 32, "n": 32, "k": 32}
A, B = (16, 16, 16), (32, 32, 32)


class Bench:
    """`Benchmarks` with everything it sends, and a wait for its end."""

    def __init__(self, machine: VirtualMachine, **given: object) -> None:
        self.events: list[Event] = []
        self.over = threading.Event()
        self.benchmarks = Benchmarks(self._send, DeviceRegistry([TorchBackend(), machine]), lambda: 5.0, **given)  # type: ignore[arg-type]

    def _send(self, event: Event) -> None:
        self.events.append(event)
        if isinstance(event, JobEnded):
            self.over.set()

    def run(self, spec: BenchSpec) -> BenchEnded:
        """Start it, drive it to its end, return that."""
        self.over.clear()
        self.benchmarks.start(StartBenchmark(request=1, spec=spec))
        while self.benchmarks.stepping:
            self.benchmarks.step()
        assert self.over.wait(WAIT_S)
        assert self.benchmarks.join(WAIT_S)
        return next(event for event in self.events if isinstance(event, BenchEnded))


@pytest.fixture
def bench(virtual: VirtualMachine) -> Iterator[Bench]:
    made = Bench(virtual)
    yield made
    assert made.benchmarks.join(WAIT_S)


class Stub:
    """A run of two good blocks, then what the test wants."""

    simulated = False

    def __init__(
        self,
        spec: BenchSpec,
        then: Callable[[], BenchPoint | None],
        last: Callable[[], BenchResult | None] | None = None,
    ) -> None:
        self.spec, self.then, self.last = spec, then, last
        self.blocks = 0
        self.threads: set[str] = set()

    def prepare(self, stopped: Callable[[], bool] = lambda: False) -> None:
        self.threads.add(threading.current_thread().name)

    def step(self) -> BenchPoint | None:
        self.threads.add(threading.current_thread().name)
        if self.blocks == 2:
            return self.then()
        self.blocks += 1
        return BenchPoint(run=1, device=self.spec.device, time_unix_s=5.0, tflops=1.0)

    def result(self, *, stopped: bool, failure: str | None = None) -> BenchResult | None:
        if self.last is not None:
            return self.last()
        assert isinstance(self.spec, MatmulSpec)
        return MatmulResult(
            run=1, spec=self.spec, tflops=Spread(1, 1, 1), blocks=self.blocks, stopped=stopped or failure is not None,
            failure=failure,
            simulated=False, seconds=0.1,
        )  # fmt: skip


@pytest.fixture
def stubbed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[Stub]]:
    """Let every run be such a stub."""

    def set_up(
        then: Callable[[], BenchPoint | None], last: Callable[[], BenchResult | None] | None = None
    ) -> list[Stub]:
        made: list[Stub] = []

        def make(spec: BenchSpec, *_: object) -> Stub:
            made.append(Stub(spec, then, last))
            return made[-1]

        monkeypatch.setattr(module, "make_runner", make)
        return made

    return set_up


def raising(error: Exception) -> Callable[[], BenchPoint | None]:
    def fail() -> BenchPoint | None:
        raise error

    return fail


# --- failures in the middle


@pytest.mark.parametrize("device", ["cpu", "vgpu:0"])
@pytest.mark.parametrize(
    ("error", "reason"),
    [
        (
            torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2 GiB.\nMore words."),
            "CUDA out of memory. Tried to allocate 2 GiB.",
        ),
        (AcceleratorError("CUDA error: GPU is lost"), "CUDA error: GPU is lost"),
        (KeyError(), "KeyError"),
    ],
    ids=["full", "lost", "ours"],
)
def test_a_failure_in_the_middle_keeps_what_was_measured_and_says_why(
    bench: Bench, stubbed: Callable[..., list[Stub]], device: str, error: Exception, reason: str
) -> None:
    stubbed(raising(error))
    ended = bench.run(MatmulSpec(device=device, **SQUARE))
    assert ended.reason == reason
    assert isinstance(ended.result, MatmulResult)
    assert (ended.result.blocks, ended.result.stopped, ended.result.failure) == (2, True, reason)
    job = bench.events[-1]
    assert isinstance(job, JobEnded)
    assert not job.ok
    stubbed(lambda: None)
    bench.events.clear()
    assert bench.run(MatmulSpec(device=device, **SQUARE)).reason is None, "the device is free again"


def test_a_run_that_cannot_even_say_what_it_measured_still_ends(
    bench: Bench, stubbed: Callable[..., list[Stub]]
) -> None:
    def broken() -> BenchResult | None:
        raise RuntimeError("no figures")

    stubbed(raising(RuntimeError("lost")), broken)
    ended = bench.run(MatmulSpec(device="cpu", **SQUARE))
    assert (ended.result, ended.reason) == (None, "lost")
    stubbed(lambda: None, broken)
    bench.events.clear()
    assert bench.run(MatmulSpec(device="cpu", **SQUARE)).reason == "no figures"


def test_a_run_that_measured_nothing_says_so(bench: Bench, stubbed: Callable[..., list[Stub]]) -> None:
    stubbed(lambda: None, lambda: None)
    ended = bench.run(MatmulSpec(device="cpu", **SQUARE))
    assert (ended.result, ended.reason) == (None, "nothing was measured")


def test_an_error_that_cuda_does_not_recover_from_ends_the_engine_after_the_result(
    virtual: VirtualMachine, stubbed: Callable[..., list[Stub]]
) -> None:
    stubbed(raising(AcceleratorError("CUDA error: an illegal memory access was encountered")))
    events: list[Event] = []
    over = threading.Event()
    engine = Engine(events.append, sampling_seconds=None, on_poisoned=over.set)
    engine.start()
    try:
        engine.submit(StartBenchmark(request=1, spec=MatmulSpec(device="cpu", **SQUARE)))
        assert over.wait(WAIT_S)
    finally:
        assert engine.close(WAIT_S)
    kinds = [type(event) for event in events if isinstance(event, BenchEnded | JobEnded | Log)]
    assert kinds == [BenchEnded, JobEnded, Log]


def test_a_virtual_gpu_that_fills_up_in_the_middle_ends_the_run_with_the_reason(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*_: object, **__: object) -> None:
        raise torch.OutOfMemoryError("vgpu out of memory. Tried to allocate 20.00 MiB.")

    monkeypatch.setattr("devexplorer.core.benchmark.matmul.meta_empty", full)
    ended = bench.run(MatmulSpec(device="vgpu:0", **SQUARE))
    assert (ended.result, ended.reason) == (None, "vgpu out of memory. Tried to allocate 20.00 MiB.")


# --- threads and devices


@pytest.mark.parametrize(
    ("spec", "thread"),
    [
        (MatmulSpec(device="cpu", **SQUARE), None),
        (BandwidthSpec(sources=("cpu",), destinations=("vgpu:1",)), None),
        (MatmulSpec(device="vgpu:1", **SQUARE), "bench-vgpu:1"),
        (ScalingSpec(devices=("vgpu:0", "vgpu:1")), "bench-vgpu:0"),
    ],
)
def test_what_computes_on_the_cpu_runs_on_the_calling_thread_and_everything_else_on_its_own(
    bench: Bench, stubbed: Callable[..., list[Stub]], spec: BenchSpec, thread: str | None
) -> None:
    """Also where an accelerator takes part: a second thread with OpenMP makes small products on the CPU several times
    slower."""
    made = stubbed(lambda: None)
    bench.run(spec)
    assert made[0].threads == {thread or threading.current_thread().name}


@pytest.mark.parametrize(
    ("first", "second", "busy"),
    [
        (MatmulSpec(device="cpu", **SQUARE), MatmulSpec(device="cpu", **SQUARE), "cpu"),
        (MatmulSpec(device="cpu", **SQUARE), BandwidthSpec(sources=("cpu",), destinations=("vgpu:0",)), "cpu"),
        (MatmulSpec(device="cpu", **SQUARE), ScalingSpec(devices=("vgpu:0", "vgpu:1")), None),
        (MatmulSpec(device="cpu", **SQUARE), SweepSpec(device="cpu", shapes=(A,)), "cpu"),
    ],
)
def test_a_device_is_busy_with_one_run_at_a_time(
    bench: Bench, stubbed: Callable[..., list[Stub]], first: BenchSpec, second: BenchSpec, busy: str | None
) -> None:
    stubbed(lambda: None)
    bench.benchmarks.start(StartBenchmark(request=1, spec=first))
    if busy is None:
        bench.benchmarks.check(second)
    else:
        with pytest.raises(BadInput, match=f"running on {busy} already"):
            bench.benchmarks.check(second)
    while bench.benchmarks.stepping:
        bench.benchmarks.step()
    bench.benchmarks.check(second)


def test_tf32_and_float32_are_not_measured_at_once(
    bench: Bench, stubbed: Callable[..., list[Stub]], virtual: VirtualMachine
) -> None:
    virtual.add(parse_virtual("A100 80GB PCIe"))
    stubbed(lambda: None)
    before = torch.backends.cuda.matmul.fp32_precision
    bench.benchmarks.start(StartBenchmark(request=1, spec=MatmulSpec(device="cpu", **SQUARE)))
    with pytest.raises(BadInput, match="stop the float32 run"):
        bench.benchmarks.check(SweepSpec(device="vgpu:2", dtype="tf32", shapes=(A,)))
    bench.benchmarks.check(ModelSpec(target="mlp", device="vgpu:0"))
    while bench.benchmarks.stepping:
        bench.benchmarks.step()
    bench.events.clear()
    seen: list[str] = []

    def refused() -> None:
        seen.append(torch.backends.cuda.matmul.fp32_precision)
        with pytest.raises(BadInput, match="stop the tf32 run"):  # its parameters would be multiplied in TF32
            bench.benchmarks.check(ModelSpec(target="mlp", device="vgpu:0"))
        seen.append("refused")

    stubbed(refused)
    bench.run(SweepSpec(device="vgpu:2", dtype="tf32", shapes=(A,)))
    assert seen == ["tf32", "refused"]
    assert torch.backends.cuda.matmul.fp32_precision == before


# --- checking


@pytest.mark.parametrize(
    ("spec", "words"),
    [
        (MatmulSpec(device="vgpu:9", **SQUARE), "vgpu:9"),
        (MatmulSpec(device="cpu", **SQUARE, iterations=0), "0 iterations"),
        (MatmulSpec(device="vgpu:0", **SQUARE, dtype="float8_e4m3fn"), "no float8_e4m3fn unit"),
        (SweepSpec(device="vgpu:0"), "needs sizes"),
        (ScalingSpec(devices=("cpu",)), "two"),
        (BandwidthSpec(sources=("cpu",), destinations=("cuda:5",)), "cuda:5"),
    ],
)
def test_bad_input_is_refused_before_anything_starts(bench: Bench, spec: BenchSpec, words: str) -> None:
    with pytest.raises(BadInput, match=words):
        bench.benchmarks.start(StartBenchmark(request=1, spec=spec))
    assert bench.events == []


def test_what_does_not_fit_is_refused_with_the_bytes(bench: Bench) -> None:
    with pytest.raises(DoesNotFit, match=r"needs 111\.76 GiB on vgpu:0, and 14\.\d\d GiB are free"):
        bench.benchmarks.check(MatmulSpec(device="vgpu:0", m=100_000, n=100_000, k=100_000))


def test_devices_get_their_names_and_float8_its_layout(bench: Bench, virtual: VirtualMachine) -> None:
    virtual.add(parse_virtual("L4"))
    checked = bench.benchmarks.check(MatmulSpec(device=" VGPU:2 ", **SQUARE, dtype="float8_e4m3fn"))
    assert isinstance(checked, MatmulSpec)
    assert (checked.device, checked.transpose_b) == ("vgpu:2", True)


# --- whole runs


@pytest.mark.parametrize("device", ["cpu", "vgpu:1"])
@pytest.mark.parametrize("mode", ["live", "burst", "sustained"])
def test_every_mode_on_every_kind_of_device(bench: Bench, device: str, mode: str) -> None:
    ended = bench.run(MatmulSpec(device=device, **SQUARE, mode=mode, seconds=0.1, block_seconds=0.01))
    assert ended.reason is None
    result = ended.result
    assert isinstance(result, MatmulResult)
    assert result.verified
    assert result.tflops.median > 0
    assert result.simulated == (device != "cpu")
    assert len(result.parts_tflops) == (8 if mode == "sustained" else 0)
    kinds = [type(event) for event in bench.events]
    assert kinds[:2] == [BenchPreparing, BenchStarted]
    assert set(kinds[2:-2]) == {BenchPoint}
    assert kinds[-2:] == [BenchEnded, JobEnded]


def test_a_sweep_of_a_hundred_shapes_on_a_virtual_gpu(bench: Bench) -> None:
    ended = bench.run(
        SweepSpec(device="vgpu:0", dtype="float16", shapes=tuple((side,) * 3 for side in range(64, 6464, 64)))
    )
    assert isinstance(ended.result, SweepResult)
    assert len(ended.result.cells) == 100
    assert ended.result.seconds > 10, "simulated seconds, which nobody waited for"
    points = [event for event in bench.events if isinstance(event, BenchPoint)]
    assert len(points) == 100, "the window is not flooded"
    assert all(point.part is not None for point in points)


def test_a_scaling_run_goes_through_the_same_door(bench: Bench) -> None:
    spec = ScalingSpec(devices=("vgpu:0", "vgpu:1"), size=64, iterations=10)
    ended = bench.run(spec)
    assert isinstance(ended.result, ScalingResult)
    assert ended.result.speedup == pytest.approx(2.0, rel=0.2)


# --- models


def test_a_model_of_the_workspace_is_copied(virtual: VirtualMachine) -> None:
    workspace = Workspace(DeviceRegistry([TorchBackend(), virtual]))
    mine = torch.nn.Linear(3, 2)
    workspace.add("mine", mine)
    workspace.add("x", torch.zeros(2))
    before: ObjectSnapshot = workspace.snapshot("mine")
    copied = model_copy(workspace, "mine")
    with torch.no_grad():
        next(copied.parameters()).zero_()
    copied.to("vgpu:0")
    assert workspace.snapshot("mine") == before
    assert bool(mine.weight.any())
    assert len(list(model_copy(workspace, "mlp").parameters())) == 4, "a sample model by its name"
    with pytest.raises(BadInput, match="'x' is a tensor"):
        model_copy(workspace, "x")
    with pytest.raises(BadInput, match="there is no model 'mlpp'; did you mean mlp"):
        model_copy(workspace, "mlpp")


def test_a_model_that_cannot_be_copied_is_refused_with_the_reason() -> None:
    workspace = Workspace(DeviceRegistry([TorchBackend()]))
    mine = torch.nn.Linear(3, 2)
    mine.lock = threading.Lock()  # type: ignore[assignment]
    workspace.add("mine", mine)
    with pytest.raises(BadInput, match="'mine' cannot be copied"):
        model_copy(workspace, "mine")


def test_code_of_the_users_runs_only_after_confirmation() -> None:
    workspace = Workspace(DeviceRegistry([TorchBackend()]))
    source = "torch.nn:Linear?in_features=3&out_features=2"
    with pytest.raises(BadInput, match=r"is your own code: open it first \(it asks before it runs\)"):
        model_copy(workspace, source)
    made = model_copy(workspace, source, own_code=True)
    assert isinstance(made, torch.nn.Linear)
    assert made.out_features == 2
    with pytest.raises(BadInput, match="did you mean gpt2"):
        model_copy(workspace, "transformers:gptt2")
    assert workspace.names == ()


def test_shapes_that_were_given_for_a_model_of_the_workspace_are_those_of_its_benchmark(
    virtual: VirtualMachine,
) -> None:
    workspace = Workspace(DeviceRegistry([TorchBackend(), virtual]))
    workspace.add("mine", torch.nn.Linear(3, 2), Extras(inputs="4x5x3"))
    bench = Bench(virtual, resolve=partial(model_copy, workspace), inputs_of=partial(given_inputs, workspace))
    ended = bench.run(ModelSpec(target="mine", device="vgpu:0", batch=7, seconds=0.01))
    assert isinstance(ended.result, ModelResult)
    assert ended.result.flop_per_step == 2 * 7 * 5 * 3 * 2
    assert given_inputs(workspace, "mlp") == ""


def test_a_model_that_calls_sys_exit_in_its_step_ends_its_run_and_nothing_else(virtual: VirtualMachine) -> None:
    class Leaves(torch.nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            self.calls = getattr(self, "calls", 0) + 1
            if self.calls > 3:
                raise SystemExit(0)
            return super().forward(x)

    bench = Bench(virtual, resolve=lambda name: Leaves(3, 2))
    ended = bench.run(ModelSpec(target="mine", device="cpu", seconds=60.0))
    assert "SystemExit" in str(ended.reason) or "sys.exit" in str(ended.reason)


def test_steps_of_a_model_go_through_the_same_door_and_leave_the_workspace_alone(virtual: VirtualMachine) -> None:
    workspace = Workspace(DeviceRegistry([TorchBackend(), virtual]))
    dispatch(workspace, BuildModel(recipe="mlp"))
    before = workspace.snapshot("mlp")
    bench = Bench(virtual, resolve=partial(model_copy, workspace))
    ended = bench.run(ModelSpec(target="mlp", device="vgpu:0", train=True, seconds=0.01))
    assert isinstance(ended.result, ModelResult)
    assert ended.reason is None
    assert workspace.snapshot("mlp") == before
