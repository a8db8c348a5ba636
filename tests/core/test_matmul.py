"""The matmul benchmark: what it counts, verifies, refuses and reports."""

from __future__ import annotations

import threading

import pytest
import torch

from devexplorer.core.benchmark.matmul import MatmulRun, agrees, operands, product, tf32_products
from devexplorer.core.benchmark.timing import Block, CpuTimer, Operation, VirtualTimer
from devexplorer.core.devices.backend import Fleet
from devexplorer.core.errors import Unavailable
from devexplorer.core.records.benchmark import MatmulSpec
from devexplorer.core.virtual.machine import VirtualMachine
from devexplorer.core.workspace.meter import Meter

CPU_DTYPES = ("float64", "float32", "float16", "bfloat16", "int8", "int32", "float8_e4m3fn")


class PlayedTimer:
    """Seconds per iteration as the test says; counts what it was asked for."""

    simulated = False

    def __init__(self, seconds: list[float]) -> None:
        self._seconds = seconds
        self.lengths: list[int] = []

    def block(self, operation: Operation, iterations: int) -> Block:
        operation()
        each = self._seconds.pop(0) if len(self._seconds) > 1 else self._seconds[0]
        self.lengths.append(iterations)
        return Block(iterations, each * iterations, (each,))


def run_with(timer: PlayedTimer, **spec: object) -> MatmulRun:
    arguments = {"device": "cpu", "m": 16, "n": 16, "k": 16, "seconds": None, **spec}
    return MatmulRun(MatmulSpec(**arguments), 7, timer, clock=lambda: 5.0)  # type: ignore[arg-type]


@pytest.mark.parametrize("dtype", CPU_DTYPES)
def test_the_product_is_right_in_every_dtype_that_the_cpu_has(dtype: str) -> None:
    assert agrees(dtype, "cpu")


def test_a_wrong_product_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.mm

    def wrong(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        right(a, b, out=out)
        out[3, 4] += 0.01
        return out

    monkeypatch.setattr(torch, "mm", wrong)
    assert not agrees("float32", "cpu")


def test_a_product_that_does_not_exist_is_unavailable_with_the_reason() -> None:
    a = torch.zeros(3, 5, dtype=torch.int8)  # sizes that the int8 kernel may refuse, and a dtype mismatch that every kernel refuses
    with pytest.raises(Unavailable, match="has no float32 product"):
        product(a, torch.zeros(5, 3), "float32")


def test_tflops_are_2mnk_over_the_median_and_blocks_fill_50_ms() -> None:
    timer = PlayedTimer([0.001, *[0.001] * 20, 0.002, 0.001])
    run = run_with(timer)
    run.prepare()
    points = [run.step() for _ in range(3)]
    assert all(point is not None and point.tflops == pytest.approx(2 * 16**3 / 0.001 / 1e12) for point in points)
    assert timer.lengths[-1] == 50
    result = run.result(stopped=True)
    assert result is not None
    assert (result.blocks, result.iterations, result.stopped, result.verified) == (3, 150, True, True)


def test_a_slow_iteration_makes_a_block_of_its_own() -> None:
    timer = PlayedTimer([3.0])
    run = run_with(timer, seconds=5.0)
    run.prepare()
    assert run.step() is not None
    assert run.step() is not None
    assert run.step() is None
    assert set(timer.lengths) == {1}


def test_iterations_limit_the_run_exactly() -> None:
    run = run_with(PlayedTimer([0.001]), iterations=70)
    run.prepare()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert result is not None
    assert result.iterations == 70


def test_p20_and_p80_are_in_the_order_of_speed() -> None:
    run = run_with(PlayedTimer([0.3, 0.01, 0.02, 0.03, 0.04, 0.05]))
    run.prepare()
    for _ in range(5):
        run.step()
    result = run.result(stopped=False)
    assert result is not None
    assert result.tflops.p20 < result.tflops.median < result.tflops.p80


def test_without_a_block_there_is_no_result() -> None:
    run = run_with(PlayedTimer([0.3]))
    run.prepare()
    assert run.result(stopped=True) is None


def test_the_cpu_is_timed_for_real() -> None:
    calls = []
    block = CpuTimer().block(lambda: calls.append(1), 5)
    assert len(calls) == block.iterations == 5
    assert block.seconds > 0
    assert block.samples == (block.seconds / 5,)


def test_tf32_is_a_mode_that_ends() -> None:
    before = torch.backends.cuda.matmul.fp32_precision
    with tf32_products():
        assert torch.backends.cuda.matmul.fp32_precision == "tf32"
    assert torch.backends.cuda.matmul.fp32_precision == before


def test_an_endless_run_keeps_a_bounded_number_of_samples(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("devexplorer.core.benchmark.matmul.MOST_SAMPLES", 100)
    run = run_with(PlayedTimer([0.3, *[0.01, 0.03] * 1000]))
    run.prepare()
    for _ in range(1500):
        run.step()
    assert len(run._samples) <= 101
    result = run.result(stopped=True)
    assert result is not None
    assert result.blocks == 1500


def test_the_virtual_clock_pays_for_every_iteration(virtual: VirtualMachine) -> None:
    a, b = operands(64, 64, 64, "float32", "vgpu:1")
    operation, _ = product(a, b, "float32")
    stop = threading.Event()
    stop.set()  # no pacing: the test waits for nothing
    before = virtual.clock_seconds("vgpu:1")
    block = VirtualTimer("vgpu:1", virtual, stop).block(operation, 1)
    assert block.seconds == pytest.approx(virtual.clock_seconds("vgpu:1") - before)
    assert block.seconds == pytest.approx(virtual.matmul_seconds("vgpu:1", 64, 64, 64, "float32"))


def test_a_virtual_block_of_many_iterations_is_booked_whole(virtual: VirtualMachine) -> None:
    a, b = operands(64, 64, 64, "float32", "vgpu:0")
    operation, _ = product(a, b, "float32")
    before = virtual.clock_seconds("vgpu:0")
    block = VirtualTimer("vgpu:0", virtual, threading.Event()).block(operation, 100)
    assert block.iterations == 100
    assert virtual.clock_seconds("vgpu:0") - before == pytest.approx(block.seconds)


def test_what_others_do_on_the_device_meanwhile_is_not_the_benchmarks_time(virtual: VirtualMachine) -> None:
    a, b = operands(64, 64, 64, "float32", "vgpu:0")
    multiply, _ = product(a, b, "float32")

    def with_company() -> None:
        other = threading.Thread(target=virtual.advance, args=("vgpu:0", 5.0))
        other.start()
        other.join()
        multiply()

    block = VirtualTimer("vgpu:0", virtual, threading.Event()).block(with_company, 1)
    assert block.seconds == pytest.approx(virtual.matmul_seconds("vgpu:0", 64, 64, 64, "float32"))


def test_nor_is_it_the_time_of_a_move_or_a_run(virtual: VirtualMachine) -> None:
    timing = Meter(Fleet([virtual]), lambda: 0.0).start(["vgpu:0"])
    other = threading.Thread(target=virtual.advance, args=("vgpu:0", 5.0))
    other.start()
    other.join()
    virtual.advance("vgpu:0", 0.25)
    assert timing.stop()[0] == pytest.approx(0.25)
