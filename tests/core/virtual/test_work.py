"""What the cost model is told of an operation: its kind, and the matrix product that it is."""

from __future__ import annotations

import pytest
import torch

from devexplorer.core.virtual.device.cost import Kind, Pass, Product, Work
from devexplorer.core.virtual.operators.work import KINDS, kind_of, work_of


def made(*shape: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    return torch.empty(shape, dtype=dtype, device="meta")


def flop(work: Work) -> int:
    assert work.product is not None
    m, n, k, batch = work.product
    return 2 * m * n * k * batch


def test_a_fused_norm_is_no_optimizer() -> None:
    assert kind_of("aten::_fused_rms_norm") is Kind.LAYER_NORM
    assert kind_of("aten::_fused_adamw_") is kind_of("aten::_foreach_add_") is Kind.OPTIMIZER
    assert {name: kind_of(name) for name in KINDS} == KINDS


@pytest.mark.parametrize("scale", [(), (64, 1)])
def test_a_scaled_product_is_that_of_its_first_two_tensors(scale: tuple[int, ...]) -> None:
    a, b = made(64, 32, dtype=torch.float8_e4m3fn), made(32, 64, dtype=torch.float8_e4m3fn)
    (work,) = work_of(Kind.PRODUCT, "float8_e4m3fn", 0, 0, (a, b, made(*scale), made(1, 64)), made(64, 64))
    assert work.product == Product(64, 64, 32)


@pytest.mark.parametrize("added", [(64,), (48, 64), (1, 64)])
def test_a_product_that_is_added_to_something(added: tuple[int, ...]) -> None:
    (work,) = work_of(Kind.PRODUCT, "float32", 0, 0, (made(*added), made(48, 32), made(32, 64)), made(48, 64))
    assert work.product == Product(48, 64, 32)


@pytest.mark.parametrize("groups", [1, 4])
def test_a_transposed_convolution_does_the_work_of_a_convolution_the_other_way(groups: int) -> None:
    """Of 2x2 with stride 2, from 16x16 to 32x32: each pixel of the input meets each weight once."""
    x, weight, result = made(8, 64, 16, 16), made(64, 32 // groups, 2, 2), made(8, 32, 32, 32)
    options = ((2, 2), (0, 0), (1, 1), True, (0, 0), groups)
    true = 2 * 8 * 16 * 16 * weight.numel()
    (forward,) = work_of(Kind.CONVOLUTION, "float32", true, 0, (x, weight, None, *options), result)
    assert (flop(forward), forward.part) == (true, Pass.INPUT_GRADIENT)
    assert forward.product is not None
    assert (forward.product.m, forward.product.n) == (8 * 32 * 32, 32 // groups)

    args = (result, x, weight, None, *options, (True, True, False))
    given, weights = work_of(Kind.CONVOLUTION, "float32", 2 * true, 0, args, (x, weight, None))
    assert [(flop(work), work.part) for work in (given, weights)] == [
        (true, Pass.FORWARD),
        (true, Pass.WEIGHT_GRADIENT),
    ]


def test_a_convolution_and_its_gradients() -> None:
    x, weight, result = made(8, 32, 32, 32), made(64, 32, 3, 3), made(8, 64, 32, 32)
    options = ((1, 1), (1, 1), (1, 1), False, (0, 0), 1)
    true = 2 * 8 * 32 * 32 * weight.numel()
    (forward,) = work_of(Kind.CONVOLUTION, "float32", true, 0, (x, weight, None, *options), result)
    args = (result, x, weight, None, *options, (True, True, False))
    backward = work_of(Kind.CONVOLUTION, "float32", 2 * true, 0, args, (x, weight, None))
    assert [flop(work) for work in (forward, *backward)] == [true] * 3
    assert [work.part for work in (forward, *backward)] == list(Pass)
