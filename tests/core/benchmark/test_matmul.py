"""Matrix products: correct results, detection of wrong ones, and the report of a run of one shape."""

from __future__ import annotations

import pytest
import torch
from fakes.cuda import AcceleratorError
from fakes.played_timer import PlayedTimer

from devexplorer.core.base import Unavailable
from devexplorer.core.benchmark.matmul import (
    MatmulRun,
    agrees,
    matches,
    operands,
    product,
    real_product,
    tf32_products,
)
from devexplorer.core.devices import accelerator
from devexplorer.core.records import MatmulSpec
from devexplorer.core.virtual.device.machine import VirtualMachine

CPU_DTYPES = ("float64", "float32", "float16", "bfloat16", "int8", "int16", "int32", "float8_e4m3fn", "float8_e5m2")


def run_with(timer: PlayedTimer, **spec: object) -> MatmulRun:
    arguments = {"device": "cpu", "m": 16, "n": 16, "k": 16, "seconds": None, **spec}
    return MatmulRun(MatmulSpec(**arguments), 7, timer, clock=lambda: 5.0)  # type: ignore[arg-type]


# --- products


def has_product(dtype: str) -> bool:
    """An older torch has no float8 products on the CPU."""
    try:
        product(*operands(16, 16, 16, dtype, "cpu"), dtype)
    except Unavailable:
        return not dtype.startswith("float8")
    return True


@pytest.mark.parametrize("dtype", [*filter(has_product, CPU_DTYPES)])
def test_the_product_is_right_in_every_dtype_that_the_cpu_has(dtype: str) -> None:
    assert agrees(dtype, "cpu")


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "int8", "float8_e4m3fn"])
def test_it_is_right_on_a_virtual_gpu_too(virtual: VirtualMachine, dtype: str) -> None:
    assert agrees(dtype, "vgpu:1")


@pytest.mark.parametrize("dtype", ["float64", "float32", "float16", "bfloat16"])
def test_long_sums_are_within_the_bound(dtype: str) -> None:
    a, b = operands(20, 24, 5000, dtype, "cpu")
    assert matches(a, b, product(a, b, dtype)[1], dtype)


def test_integers_wrap_around_as_their_dtype_does() -> None:
    a = torch.full((3, 2000), 7, dtype=torch.int16)
    b = torch.full((2000, 3), 7, dtype=torch.int16)
    out = product(a, b, "int16")[1]
    assert int(out[0, 0]) != 7 * 7 * 2000, "it does not hold the sum"
    assert matches(a, b, out, "int16")


@pytest.mark.parametrize("place", [(0, 0), (-1, -1)], ids=["first", "last"])
def test_a_wrong_value_is_noticed(place: tuple[int, int]) -> None:
    a, b = operands(100, 90, 64, "float32", "cpu")
    out = product(a, b, "float32")[1]
    assert matches(a, b, out, "float32")
    out[place] += 1e-3
    assert not matches(a, b, out, "float32")


@pytest.mark.parametrize("dtype", [*filter(has_product, ["float32", "bfloat16", "float8_e4m3fn", "int8"])])
def test_a_product_that_leaves_out_the_last_piece_is_noticed(dtype: str) -> None:
    a, b = operands(32, 32, 2048, dtype, "cpu")
    short = torch.cat([a[:, :-64].to(torch.float64), torch.zeros(32, 64, dtype=torch.float64)], 1) @ b.to(torch.float64)
    assert not matches(a, b, short.to(product(a, b, dtype)[1].dtype), dtype)


def test_what_is_not_a_number_is_noticed() -> None:
    a, b = operands(4, 4, 4, "float32", "cpu")
    assert not matches(a, b, torch.full((4, 4), float("nan")), "float32")


@pytest.mark.parametrize(("transpose_a", "transpose_b"), [(False, True), (True, False), (True, True)])
@pytest.mark.parametrize("batch", [1, 3])
def test_transposed_and_batched_operands_are_stored_as_they_say(
    transpose_a: bool, transpose_b: bool, batch: int
) -> None:
    a, b = operands(4, 6, 8, "float32", "cpu", batch=batch, transpose_a=transpose_a, transpose_b=transpose_b)
    front = (batch,) if batch > 1 else ()
    assert (a.shape, b.shape) == ((*front, 4, 8), (*front, 8, 6))
    assert a.mT.is_contiguous() == transpose_a
    assert b.mT.is_contiguous() == transpose_b
    operation, out = product(a, b, "float32")
    operation()
    torch.testing.assert_close(out, torch.matmul(a, b))
    assert matches(a, b, out, "float32")


def test_operands_are_random_and_within_their_bounds() -> None:
    a, b = operands(50, 50, 50, "float32", "cpu")
    assert a.min() < -0.9
    assert a.max() > 0.9
    assert not torch.equal(a, b)
    whole, _ = operands(50, 50, 50, "int8", "cpu")
    assert (int(whole.min()), int(whole.max())) == (-8, 7)


