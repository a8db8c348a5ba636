"""Sweeps over shapes: cells, errors that end a sweep, resuming, and the search for the fastest shape."""

from __future__ import annotations

import threading
from collections.abc import Callable

import msgspec
import pytest
import torch
from fakes.cuda import AcceleratorError
from fakes.played_timer import PlayedTimer
from fakes.products import matmul_seconds
from hypothesis import given, settings
from hypothesis import strategies as st

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.benchmark.matmul import MeasuredProduct, virtual_product
from devexplorer.core.benchmark.timing import CpuTimer, VirtualTimer
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.records import BenchPoint, MatmulSpec, Spread
from devexplorer.core.sweep.kind import SweepCell, SweepResult, SweepSpec
from devexplorer.core.sweep.run import DRAWS, LARGEST_JUMP, START_SIDES, Search, Shape, SweepRun, check_sweep
from devexplorer.core.virtual.device.machine import VirtualMachine

A, B, C = (16, 16, 16), (32, 16, 8), (8, 8, 8)


def sweep(make: Callable[[MatmulSpec], MeasuredProduct], **spec: object) -> SweepRun:
    wanted = SweepSpec(**{"device": "cpu", "shapes": (A, B, C), **spec})  # type: ignore[arg-type]
    run = SweepRun(wanted, 3, PlayedTimer([0.01]), make=make, clock=lambda: 5.0)
    run.prepare()
    return run


def fine(_: MatmulSpec) -> MeasuredProduct:
    return MeasuredProduct(lambda: None, lambda: True)


def failing_at(shape: Shape, error: Exception, *, later: bool = False) -> Callable[[MatmulSpec], MeasuredProduct]:
    def fail() -> None:
        raise error

    def make(spec: MatmulSpec) -> MeasuredProduct:
        if (spec.m, spec.n, spec.k) != shape:
            return fine(spec)
        if later:
            return MeasuredProduct(fail, lambda: True)
        raise error

    return make


def points(run: SweepRun) -> list[BenchPoint]:
    return list(iter(run.step, None))  # type: ignore[arg-type]


def result(run: SweepRun) -> SweepResult:
    found = run.result(stopped=False)
    assert found is not None
    return found


# --- cells


def test_each_shape_is_one_cell_and_one_point_with_it() -> None:
    run = sweep(fine)
    seen = points(run)
    cells = [point.part for point in seen if point.part is not None]
    assert [(cell.m, cell.n, cell.k) for cell in cells] == [A, B, C]
    assert result(run).cells == tuple(cells)
    assert cells[0].tflops == Spread(*[pytest.approx(2 * 16**3 / 0.01 / 1e12)] * 3)  # type: ignore[arg-type]
    assert cells[0].iterations == 20, "0.2 s of 10 ms each"
    assert {point.text for point in seen} == {"16×16×16", "32×16×8", "8×8×8"}


def test_how_far_it_is_only_grows_and_ends_at_one() -> None:
    done = [point.done for point in points(sweep(fine))]
    assert done == sorted(done)  # type: ignore[type-var]
    assert done[-1] == 1.0


@pytest.mark.parametrize("later", [False, True], ids=["at once", "while measuring"])
@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("vgpu out of memory. Tried to allocate 2 GiB\nand more"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 9 bytes"),
        Unavailable("cpu has no float32 product: why ever"),
    ],
    ids=["full", "host full", "no kernel"],
)
def test_a_shape_that_cannot_be_measured_says_why_and_the_sweep_continues(error: Exception, later: bool) -> None:
    run = sweep(failing_at(B, error, later=later))
    points(run)
    first, second, third = result(run).cells
    assert first.tflops is not None
    assert third.tflops is not None
    assert (second.tflops, second.reason) == (None, str(error).splitlines()[0])


def test_a_shape_that_does_not_fit_is_not_even_tried() -> None:
    run = SweepRun(
        SweepSpec(device="cpu", shapes=(A, (4096, 4096, 4096))),
        1,
        PlayedTimer([0.01]),
        make=fine,
        free_bytes=lambda: 1 << 20,
    )
    points(run)
    small, large = result(run).cells
    assert small.tflops is not None
    assert large.reason is not None
    assert "needs 192.00 MiB on cpu, and 1.00 MiB are free" in large.reason


def test_shapes_that_a_kernel_does_not_take_have_their_reason() -> None:
    run = sweep(fine, dtype="float8_e4m3fn", shapes=((16, 16, 16), (16, 20, 16)))
    points(run)
    fits, odd = result(run).cells
    assert fits.tflops is not None
    assert odd.reason is not None
    assert "multiples of 16" in odd.reason


