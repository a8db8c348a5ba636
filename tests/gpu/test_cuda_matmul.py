"""Matrix products on real CUDA devices: correct in every dtype of the card, and timed in every mode. Needs a GPU and
CUDA torch."""

from __future__ import annotations

import threading

import pytest
import torch

from devexplorer.core.base import BadInput, Unavailable
from devexplorer.core.benchmark.kind import kind_of
from devexplorer.core.benchmark.matmul import tf32_products
from devexplorer.core.devices.backend import DeviceRegistry
from devexplorer.core.devices.torch_devices import TorchBackend
from devexplorer.core.engine.benchmarks import make_runner
from devexplorer.core.records import MatmulResult, MatmulSpec
from devexplorer.core.sweep.kind import SweepResult, SweepSpec

pytestmark = [
    pytest.mark.gpu,
    pytest.mark.skipif(not torch.cuda.is_available(), reason="torch.cuda is not available here"),
]


@pytest.fixture
def registry() -> DeviceRegistry:
    return DeviceRegistry([TorchBackend()])


def measured(spec: MatmulSpec | SweepSpec, registry: DeviceRegistry) -> MatmulResult | SweepResult:
    run = make_runner(kind_of(spec).check(spec, registry), 1, registry, threading.Event())
    run.prepare()
    while run.step() is not None:
        pass
    result = run.result(stopped=False)
    assert isinstance(result, MatmulResult | SweepResult)
    return result


@pytest.mark.parametrize(
    "dtype", ["float64", "float32", "tf32", "float16", "bfloat16", "float8_e4m3fn", "float8_e5m2", "int8"]
)
@pytest.mark.parametrize("shape", [(256, 256, 256), (48, 1024, 4096)])
def test_products_are_right_in_every_dtype_that_the_card_has(
    registry: DeviceRegistry, dtype: str, shape: tuple[int, int, int]
) -> None:
    m, n, k = shape
    spec = MatmulSpec(device="cuda:0", dtype=dtype, m=m, n=n, k=k, mode="burst", seconds=0.05)
    try:
        if dtype == "tf32":
            with tf32_products():
                result = measured(spec, registry)
        else:
            result = measured(spec, registry)
    except (BadInput, Unavailable) as lacking:
        pytest.skip(str(lacking))
    assert result.verified


@pytest.mark.parametrize(
    "how", [{"batch": 5}, {"transpose_a": True}, {"transpose_b": True}, {"transpose_a": True, "transpose_b": True}]
)
def test_batches_and_layouts(registry: DeviceRegistry, how: dict[str, object]) -> None:
    spec = MatmulSpec(**{"device": "cuda:0", "dtype": "bfloat16", "m": 96, "n": 160, "k": 224, "seconds": 0.05, **how})  # type: ignore[arg-type]
    assert measured(spec, registry).verified


@pytest.mark.parametrize("mode", ["live", "burst", "sustained"])
def test_every_mode_gives_samples_of_single_iterations(registry: DeviceRegistry, mode: str) -> None:
    result = measured(
        MatmulSpec(device="cuda:0", dtype="float16", m=2048, n=2048, k=2048, mode=mode, seconds=0.5), registry
    )
    assert isinstance(result, MatmulResult)
    assert len(result.samples_tflops) == 200
    assert len(result.parts_tflops) == (8 if mode == "sustained" else 0)


def test_a_sweep_gives_a_reason_where_a_shape_does_not_fit(registry: DeviceRegistry) -> None:
    shapes = ((512, 512, 512), (900_000, 900_000, 512), (1024, 512, 256))
    result = measured(SweepSpec(device="cuda:0", dtype="bfloat16", shapes=shapes, shape_seconds=0.05), registry)
    assert isinstance(result, SweepResult)
    assert [cell.reason is None for cell in result.cells] == [True, False, True]
