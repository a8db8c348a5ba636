"""The scaling benchmark: in parallel and one after the other, threads, refusals, and what is kept after an error."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from fakes.products import matmul_seconds
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from devexplorer.core.base import BadInput, DoesNotFit
from devexplorer.core.benchmark import matmul
from devexplorer.core.benchmark.kind import figures, kind_of, run_documents
from devexplorer.core.benchmark.matmul import MeasuredProduct
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.profiles import parse_virtual
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import BenchPoint, Conditions, DeviceInfo, MatmulSpec
from devexplorer.core.scaling import run as scaling
from devexplorer.core.scaling.kind import DeviceWall, ScalingResult, ScalingSpec
from devexplorer.core.scaling.run import ScalingRun, check_scaling
from devexplorer.core.virtual.device.machine import VirtualMachine

BOTH = ("vgpu:0", "vgpu:1")


@pytest.fixture
def registry(virtual: VirtualMachine) -> DeviceRegistry:
    return DeviceRegistry([TorchBackend(), virtual])


def run_of(spec: ScalingSpec, registry: DeviceRegistry, stop: threading.Event | None = None) -> ScalingRun:
    return ScalingRun(check_scaling(spec, registry), 7, registry, stop or threading.Event(), lambda: 5.0)


def measured(run: ScalingRun) -> tuple[list[BenchPoint], ScalingResult]:
    run.prepare()
    points = list(iter(run.step, None))
    result = run.result(stopped=False)
    assert result is not None
    return points, result


def test_two_virtual_cards_at_once_are_twice_as_fast_as_one_of_them(
    registry: DeviceRegistry, virtual: VirtualMachine
) -> None:
    points, result = measured(run_of(ScalingSpec(devices=BOTH, size=1000, iterations=1000), registry))
    each = 1000 * matmul_seconds(virtual, "vgpu:0", 1000, 1000, 1000, "float32")
    assert result.parallel_seconds == pytest.approx(each)
    assert result.sequential_seconds == pytest.approx(2 * each)
    assert result.speedup == pytest.approx(2)
    assert result.efficiency == pytest.approx(1)
    assert [(wall.device, pytest.approx(wall.seconds)) for wall in result.walls] == [("vgpu:0", each), ("vgpu:1", each)]
    assert result.simulated
    assert result.verified is True
    assert result.iterations == 4000
    assert [point.text for point in points] == ["2 jobs at once", "job 1 of 2 on vgpu:0", "job 2 of 2 on vgpu:0"]
    assert [point.done for point in points] == [0.5, 0.75, 1.0]
    tflops = 2 * 1000**3 * 1000 / each / 1e12
    assert [point.tflops for point in points] == [pytest.approx(tflops)] * 3, (
        "drawn as the first device's: never the sum of both"
    )


def test_a_year_of_simulated_products_takes_no_time_here(registry: DeviceRegistry) -> None:
    began = time.monotonic()
    _, result = measured(run_of(ScalingSpec(devices=BOTH, size=4096, iterations=10**10), registry))
    assert result.parallel_seconds is not None
    assert result.parallel_seconds > 365 * 86400
    assert time.monotonic() - began < 60


def test_cards_that_differ_the_slowest_is_what_at_once_takes(virtual: VirtualMachine) -> None:
    virtual.add(parse_virtual("NVIDIA A100-SXM4-80GB"))
    registry = DeviceRegistry([TorchBackend(), virtual])
    _, result = measured(run_of(ScalingSpec(devices=("vgpu:2", "vgpu:0"), size=2048, iterations=10), registry))
    fast, slow = (10 * matmul_seconds(virtual, device, 2048, 2048, 2048, "float32") for device in ("vgpu:2", "vgpu:0"))
    assert result.parallel_seconds == pytest.approx(slow)
    assert result.sequential_seconds == pytest.approx(2 * fast)
    assert result.speedup == pytest.approx(2 * fast / slow)


def test_operands_of_virtual_cards_are_counted_there_and_given_back(
    registry: DeviceRegistry, virtual: VirtualMachine
) -> None:
    run = run_of(ScalingSpec(devices=BOTH, size=1024, iterations=1), registry)
    run.prepare()
    assert [gpu.memory.allocated_bytes for gpu in virtual.gpus] == [3 * 4 * 1024**2] * 2
    assert run.result(stopped=True) is None
    del run
    assert [gpu.memory.allocated_bytes for gpu in virtual.gpus] == [0, 0]


# --- real devices: the CPU, and fake accelerators on it


class PlayedCards:
    """Accelerators with products defined by the test (see `played`)."""

    def __init__(self, count: int) -> None:
        self._devices = tuple(DeviceInfo(id=f"xpu:{index}", kind="xpu", name="played") for index in range(count))

    def devices(self) -> tuple[DeviceInfo, ...]:
        return self._devices

    def free_bytes(self, device: str) -> None:
        return None

    def synchronize(self, device: str) -> None:
        pass


def played(
    monkeypatch: pytest.MonkeyPatch, operation: Callable[[str], None], count: int = 2, *, right: bool = True
) -> DeviceRegistry:
    def make(spec: MatmulSpec) -> MeasuredProduct:
        return MeasuredProduct(lambda: operation(spec.device), lambda: right)

    monkeypatch.setattr(matmul, "real_product", make)
    monkeypatch.setattr(scaling, "WARM_UP_SECONDS", 1e-9)
    monkeypatch.setattr(scaling, "BLOCK_SECONDS", 0.002)
    return DeviceRegistry([TorchBackend(), PlayedCards(count)])  # type: ignore[list-item]


def test_the_cpu_computes_on_the_calling_thread_and_each_accelerator_on_its_own(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    threads: dict[str, set[str]] = {"cpu": set(), "xpu:0": set(), "xpu:1": set()}
    warm = threading.Event()

    def note(device: str) -> None:
        if warm.is_set():
            threads[device].add(threading.current_thread().name)

    run = run_of(ScalingSpec(devices=("xpu:0", "cpu", "xpu:1"), size=16, iterations=200), played(monkeypatch, note))
    run.prepare()
    warm.set()
    while (point := run.step()) is not None and point.text == "3 jobs at once":
        pass
    assert threads["cpu"] == {threading.current_thread().name}
    assert threads["xpu:1"] == {"scaling-xpu:1"}
    assert threads["xpu:0"] >= {"scaling-xpu:0"}
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    assert {wall.device for wall in result.walls} == set(threads)
    assert result.parallel_seconds == max(wall.seconds for wall in result.walls)
    assert result.threads == torch.get_num_threads()
    assert not result.simulated


def test_jobs_run_at_the_same_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each product waits for the other device's, so running them one after the other would deadlock."""
    meet = threading.Barrier(2, timeout=20)
    together = threading.Event()

    def wait(device: str) -> None:
        if together.is_set() and threading.current_thread().name.startswith("scaling-"):
            meet.wait()

    run = run_of(ScalingSpec(devices=("xpu:0", "xpu:1"), size=16, iterations=50), played(monkeypatch, wait))
    run.prepare()
    together.set()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    assert result.speedup is not None


