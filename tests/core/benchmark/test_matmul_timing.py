"""How iterations are timed on each kind of device."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
import torch
from fakes.cuda import FakeCudaTorch
from fakes.products import matmul_seconds
from hypothesis import given
from hypothesis import strategies as st

from devexplorer.core.benchmark import timing
from devexplorer.core.benchmark.matmul import operands, product, virtual_product
from devexplorer.core.benchmark.timing import (
    AcceleratorTimer,
    CpuTimer,
    EventTimer,
    SynchronisedTimer,
    VirtualTimer,
    timer_for,
)
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import MatmulSpec
from devexplorer.core.virtual.device.machine import VirtualMachine
from devexplorer.core.workspace.runs import Timing


class Wall:
    """A clock that operations advance."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.now = 100.0
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.now)

    def takes(self, seconds: float) -> object:
        def work() -> None:
            self.now += seconds

        return work


# --- CPU


def test_the_cpu_is_timed_for_real() -> None:
    calls = []
    block = CpuTimer().block(lambda: calls.append(1), 5)
    assert len(calls) == block.iterations == 5
    assert block.seconds > 0
    assert block.samples == (block.seconds / 5,)
    assert block.spent == block.seconds


def test_short_products_are_timed_in_groups_that_the_clock_can_tell(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(monkeypatch)
    block = CpuTimer().singly(wall.takes(1e-5), 100, 1e-5)  # type: ignore[arg-type]
    assert block.iterations == 100
    assert block.samples == pytest.approx((1e-5,) * 5), "five groups of twenty: 0.2 ms each"


def test_long_ones_are_timed_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    wall = Wall(monkeypatch)
    assert CpuTimer().singly(wall.takes(0.01), 4, 0.01).samples == pytest.approx((0.01,) * 4)  # type: ignore[arg-type]


@pytest.mark.parametrize("timer", [CpuTimer(), SynchronisedTimer(lambda: None)], ids=["cpu", "other"])
def test_a_flush_is_between_the_iterations_and_is_not_counted(monkeypatch: pytest.MonkeyPatch, timer: CpuTimer) -> None:
    wall = Wall(monkeypatch)
    block = timer.singly(wall.takes(1e-5), 3, 1e-5, wall.takes(0.5))  # type: ignore[arg-type]
    assert block.samples == pytest.approx((1e-5,) * 3)
    assert block.seconds == pytest.approx(3e-5)
    assert block.between == pytest.approx(1.5)


@given(iterations=st.integers(1, 500), each=st.floats(0, 1e-2))
def test_groups_never_have_more_iterations_than_were_asked_for(iterations: int, each: float) -> None:
    calls = []
    block = CpuTimer().singly(lambda: calls.append(1), iterations, each)
    assert 1 <= block.iterations == len(calls) <= iterations


# --- CUDA, with a fake card


class Card:
    """Executes queued work on synchronisation; its events use its own clock."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.clock, self.queued, self.waits = 0.0, [], 0  # type: ignore[var-annotated]
        card = self

        class Event:
            def __init__(self, enable_timing: bool) -> None:
                assert enable_timing
                self.time: float | None = None

            def record(self) -> None:
                card.queued.append(self)

            def elapsed_time(self, end: Event) -> float:
                assert self.time is not None, "nobody has waited"
                assert end.time is not None
                return (end.time - self.time) * 1e3

        def synchronize(device: torch.device) -> None:
            assert device == torch.device("cuda:1"), "always the device by name"
            self.waits += 1
            for item in self.queued:
                if isinstance(item, float):
                    self.clock += item
                else:
                    item.time = self.clock
            self.queued.clear()

        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "synchronize", synchronize)
        monkeypatch.setattr(torch.cuda, "device", lambda _device: nullcontext())

    def takes(self, seconds: float) -> object:
        return lambda: self.queued.append(seconds)


def test_burst_on_cuda_queues_pairs_of_events_and_waits_once(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    block = EventTimer(timing.CudaStreams("cuda:1")).singly(card.takes(0.002), 50, 0.002, card.takes(0.1))  # type: ignore[arg-type]
    assert block.samples == pytest.approx((0.002,) * 50), "without the flush before each"
    assert card.waits == 1
    assert card.clock == pytest.approx(50 * 0.102)


def test_a_block_on_cuda_has_a_bounded_number_of_events(monkeypatch: pytest.MonkeyPatch) -> None:
    card = Card(monkeypatch)
    timer = EventTimer(timing.CudaStreams("cuda:1"))
    block = timer.block(card.takes(0.001), 1001)  # type: ignore[arg-type]
    assert (block.iterations, card.waits) == (1001, 1)
    assert len(block.samples) <= timing.MOST_EVENTS
    assert block.seconds == pytest.approx(1.001)
    assert timer.singly(card.takes(0.001), 10**6, 0.001).iterations == timing.MOST_PAIRS  # type: ignore[arg-type]


# --- other accelerators, with torch's generic events


class PlayedStreams:
    """A device whose events use `clock`, while each operation advances `wall`."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, unit: float = 1.0) -> None:
        self.wall, self.waits, outer = 0.0, 0, self

        class Event:
            def record(self) -> None:
                self.at = outer.wall

            def elapsed_time(self, later: Event) -> float:
                return (later.at - self.at) * 1e3 * unit

        self.event = Event
        monkeypatch.setattr(timing.time, "perf_counter", lambda: self.wall)

    def here(self) -> nullcontext[None]:
        return nullcontext()

    def wait(self) -> None:
        self.waits += 1
        self.wall += 1e-5

    def takes(self, seconds: float) -> Callable[[], None]:
        def operation() -> None:
            self.wall += seconds

        return operation


def test_an_accelerator_with_events_is_timed_by_them_iteration_by_iteration(monkeypatch: pytest.MonkeyPatch) -> None:
    device = PlayedStreams(monkeypatch)
    timer = AcceleratorTimer(device)  # type: ignore[arg-type]
    assert timer.block(device.takes(0.002), 10).samples == pytest.approx((0.002,) * 10)
    assert timer.singly(device.takes(0.002), 10, 0.002, device.takes(0.1)).samples == pytest.approx((0.002,) * 10)


@pytest.mark.parametrize(
    "unit", [0.0, -1.0, 1000.0], ids=["a clock that stands still", "one that goes back", "another unit"]
)
def test_events_that_tell_what_cannot_be_are_replaced_by_the_wall(monkeypatch: pytest.MonkeyPatch, unit: float) -> None:
    device = PlayedStreams(monkeypatch, unit)
    timer = AcceleratorTimer(device)  # type: ignore[arg-type]
    assert timer.block(device.takes(0.002), 10).seconds == pytest.approx(0.02, rel=0.01)
    assert timer.singly(device.takes(0.002), 10, 0.002, device.takes(0.1)).samples == pytest.approx(
        (0.002,) * 10, rel=0.01
    )


def other_accelerator(monkeypatch: pytest.MonkeyPatch, **functions: Any) -> DeviceRegistry:
    module = SimpleNamespace(is_available=lambda: True, device_count=lambda: 2)
    generic = {"synchronize": lambda index: None, "device_index": lambda index: nullcontext(), **functions}
    fake = FakeCudaTorch(built=False, accelerator="openreg", modules={"openreg": module}, generic=generic)
    monkeypatch.setattr(
        timing,
        "torch",
        SimpleNamespace(accelerator=fake.accelerator, device=lambda text: PlayedDevice(text), Event=PlayedEvent),
    )
    return DeviceRegistry([TorchBackend(module=fake)])


class PlayedDevice:
    def __init__(self, text: str) -> None:
        self.type, _, index = text.partition(":")
        self.index = int(index)


class PlayedEvent:
    def __init__(self, device: PlayedDevice, enable_timing: bool) -> None:
        assert enable_timing

    def record(self) -> None:
        pass

    def elapsed_time(self, later: PlayedEvent) -> float:
        return 0.0


def test_an_accelerator_without_events_is_timed_by_the_wall_between_two_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = other_accelerator(monkeypatch)
    assert isinstance(timer_for("openreg:1", registry, threading.Event()), AcceleratorTimer)

    def no_time(_event: object, _later: object) -> float:
        raise NotImplementedError("elapsedTime")

    monkeypatch.setattr(PlayedEvent, "elapsed_time", no_time)
    timer = timer_for("openreg:1", registry, threading.Event())
    assert isinstance(timer, SynchronisedTimer)
    assert timer.block(lambda: None, 3).iterations == 3


# --- virtual GPUs


def test_the_virtual_clock_pays_for_every_iteration(virtual: VirtualMachine) -> None:
    a, b = operands(64, 64, 64, "float32", "vgpu:1")
    operation, _ = product(a, b, "float32")
    stop = threading.Event()
    stop.set()  # no pacing: the test does not wait
    before = virtual.clock_seconds("vgpu:1")
    block = VirtualTimer("vgpu:1", virtual, stop).block(operation, 1)
    assert block.seconds > virtual.clock_seconds("vgpu:1") - before > 0, "the launch bounds so small a product"
    assert block.seconds == pytest.approx(matmul_seconds(virtual, "vgpu:1", 64, 64, 64, "float32"))


@pytest.mark.parametrize("paced", [True, False])
def test_a_virtual_block_of_many_iterations_is_booked_whole(virtual: VirtualMachine, paced: bool) -> None:
    a, b = operands(64, 64, 64, "float32", "vgpu:0")
    operation, _ = product(a, b, "float32")
    timer = VirtualTimer("vgpu:0", virtual, threading.Event(), paced=paced)
    before, busy = timer.now(), virtual.gpu("vgpu:0").clock.busy_seconds
    block = timer.singly(operation, 100, 0.0)
    assert block.iterations == 100
    spent = timer.now() - before
    assert block.seconds / 2 < spent < block.seconds, "the card waits for the launches of such small products"
    assert virtual.gpu("vgpu:0").clock.busy_seconds - busy == pytest.approx(spent), "utilization sees it"


def test_without_pacing_an_hour_of_a_virtual_gpu_passes_at_once(
    virtual: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    operation = virtual_product(MatmulSpec(device="vgpu:0", m=8192, n=8192, k=8192)).operation
    timer = VirtualTimer("vgpu:0", virtual, threading.Event(), paced=False)
    waited = []
    monkeypatch.setattr(threading.Event, "wait", lambda _event, seconds=None: waited.append(seconds))
    assert timer.block(operation, 10_000).seconds > 1000
    assert not waited


def test_a_card_is_busy_while_a_long_product_is_waited_for(
    virtual: VirtualMachine, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read(_event: threading.Event, _seconds: float) -> bool:
        busy.extend(virtual.device_sample("vgpu:0", 0.0).utilization_percent for _ in range(4))
        return next(stopped)

    busy: list[float | None] = []
    stopped = iter((False, True))
    operation = virtual_product(MatmulSpec(device="vgpu:0", m=8192, n=8192, k=8192)).operation
    timer = VirtualTimer("vgpu:0", virtual, threading.Event())
    monkeypatch.setattr(threading.Event, "wait", read)
    assert timer.block(operation, 1).seconds > 0.05
    assert busy == [100.0] * 4
    timer.block(operation, 1)
    assert busy == [100.0] * 8
    last = [virtual.device_sample("vgpu:0", 0.0).utilization_percent for _ in range(3)]
    assert last[-1] == 0.0, "the run was stopped"


@pytest.mark.parametrize("how", [{}, {"batch": 4}, {"transpose_a": True, "transpose_b": True}, {"dtype": "float32"}])
def test_virtual_products_cost_what_the_model_says_whatever_their_layout(
    virtual: VirtualMachine, how: dict[str, object]
) -> None:
    spec = MatmulSpec(**{"device": "vgpu:0", "dtype": "float16", "m": 2048, "n": 1024, "k": 512, **how})  # type: ignore[arg-type]
    made = virtual_product(spec)
    block = VirtualTimer("vgpu:0", virtual, threading.Event(), paced=False).block(made.operation, 1)
    expected = matmul_seconds(virtual, "vgpu:0", spec.m, spec.n, spec.k, spec.dtype, spec.batch)
    assert block.seconds == pytest.approx(expected, rel=0.01)
    assert made.verify()


def test_what_others_do_on_the_device_meanwhile_is_not_the_benchmarks_time(virtual: VirtualMachine) -> None:
    a, b = operands(64, 64, 64, "float32", "vgpu:0")
    multiply, _ = product(a, b, "float32")

    def with_company() -> None:
        other = threading.Thread(target=virtual.advance, args=("vgpu:0", 5.0))
        other.start()
        other.join()
        multiply()

    block = VirtualTimer("vgpu:0", virtual, threading.Event()).block(with_company, 1)
    assert block.seconds == pytest.approx(matmul_seconds(virtual, "vgpu:0", 64, 64, 64, "float32"))


def test_nor_is_it_the_time_of_a_move_or_a_run(virtual: VirtualMachine) -> None:
    timing_of = Timing(DeviceRegistry([virtual]), ["vgpu:0"], wall=lambda: 0.0)
    other = threading.Thread(target=virtual.advance, args=("vgpu:0", 5.0))
    other.start()
    other.join()
    virtual.advance("vgpu:0", 0.25)
    assert timing_of.stop()[0] == pytest.approx(0.25)


def test_each_kind_of_device_has_its_timer(virtual: VirtualMachine) -> None:
    registry = DeviceRegistry([TorchBackend(), virtual])
    assert isinstance(timer_for("cpu", registry, threading.Event()), CpuTimer)
    assert isinstance(timer_for("vgpu:1", registry, threading.Event()), VirtualTimer)