def test_a_lost_card_ends_the_sweep_with_what_it_has() -> None:
    run = sweep(failing_at(B, AcceleratorError("CUDA error: GPU is lost"), later=True))
    with pytest.raises(AcceleratorError):
        points(run)
    ended = run.result(stopped=False, failure="CUDA error: GPU is lost")
    assert ended is not None
    assert [(cell.m, cell.n, cell.k) for cell in ended.cells] == [A]
    assert (ended.stopped, ended.failure) == (True, "CUDA error: GPU is lost")


def test_the_speed_of_wrong_values_is_not_told() -> None:
    run = sweep(lambda spec: MeasuredProduct(lambda: None, lambda: spec.m != 32))
    points(run)
    found = result(run)
    assert found.verified is False
    assert [cell.reason is None for cell in found.cells] == [True, False, True]
    assert [cell.verified for cell in found.cells] == [True, False, True], "the others were right"


def test_a_shape_that_was_not_measured_was_not_verified_either() -> None:
    def full(spec: MatmulSpec) -> MeasuredProduct:
        raise torch.OutOfMemoryError("full")

    run = sweep(full)
    points(run)
    found = result(run)
    assert (found.verified, {cell.verified for cell in found.cells}) == (None, {None})


def test_a_shape_says_how_long_it_was_measured() -> None:
    run = sweep(fine)
    points(run)
    found = result(run)
    assert sum(cell.seconds or 0.0 for cell in found.cells) == pytest.approx(found.seconds)
    assert all(cell.seconds for cell in found.cells)


def test_without_a_shape_there_is_no_result() -> None:
    assert sweep(fine).result(stopped=True) is None


def test_what_was_measured_before_is_taken_over_and_not_measured_again() -> None:
    first = sweep(fine)
    while (so_far := first.result(stopped=True)) is None or len(so_far.cells) < 2:
        first.step()
    known = result(first).cells
    assert len(known) == 2
    made: list[MatmulSpec] = []

    def make(spec: MatmulSpec) -> MeasuredProduct:
        made.append(spec)
        return fine(spec)

    second = sweep(make, done=known)
    seen = points(second)
    assert [(spec.m, spec.n, spec.k) for spec in made] == [C]
    assert [(cell.m, cell.n, cell.k) for cell in result(second).cells] == [A, B, C]
    assert seen[-1].done == 1.0


def test_when_everything_is_known_nothing_is_measured() -> None:
    run = sweep(fine, done=tuple(SweepCell(*shape, reason="was too large") for shape in (A, B, C)))
    assert run.step() is None
    assert len(result(run).cells) == 3


# --- on real and virtual devices


def test_a_real_sweep_on_the_cpu() -> None:
    run = SweepRun(SweepSpec(device="cpu", shapes=(A, B), shape_seconds=0.001), 1, CpuTimer())
    run.prepare()
    points(run)
    found = result(run)
    assert found.verified is True
    assert all(cell.tflops is not None and cell.tflops.median > 0 for cell in found.cells)


def on_virtual(machine: VirtualMachine, **spec: object) -> SweepRun:
    timer = VirtualTimer("vgpu:0", machine, threading.Event(), paced=False)
    wanted = SweepSpec(**{"device": "vgpu:0", "dtype": "float16", **spec})  # type: ignore[arg-type]
    run = SweepRun(
        wanted, 1, timer, kind="virtual", make=virtual_product, free_bytes=lambda: machine.device_free_bytes("vgpu:0")
    )
    run.prepare()
    return run


def test_a_virtual_gpu_answers_with_its_cost_model(virtual: VirtualMachine) -> None:
    busy = virtual.gpu("vgpu:0").clock.busy_seconds
    run = on_virtual(virtual, shapes=((2048, 1024, 512),))
    points(run)
    found = result(run)
    assert found.simulated
    assert found.cells[0].tflops is not None
    each = matmul_seconds(virtual, "vgpu:0", 2048, 1024, 512, "float16")
    assert found.cells[0].tflops.median == pytest.approx(2 * 2048 * 1024 * 512 / each / 1e12)
    assert virtual.gpu("vgpu:0").clock.busy_seconds - busy >= 0.19, "utilization sees it"


def test_the_same_search_on_a_virtual_gpu_measures_the_same_shapes(virtual: VirtualMachine) -> None:
    runs = [on_virtual(virtual, search_seconds=10.0) for _ in range(2)]
    for run in runs:
        points(run)
    one, two = (result(run).cells for run in runs)
    assert [(cell.m, cell.n, cell.k) for cell in one] == [(cell.m, cell.n, cell.k) for cell in two]
    best = max(cell.tflops.median for cell in one if cell.tflops is not None)
    squares = [cell.tflops.median for cell in one if cell.m == cell.n == cell.k and cell.tflops is not None]
    assert best >= max(squares)
    assert len(one) > len(START_SIDES)