def test_a_product_that_does_not_exist_is_unavailable_with_the_reason() -> None:
    a = torch.zeros(3, 5, dtype=torch.int8)  # a dtype mismatch that every kernel refuses
    with pytest.raises(Unavailable, match="has no float32 product"):
        product(a, torch.zeros(5, 3), "float32")


@pytest.mark.parametrize(
    "error",
    [
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError(
            "[enforce fail] DefaultCPUAllocator: can't allocate memory: you tried to allocate 281474976710656 bytes."
        ),
        AcceleratorError("CUDA error: an illegal memory access was encountered"),
    ],
    ids=["full", "host full", "lost"],
)
def test_a_device_that_is_full_or_lost_is_no_missing_product(
    monkeypatch: pytest.MonkeyPatch, error: RuntimeError
) -> None:
    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(torch, "mm", fail)
    with pytest.raises(type(error)) as caught:
        product(torch.zeros(2, 2), torch.zeros(2, 2), "float32")
    assert caught.value is error
    assert accelerator.is_out_of_memory(error) == (not accelerator.failed(error))


def test_tf32_is_a_mode_that_ends() -> None:
    settings = torch.backends.cuda.matmul
    name, on = ("fp32_precision", "tf32") if hasattr(settings, "fp32_precision") else ("allow_tf32", True)
    before = getattr(settings, name)
    with tf32_products():
        assert getattr(settings, name) == on
    assert getattr(settings, name) == before


# --- a run


def test_tflops_are_2mnk_times_the_batch_over_the_median_and_blocks_fill_50_ms() -> None:
    timer = PlayedTimer([0.001, *[0.001] * 20, 0.002, 0.001])
    run = run_with(timer, batch=3)
    run.prepare()
    points = [run.step() for _ in range(3)]
    assert all(point is not None and point.tflops == pytest.approx(2 * 3 * 16**3 / 0.001 / 1e12) for point in points)
    assert timer.lengths[-1] == 50
    result = run.result(stopped=True)
    assert result is not None
    assert (result.blocks, result.iterations, result.stopped, result.verified) == (3, 150, True, True)
    assert result.failure is None


def test_points_say_what_is_measured_and_how_far_it_is() -> None:
    run = run_with(PlayedTimer([0.001]), iterations=200)
    run.prepare()
    points = [point for point in iter(run.step, None) if point is not None]
    assert [point.done for point in points] == [0.25, 0.5, 0.75, 1.0]
    assert {point.text for point in points} == {"16×16×16"}


def test_the_reason_for_the_end_is_shown_with_the_measurements() -> None:
    run = run_with(PlayedTimer([0.001]))
    run.prepare()
    run.step()
    result = run.result(stopped=False, failure="CUDA error: the GPU is lost")
    assert result is not None
    assert (result.blocks, result.stopped, result.failure) == (1, True, "CUDA error: the GPU is lost")


def test_p20_and_p80_are_in_the_order_of_speed_and_the_samples_stay_in_that_of_time() -> None:
    run = run_with(PlayedTimer([0.3, 0.01, 0.02, 0.04, 0.05, 0.03]))
    run.prepare()
    for _ in range(5):
        run.step()
    result = run.result(stopped=False)
    assert result is not None
    assert result.tflops.p20 < result.tflops.median < result.tflops.p80
    assert [round(0.01 * result.samples_tflops[0] / rate, 6) for rate in result.samples_tflops] == [
        0.01,
        0.02,
        0.04,
        0.05,
        0.03,
    ]
    assert result.noise is not None
    assert result.noise > 0.3


def test_without_a_block_there_is_no_result() -> None:
    run = run_with(PlayedTimer([0.3]))
    assert run.result(stopped=True) is None, "before it was prepared"
    run.prepare()
    assert run.result(stopped=True) is None


def test_preparing_ends_early_when_it_is_stopped() -> None:
    timer = PlayedTimer([0.001])
    run = run_with(timer)
    run.prepare(lambda: True)
    assert timer.lengths == []


def test_a_wrong_product_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    right = torch.mm

    def wrong(a: torch.Tensor, b: torch.Tensor, *, out: torch.Tensor) -> torch.Tensor:
        right(a, b, out=out)
        out[0, 0] += 0.01
        return out

    monkeypatch.setattr(torch, "mm", wrong)
    run = run_with(PlayedTimer([0.001]))
    run.prepare()
    run.step()
    result = run.result(stopped=False)
    assert result is not None
    assert result.verified is False


def test_the_very_product_that_is_measured_is_verified() -> None:
    spec = MatmulSpec(device="cpu", dtype="bfloat16", m=33, n=20, k=70, batch=2, transpose_a=True, transpose_b=True)
    made = real_product(spec)
    assert made.verify()
    made.operation().zero_()  # type: ignore[attr-defined]  # its output
    assert not made.verify()