def test_an_accelerators_job_in_turn_has_a_new_thread_each_time_as_it_had_at_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """So that what helps a thread (OpenMP's threads, where the accelerator is played on the CPU) is the same in both
    parts."""
    threads: list[threading.Thread] = []

    def note(device: str) -> None:
        if device == "xpu:0" and (not threads or threads[-1] is not threading.current_thread()):
            threads.append(threading.current_thread())

    run = run_of(ScalingSpec(devices=("xpu:0", "xpu:1"), size=16, iterations=30), played(monkeypatch, note))
    run.prepare()
    threads.clear()
    points = list(iter(run.step, None))
    result = run.result(stopped=False)
    assert [thread.name for thread in threads] == ["scaling-xpu:0", "in-turn-xpu:0", "in-turn-xpu:0"]
    assert not any(thread.is_alive() for thread in threads)
    assert sum(point.iterations for point in points if point.text.startswith("job")) == 60
    assert result is not None
    assert result.iterations == 120


def test_a_speed_up_by_a_device_that_was_slow_alone_is_none() -> None:
    def result(sequential: float) -> ScalingResult:
        walls = (DeviceWall("xpu:0", 0.34), DeviceWall("xpu:1", 0.33))
        return ScalingResult(
            run=1,
            spec=ScalingSpec(devices=("xpu:0", "xpu:1")),
            parallel_seconds=0.34,
            sequential_seconds=sequential,
            walls=walls,
            stopped=False,
            simulated=False,
            seconds=1.0,
            iterations=4,
            torch_version="2",
        )

    fine, absurd = result(0.86), result(82.3)
    assert fine.unreliable is None
    assert [figure.quantity for figure in figures(fine)] == ["seconds", "seconds", "speedup"]
    assert absurd.speedup == pytest.approx(242, rel=0.01)
    assert absurd.unreliable is not None
    assert absurd.unreliable.startswith("xpu:0 took 121.0 times as long for a job when nothing else ran")
    assert [figure.quantity for figure in figures(absurd)] == ["seconds", "seconds"], (
        "no history and no comparison counts it"
    )
    assert run_documents(absurd)[0]["unreliable"] == absurd.unreliable
    assert "unreliable" not in run_documents(fine)[0], "who reads the documents of today finds in them what there was"
    assert (
        kind_of(absurd)
        .summary(absurd, Conditions(started_unix_s=0.0, ended_unix_s=1.0))
        .endswith(f"Unreliable: {absurd.unreliable}")
    )