def test_a_search_measures_what_was_given_and_then_looks_on(virtual: VirtualMachine) -> None:
    run = on_virtual(virtual, shapes=((512, 512, 512), (300, 300, 300)), search_seconds=3.0)
    seen = points(run)
    cells = [(cell.m, cell.n, cell.k) for cell in result(run).cells]
    assert cells[:2] == [(512, 512, 512), (300, 300, 300)]
    assert len(cells) > 5
    assert all(side % 64 == 0 for cell in cells[2:] for side in cell)
    assert seen[-1].done == 1.0


def test_a_resumed_search_does_not_measure_twice(virtual: VirtualMachine) -> None:
    first = on_virtual(virtual, search_seconds=3.0)
    points(first)
    second = on_virtual(virtual, search_seconds=3.0, done=result(first).cells)
    points(second)
    cells = [(cell.m, cell.n, cell.k) for cell in result(second).cells]
    assert len(cells) > len(result(first).cells)
    assert len(set(cells)) == len(cells)


# --- checking


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"shapes": ()}, "needs sizes"),
        ({"shapes": ((0, 1, 1),)}, "0x1x1 cannot be measured"),
        ({"shapes": (A,) * 20_000}, "too many"),
        ({"search_seconds": 0.0}, "search: .* not a duration"),
        ({"shape_seconds": float("nan")}, "per shape: .* not a duration"),
        ({"dtype": "complex64"}, "does not measure complex64"),
        ({"dtype": "tf32"}, "take float32"),
        ({"device": "cuda:7"}, "cuda:7"),
        ({"done": (SweepCell(-1, 2, 3),)}, "-1x2x3"),
    ],
)
def test_each_mistake_is_one_clear_line(given: dict[str, object], words: str) -> None:
    with pytest.raises(BadInput, match=words) as caught:
        check_sweep(SweepSpec(**{"device": "cpu", "shapes": (A,), **given}), DeviceRegistry([TorchBackend()]))  # type: ignore[arg-type]
    assert len(caught.value.findings) == 1


def test_a_sweep_that_can_run_comes_back_with_its_devices_name() -> None:
    spec = SweepSpec(device=" CPU ", shapes=(A,))
    assert check_sweep(spec, DeviceRegistry([TorchBackend()])) == msgspec.structs.replace(spec, device="cpu")


# --- the search alone

LANDSCAPES: list[Callable[[Shape], float]] = [
    lambda shape: -sum(abs(side - 2304) for side in shape) + 100_000.0,
    lambda shape: float(shape[0] * shape[1] * shape[2]),
    lambda shape: 1.0,
]


def climb(search: Search, landscape: Callable[[Shape], float], most: int) -> list[Shape]:
    seen: list[Shape] = []
    while len(seen) < most and (shape := search.propose()) is not None:
        seen.append(shape)
        search.tell(shape, landscape(shape))
    return seen


@pytest.mark.parametrize("landscape", LANDSCAPES)
@pytest.mark.parametrize("seed", range(3))
def test_nothing_is_proposed_twice_or_out_of_bounds(landscape: Callable[[Shape], float], seed: int) -> None:
    seen = climb(Search(lambda shape: max(shape) <= 5000, seed=seed), landscape, 300)
    assert len(set(seen)) == len(seen) == 300
    assert all(max(shape) <= 5000 and min(shape) >= 64 and all(side % 64 == 0 for side in shape) for shape in seen)
    assert seen == climb(Search(lambda shape: max(shape) <= 5000, seed=seed), landscape, 300), "the same again"


def test_it_climbs_to_the_top_of_a_hill() -> None:
    search = Search(lambda shape: max(shape) <= 16_384)
    climb(search, LANDSCAPES[0], 150)
    assert search.best is not None
    assert search.best[1] > 100_000 * 0.99, search.best
    assert all(abs(side - 2304) <= 512 for side in search.best[0])


def test_what_could_not_be_measured_is_no_way_up() -> None:
    search = Search(lambda _shape: True)
    for _ in range(20):
        shape = search.propose()
        assert shape is not None
        search.tell(shape, None)
    assert search.best is None


def test_it_says_when_nothing_new_is_left() -> None:
    search = Search(lambda shape: max(shape) <= 256)
    seen = climb(search, LANDSCAPES[2], DRAWS * 10)
    assert (256, 256, 256) in seen
    assert 30 < len(seen) <= 4**3, "almost all there are, then it gives up"


@settings(max_examples=30)
@given(largest=st.integers(256, LARGEST_JUMP), seed=st.integers(0, 1000))
def test_the_best_is_as_good_as_everything_that_was_measured(largest: int, seed: int) -> None:
    search = Search(lambda shape: max(shape) <= largest, seed=seed)
    rough: Callable[[Shape], float] = lambda shape: 1.0 + (shape[0] * 31 + shape[1] * 17 + shape[2]) % 997  # noqa: E731
    seen = climb(search, rough, 40)
    assert search.best is not None
    assert search.best[1] * 1.001 >= max(map(rough, seen))
