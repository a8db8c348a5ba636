"""The time of a product on a virtual GPU, from its roofline."""

from __future__ import annotations

from typing import Any

from devexplorer.core.base import item_bytes, product_dtype


def matmul_seconds(machine: Any, device: str, m: int, n: int, k: int, dtype: str) -> float:
    """Seconds of one product (M×K)·(K×N) on that card, `tf32` meaning TF32 products of float32 tensors."""
    nbytes = (m * k + k * n) * item_bytes(dtype) + m * n * item_bytes(product_dtype(dtype))
    seconds: float = machine.gpu(device).roofline.operation_seconds(2 * m * n * k, nbytes, dtype)
    return seconds