def test_every_device_computes_all_of_its_job_and_the_first_one_all_jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = {"cpu": 0, "xpu:0": 0}
    lock = threading.Lock()

    def count(device: str) -> None:
        with lock:
            counted[device] += 1

    run = run_of(ScalingSpec(devices=("cpu", "xpu:0"), size=16, iterations=70), played(monkeypatch, count))
    run.prepare()
    warm = dict(counted)
    while run.step() is not None:
        pass
    assert {device: counted[device] - warm[device] for device in counted} == {"cpu": 3 * 70, "xpu:0": 70}
    assert run.result(stopped=False) is not None


def test_a_wrong_product_makes_the_result_unverified(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = played(monkeypatch, lambda device: None, right=False)
    _, result = measured(run_of(ScalingSpec(devices=("cpu", "xpu:0"), size=16, iterations=2), registry))
    assert result.verified is False


def test_a_card_that_is_lost_at_once_ends_the_run_with_the_jobs_that_were_done(monkeypatch: pytest.MonkeyPatch) -> None:
    fine = threading.Event()

    def lost(device: str) -> None:
        if device == "xpu:1" and threading.current_thread().name == "scaling-xpu:1":
            fine.wait(20)
            raise RuntimeError("XPU device is lost")

    run = run_of(ScalingSpec(devices=("cpu", "xpu:0", "xpu:1"), size=16, iterations=20), played(monkeypatch, lost))
    run.prepare()
    for point in iter(run.step, None):
        if point.done is not None and point.done >= 40 / 120:  # the two others are done
            break
    fine.set()
    with pytest.raises(RuntimeError, match="XPU device is lost"):
        list(iter(run.step, None))
    result = run.result(stopped=False, failure="XPU device is lost")
    assert result is not None
    assert [wall.device for wall in result.walls] == ["cpu", "xpu:0"]
    assert (result.parallel_seconds, result.sequential_seconds, result.speedup) == (None, None, None)
    assert (result.failure, result.stopped) == ("XPU device is lost", True)


def test_a_card_that_is_lost_in_turn_keeps_what_was_measured_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    later = threading.Event()

    def lost(device: str) -> None:
        if later.is_set():
            raise torch.OutOfMemoryError("full")

    run = run_of(ScalingSpec(devices=("xpu:0", "xpu:1"), size=16, iterations=20), played(monkeypatch, lost))
    run.prepare()
    while (point := run.step()) is not None and not point.text.startswith("job 1"):
        pass
    later.set()
    with pytest.raises(torch.OutOfMemoryError):
        list(iter(run.step, None))
    result = run.result(stopped=False, failure="full")
    assert result is not None
    assert result.parallel_seconds is not None
    assert result.sequential_seconds is None
    assert result.efficiency is None


@pytest.mark.parametrize("devices", [("xpu:0", "xpu:1"), ("cpu", "xpu:0")])
def test_stopping_ends_every_thread_also_without_another_step(
    monkeypatch: pytest.MonkeyPatch, devices: tuple[str, ...]
) -> None:
    stop = threading.Event()
    run = run_of(
        ScalingSpec(devices=devices, size=16, iterations=10**9), played(monkeypatch, lambda device: None), stop
    )
    run.prepare(stop.is_set)
    assert run.step() is not None
    stop.set()
    assert run.result(stopped=True) is None
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("scaling-")]
    assert run.step() is None


def test_asking_to_stop_ends_every_thread_though_the_run_is_left_alone(monkeypatch: pytest.MonkeyPatch) -> None:
    """As when the engine closes: the run is not stepped again, and its result is not read."""
    stop = threading.Event()
    run = run_of(
        ScalingSpec(devices=("cpu", "xpu:0"), size=16, iterations=10**9),
        played(monkeypatch, lambda device: None, 1),
        stop,
    )
    run.prepare(stop.is_set)
    assert run.step() is not None
    (thread,) = (thread for thread in threading.enumerate() if thread.name == "scaling-xpu:0")
    stop.set()
    thread.join(20)
    assert not thread.is_alive()


def test_stopping_between_two_steps_ends_the_run_with_what_is_known(registry: DeviceRegistry) -> None:
    stop = threading.Event()
    run = run_of(ScalingSpec(devices=BOTH, size=64, iterations=10), registry, stop)
    run.prepare()
    assert run.step() is not None
    assert run.step() is not None
    stop.set()
    assert run.step() is None
    result = run.result(stopped=True)
    assert result is not None
    assert result.stopped
    assert result.parallel_seconds is not None
    assert result.sequential_seconds is None


def test_a_device_that_cannot_be_prepared_is_the_runs_error(registry: DeviceRegistry, virtual: VirtualMachine) -> None:
    run = run_of(ScalingSpec(devices=BOTH, size=1024, iterations=1), registry)
    taken = virtual.gpu("vgpu:1").memory.allocate(virtual.device_free_bytes("vgpu:1") - (4 << 20))
    with pytest.raises(torch.OutOfMemoryError):
        run.prepare()
    assert run.result(stopped=False, failure="full") is None
    virtual.gpu("vgpu:1").memory.free(taken)


# --- what is refused


def refused(spec: ScalingSpec, registry: DeviceRegistry) -> BadInput:
    with pytest.raises(BadInput) as caught:
        check_scaling(spec, registry)
    return caught.value


def test_everything_that_is_wrong_is_said_at_once(registry: DeviceRegistry) -> None:
    findings = refused(ScalingSpec(devices=("vgpu:0", "cuda:9"), dtype="int4", size=0, iterations=0), registry).findings
    assert findings[0] == "there is no device 'cuda:9' here; there are cpu, vgpu:0, vgpu:1"
    assert any("0 iterations cannot be measured" in finding for finding in findings)
    assert any("every side is from 1" in finding for finding in findings)
    assert any(
        "does not measure int4" in finding
        for finding in refused(ScalingSpec(devices=BOTH, dtype="int4"), registry).findings
    )


def test_real_and_virtual_devices_are_refused_with_one_line(registry: DeviceRegistry) -> None:
    error = refused(ScalingSpec(devices=("cpu", "vgpu:0")), registry)
    assert error.findings == (
        "cpu is real and vgpu:0 simulated: their clocks cannot be compared; choose devices of one kind",
    )


def test_one_device_alone_is_explained(registry: DeviceRegistry) -> None:
    error = refused(ScalingSpec(devices=("vgpu:0",)), registry)
    assert "need two of them at least" in str(error)
    assert "cpu, vgpu:0, vgpu:1" in str(error)
    assert not error.virtual_helps
    alone = refused(ScalingSpec(devices=("cpu",)), DeviceRegistry([TorchBackend()]))
    if not torch.cuda.is_available():
        assert "there is no device beside cpu here; add virtual GPUs" in str(alone)
    assert alone.virtual_helps
    assert refused(ScalingSpec(devices=()), registry).findings


def test_a_device_named_twice_is_refused(registry: DeviceRegistry) -> None:
    assert "vgpu:0 is named twice" in str(refused(ScalingSpec(devices=("vgpu:0", "vgpu")), registry))


def test_a_size_that_does_not_fit_is_refused_with_the_bytes_needed(registry: DeviceRegistry) -> None:
    error = refused(ScalingSpec(devices=BOTH, size=100_000), registry)
    assert len(error.findings) == 2
    assert "needs 111.76 GiB on vgpu:0" in error.findings[0]
    virtual = registry.backend("vgpu:0")
    assert isinstance(virtual, VirtualMachine)
    taken = virtual.gpu("vgpu:1").memory.allocate(14 << 30)
    with pytest.raises(DoesNotFit) as caught:
        check_scaling(ScalingSpec(devices=BOTH, size=10_000), registry)
    virtual.gpu("vgpu:1").memory.free(taken)
    assert (caught.value.device, caught.value.needed_bytes) == ("vgpu:1", 3 * 4 * 10_000**2)


def test_a_dtype_that_one_of_the_chips_lacks_is_refused(registry: DeviceRegistry) -> None:
    assert "no float8_e4m3fn unit" in str(
        refused(ScalingSpec(devices=BOTH, dtype="float8_e4m3fn", size=1024), registry)
    )


@settings(max_examples=20, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.permutations(["vgpu:0", "vgpu:1", "vgpu:2", "vgpu:3"]),
    st.integers(2, 4),
    st.integers(1, 2000),
    st.integers(1, 5000),
)
def test_at_once_is_the_longest_and_in_turn_the_sum(
    virtual: VirtualMachine, devices: list[str], count: int, size: int, iterations: int
) -> None:
    if len(virtual.gpus) == 2:
        virtual.add(parse_virtual("NVIDIA A100-SXM4-80GB, NVIDIA L4"))
    registry = DeviceRegistry([TorchBackend(), virtual])
    _, result = measured(
        run_of(ScalingSpec(devices=tuple(devices[:count]), size=size, iterations=iterations), registry)
    )
    assert result.speedup is not None
    assert result.efficiency is not None
    first = result.walls[0].seconds
    assert result.parallel_seconds == max(wall.seconds for wall in result.walls)
    assert result.sequential_seconds == pytest.approx(count * first)
    assert 0 < result.speedup <= count * (1 + 1e-9)
    assert result.efficiency == pytest.approx(result.speedup / count)


def arguments(**other: Any) -> ScalingSpec:
    return ScalingSpec(**{"devices": BOTH, **other})


def test_the_checked_specification_has_canonical_names(registry: DeviceRegistry) -> None:
    assert check_scaling(arguments(devices=("VGPU", "vgpu:1")), registry) == arguments()
